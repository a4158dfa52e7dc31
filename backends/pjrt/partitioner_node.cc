// SPDX-License-Identifier: Apache-2.0
// The extension by which clients register how custom calls are partitioned. JAX also names calls
// that may be cut along their leading dimensions: they are computed whole, which is right, too.
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <vector>

#include "backends/pjrt/abi.h"
#include "backends/pjrt/partitioners.h"
#include "runtime/base/protobuf_wire.h"
#include "runtime/program/hlo/shape.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::pjrt {
namespace {

using sharding::HloSharding;
using spmd::CustomArray;
using spmd::CustomPartition;
using Text = JAX_CustomCallPartitioner_string;

constexpr uint32_t kTuple = 13;  // of xla.PrimitiveType

Text borrowed(const std::string& text) { return {text.data(), text.size()}; }

std::string_view view(const Text& text) {
  return text.data == nullptr ? std::string_view() : std::string_view(text.data, text.size);
}

// The number of xla.PrimitiveType; 0 where it has none.
uint64_t primitive_type(DType dtype) {
  constexpr int64_t kMost = 64;
  for (int64_t number = 1; number <= kMost; ++number) {
    if (hlo::dtype_of(number) == dtype) return static_cast<uint64_t>(number);
  }
  return 0;
}

wire::Writer shape_message(const ir::Type& type) {
  wire::Writer shape, layout;
  const auto& dims = type.dims();
  std::vector<int64_t> order(dims.size());
  std::iota(order.rbegin(), order.rend(), 0);
  layout.packed(1, order);
  shape.varint(2, primitive_type(type.dtype()));
  shape.packed(3, dims);
  shape.message(5, layout);
  return shape;
}

std::string encode_shardings(const std::vector<HloSharding>& shardings) {
  if (shardings.size() == 1) return sharding::encode_op_sharding(shardings.front());
  HloSharding all;
  all.kind = HloSharding::Kind::kTuple;
  all.elements = shardings;
  return sharding::encode_op_sharding(all);
}

Result<HloSharding> decode(const Text& bytes, std::string_view what) {
  Result<HloSharding> sharding = sharding::decode_op_sharding(view(bytes));
  if (!sharding.ok()) return sharding.status().with_context(std::string(what));
  if (sharding->kind == HloSharding::Kind::kTuple) return sharding;
  HEKLA_RETURN_IF_ERROR(sharding::check(*sharding).with_context(std::string(what)));
  return sharding::canonical(*std::move(sharding));
}

Result<std::vector<HloSharding>> decode_results(const Text& bytes) {
  HEKLA_ASSIGN_OR_RETURN(HloSharding all, decode(bytes, "the sharding of the results"));
  if (all.kind != HloSharding::Kind::kTuple) return std::vector<HloSharding>{std::move(all)};
  for (HloSharding& one : all.elements) {
    HEKLA_RETURN_IF_ERROR(sharding::check(one).with_context("the sharding of a result"));
    one = sharding::canonical(std::move(one));
  }
  return std::move(all.elements);
}

// What a function answered is its own until it is told that nobody reads it any more.
class Answer {
 public:
  explicit Answer(const JAX_CustomCallPartitioner_version_and_error& header) : header_(header) {}
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;
  ~Answer() {
    if (header_.cleanup_fn != nullptr) header_.cleanup_fn(header_.data);
  }
  Status status() const {
    if (!header_.has_error) return ok_status();
    const std::string_view message = view(header_.error_msg);
    return status_of(header_.code, message.data(), message.size());
  }

 private:
  const JAX_CustomCallPartitioner_version_and_error& header_;
};

// Texts that arrays of the C API borrow.
class Arrays {
 public:
  explicit Arrays(std::span<const CustomArray> arrays) {
    texts_.reserve(2 * arrays.size());
    for (const CustomArray& array : arrays) {
      JAX_CustomCallPartitioner_aval aval{};
      texts_.push_back(encode_shapes({&array.type, 1}));
      aval.shape = borrowed(texts_.back());
      aval.has_sharding = true;
      texts_.push_back(sharding::encode_op_sharding(array.sharding));
      aval.sharding = borrowed(texts_.back());
      avals_.push_back(aval);
    }
  }
  JAX_CustomCallPartitioner_aval* data() { return avals_.data(); }
  size_t size() const { return avals_.size(); }

 private:
  std::vector<std::string> texts_;
  std::vector<JAX_CustomCallPartitioner_aval> avals_;
};

class ClientPartitioner : public spmd::CustomPartitioner {
 public:
  explicit ClientPartitioner(JAX_CustomCallPartitioner_Callbacks* functions)
      : functions_(functions) {}
  ~ClientPartitioner() override {
    if (functions_->dtor != nullptr) functions_->dtor(functions_);
  }

  Result<CustomPartition> partition(std::string_view config, std::span<const CustomArray> operands,
                                    std::span<const CustomArray> results) const override {
    Arrays arrays(operands);
    std::vector<ir::Type> types;
    std::vector<HloSharding> shardings;
    for (const CustomArray& result : results) {
      types.push_back(result.type);
      shardings.push_back(result.sharding);
    }
    const std::string shape = encode_shapes(types);
    const std::string proposal = encode_shardings(shardings);
    JAX_CustomCallPartitioner_Partition_Args args{};
    args.num_args = arrays.size();
    args.op_args = arrays.data();
    args.op_result.shape = borrowed(shape);
    args.op_result.has_sharding = true;
    args.op_result.sharding = borrowed(proposal);
    args.backend_config = {config.data(), config.size()};
    functions_->partition(functions_, &args);
    const Answer answer(args.header);
    HEKLA_RETURN_IF_ERROR(answer.status());
    if (args.args_sharding == nullptr && !operands.empty()) {
      return invalid_argument(
          "a custom partitioner gave no shardings of its operands, of which it "
          "has {}",
          operands.size());
    }
    CustomPartition made;
    for (size_t i = 0; i < operands.size(); ++i) {
      HEKLA_ASSIGN_OR_RETURN(
          HloSharding sharding,
          decode(args.args_sharding[i], fmt::format("the sharding of operand {}", i)));
      made.operands.push_back(std::move(sharding));
    }
    HEKLA_ASSIGN_OR_RETURN(made.results, decode_results(args.result_sharding));
    // Constants may be read in place, and the bytes go with the answer.
    const auto bytes = std::make_shared<const std::string>(view(args.mlir_module));
    HEKLA_ASSIGN_OR_RETURN(made.program, stablehlo::read_program(*bytes, bytes));
    HEKLA_RETURN_IF_ERROR(ir::verify(*made.program));
    return made;
  }

  Result<std::vector<HloSharding>> infer(std::string_view config,
                                         std::span<const CustomArray> operands,
                                         std::span<const ir::Type> results) const override {
    Arrays arrays(operands);
    const std::string shape = encode_shapes(results);
    JAX_CustomCallPartitioner_InferShardingFromOperands_Args args{};
    args.num_args = arrays.size();
    args.op_args = arrays.data();
    args.result_shape = borrowed(shape);
    args.backend_config = {config.data(), config.size()};
    functions_->infer_sharding(functions_, &args);
    const Answer answer(args.header);
    HEKLA_RETURN_IF_ERROR(answer.status());
    if (!args.has_result_sharding) return std::vector<HloSharding>(results.size());
    return decode_results(args.result_sharding);
  }

  Result<std::vector<HloSharding>> revise(std::string_view config,
                                          std::span<const CustomArray> results) const override {
    std::vector<ir::Type> types;
    std::vector<HloSharding> shardings;
    for (const CustomArray& result : results) {
      types.push_back(result.type);
      shardings.push_back(result.sharding);
    }
    if (functions_->propagate_user_sharding == nullptr) return shardings;
    const std::string shape = encode_shapes(types);
    const std::string wanted = encode_shardings(shardings);
    JAX_CustomCallPartitioner_PropagateUserSharding_Args args{};
    args.backend_config = {config.data(), config.size()};
    args.result_shape = borrowed(shape);
    args.result_sharding = borrowed(wanted);
    functions_->propagate_user_sharding(functions_, &args);
    const Answer answer(args.header);
    HEKLA_RETURN_IF_ERROR(answer.status());
    return decode_results(args.result_sharding);
  }

 private:
  JAX_CustomCallPartitioner_Callbacks* const functions_;
};

using PartitionerRef = std::shared_ptr<const ClientPartitioner>;

struct Registry {
  std::mutex mutex;
  std::map<std::string, PartitionerRef, std::less<>> partitioners;
  // Those that others replaced while somebody compiled with them. Their destructors are the
  // client's, whose locks (Python's GIL) threads that compile do not hold: so these never are the
  // last owners.
  std::vector<PartitionerRef> replaced;
};

// Outlives the process: at its end the client's functions may be gone already.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

Status Register_Custom_Partitioner(PJRT_Register_Custom_Partitioner_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Register_Custom_Partitioner_Args, callbacks);
  HEKLA_REQUIRE_HANDLE(args, callbacks);
  HEKLA_REQUIRE_HANDLE(args, name);
  const JAX_CustomCallPartitioner_Callbacks& functions = *args->callbacks;
  if (functions.partition == nullptr || functions.infer_sharding == nullptr) {
    return invalid_argument("a custom partitioner without its functions");
  }
  auto made = std::make_shared<const ClientPartitioner>(args->callbacks);
  std::vector<PartitionerRef> unused;  // they go here, with no lock held
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  std::swap(all.partitioners[std::string(args->name, args->name_size)], made);
  if (made != nullptr) all.replaced.push_back(std::move(made));
  std::erase_if(all.replaced, [&](PartitionerRef& one) {
    // Nobody finds it any more.
    if (one.use_count() > 1) return false;
    unused.push_back(std::move(one));
    return true;
  });
  return ok_status();
}

Status Register_Batch_Partitionable(PJRT_Register_Batch_Partitionable_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Register_Batch_Partitionable_Args, name_size);
  HEKLA_REQUIRE_HANDLE(args, name);
  return ok_status();
}

PJRT_Custom_Partitioner_Extension partitioner_node = {
    {PJRT_STRUCT_SIZE(PJRT_Custom_Partitioner_Extension, register_batch_partitionable),
     PJRT_Extension_Type_Custom_Partitioner, nullptr},
    Slot<Register_Custom_Partitioner>::call,
    Slot<Register_Batch_Partitionable>::call,
};

}  // namespace

PJRT_Extension_Base* partitioner_extension() { return &partitioner_node.base; }

std::shared_ptr<const spmd::CustomPartitioner> find_partitioner(std::string_view target) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  const auto found = all.partitioners.find(target);
  return found == all.partitioners.end() ? nullptr : found->second;
}

std::string encode_shapes(std::span<const ir::Type> types) {
  if (types.size() == 1) return shape_message(types.front()).text();
  wire::Writer tuple;
  tuple.varint(2, kTuple);
  for (const ir::Type& type : types) tuple.message(4, shape_message(type));
  return tuple.text();
}

}  // namespace hekla::pjrt
