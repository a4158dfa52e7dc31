// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/plugin/user_kernels.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "backends/compiler/plan/visit.h"
#include "backends/vulkan/codegen/generate.h"
#include "backends/vulkan/launch/kernel_abi.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::vulkan {
namespace {

constexpr std::string_view kTarget = "hekla.vulkan_kernel";
// Of each dimension of a grid, on every device.
constexpr int64_t kMaxGrid = 65535;

// What the SPIR-V specification numbers.
enum : uint32_t {
  kOpEntryPoint = 15,
  kOpExecutionMode = 16,
  kOpCapability = 17,
  kOpDecorate = 71,
  kGlCompute = 5,
  kLocalSize = 17,
  kDescriptorSet = 34,
};

// The call that the program is; null: it is none.
const ir::Operation* shader_call(const ir::Module& program) {
  const ir::Function* entry = program.entry();
  if (entry == nullptr || entry->is_declaration()) return nullptr;
  const auto& operations = entry->body().front().operations();
  if (operations.size() != 2) return nullptr;
  const ir::Operation& op = *operations.front();
  const bool is_call =
      op.code() == ir::OpCode::kCustomCall && ir::text_value(op, "call_target_name") == kTarget;
  return is_call ? &op : nullptr;
}

// Elements of one of the call's attributes; empty: it is absent or of another kind.
std::vector<int64_t> numbers_of(const ir::DictionaryValue& attributes, std::string_view name) {
  std::vector<int64_t> numbers;
  const ir::Attribute* found = attributes.find(name);
  if (found == nullptr) return numbers;
  if (const auto* list = found->get<ir::IntArrayValue>()) return list->values;
  const auto* dense = found->get<ir::DenseValue>();
  if (dense == nullptr) return numbers;
  const Result<HostArray> all = dense->expand();
  if (!all.ok()) return numbers;
  for (int64_t i = 0; i < all->size(); ++i) {
    if (all->dtype() == DType::kUI32) numbers.push_back(all->as<uint32_t>()[i]);
    if (all->dtype() == DType::kI64) numbers.push_back(all->as<int64_t>()[i]);
  }
  return numbers;
}

std::vector<uint32_t> words_of(const ir::DictionaryValue& attributes, std::string_view name) {
  std::vector<uint32_t> words;
  for (const int64_t number : numbers_of(attributes, name)) {
    words.push_back(static_cast<uint32_t>(number));
  }
  return words;
}

// Of capabilities those that the device was opened with.
bool has_capability(const Target& target, uint32_t capability) {
  switch (capability) {
    case 0:     // Matrix
    case 1:     // Shader
    case 5347:  // PhysicalStorageBufferAddresses
      return true;
    case 10:  // Float64
      return target.float64;
    case 11:  // Int64
      return target.int64;
    case 4433:  // StorageBuffer16BitAccess
      return target.storage_16;
    case 4448:  // StorageBuffer8BitAccess
      return target.storage_8;
    case 61:  // GroupNonUniform
    case 65:  // GroupNonUniformShuffle
      return target.subgroup_shuffle;
    default:
      return false;
  }
}

Status check_instruction(std::span<const uint32_t> op, const Target& target) {
  const uint32_t code = op[0] & 0xffff;
  if (code == kOpCapability && !has_capability(target, op[1])) {
    return unimplemented("the shader needs the SPIR-V capability {}, which is not open here",
                         op[1]);
  }
  if (code == kOpDecorate && op[2] == kDescriptorSet) {
    return invalid_argument(
        "the shader has descriptors; arrays come by their addresses (buffer_reference), as "
        "docs/custom_calls.md says");
  }
  if (code == kOpExecutionMode && op[2] == kLocalSize) {
    const uint64_t size = uint64_t{op[3]} * op[4] * op[5];
    if (size > target.max_workgroup_invocations) {
      return invalid_argument("a workgroup of {} x {} x {} invocations; the device takes {}", op[3],
                              op[4], op[5], target.max_workgroup_invocations);
    }
  }
  return ok_status();
}

// The driver may do anything with a module that is not valid.
Status check_module(std::span<const uint32_t> words, const std::string& entry,
                    const Target& target) {
  if (const Status status = validate(words); !status.ok()) {
    return invalid_argument("{} bytes of SPIR-V: {}", words.size_bytes(), status.message());
  }
  bool has_entry = false;
  constexpr size_t kHeaderWords = 5;
  for (size_t at = kHeaderWords; at < words.size(); at += words[at] >> 16) {
    const std::span<const uint32_t> op = words.subspan(at, words[at] >> 16);
    HEKLA_RETURN_IF_ERROR(check_instruction(op, target));
    if ((op[0] & 0xffff) != kOpEntryPoint || op[1] != kGlCompute) continue;
    const auto* name = reinterpret_cast<const char*>(op.data() + 3);
    has_entry = has_entry || entry == std::string_view(name, strnlen(name, (op.size() - 3) * 4));
  }
  if (has_entry) return ok_status();
  return invalid_argument("the module has no compute shader {}", entry);
}

class Taker {
 public:
  Taker(plan::LaunchPlan& plan, const Target& target) : plan_(plan), target_(target) {}

  Status take(plan::Steps& steps) {
    for (plan::Step& step : steps) {
      Status status;
      plan::for_each_list(step, [&](plan::Steps& inner) {
        if (status.ok()) status = take(inner);
      });
      HEKLA_RETURN_IF_ERROR(status);
      const auto* host = std::get_if<plan::HostStep>(&step.what);
      const ir::Operation* call = host == nullptr ? nullptr : shader_call(*host->program);
      if (call == nullptr) continue;
      Result<plan::KernelStep> kernel = make(*call, *host);
      if (!kernel.ok()) return kernel.status().with_context(kTarget);
      step.what = *std::move(kernel);
    }
    return ok_status();
  }

  std::vector<DeviceKernel> take_kernels() { return std::move(kernels_); }

 private:
  Result<plan::KernelStep> make(const ir::Operation& call, const plan::HostStep& host) {
    const auto* attributes = call.attribute("mhlo.backend_config").get<ir::DictionaryValue>();
    if (attributes == nullptr) {
      attributes = call.attribute("backend_config").get<ir::DictionaryValue>();
    }
    if (attributes == nullptr) return invalid_argument("the call has no attributes");
    DeviceKernel code;
    code.code.name = "shader of the user's";
    code.code.words = words_of(*attributes, "spirv");
    if (const ir::Attribute* entry = attributes->find("entry")) {
      if (const auto* name = entry->get<ir::StringValue>()) code.code.entry = name->value;
    }
    HEKLA_RETURN_IF_ERROR(check_module(code.code.words, code.code.entry, target_));
    code.code.constant_ids = words_of(*attributes, "specialization_ids");
    code.code.constant_values = words_of(*attributes, "specialization_values");
    if (code.code.constant_ids.size() != code.code.constant_values.size()) {
      return invalid_argument("{} values for {} specialization constants",
                              code.code.constant_values.size(), code.code.constant_ids.size());
    }
    code.constants = words_of(*attributes, "constants");
    if (code.constants.size() > kMaxKernelConstants) {
      return invalid_argument("{} push constants; there is room for {}", code.constants.size(),
                              kMaxKernelConstants);
    }
    const std::vector<int64_t> grid = numbers_of(*attributes, "grid");
    if (grid.size() != 3 || *std::min_element(grid.begin(), grid.end()) < 0 ||
        *std::max_element(grid.begin(), grid.end()) > kMaxGrid) {
      return invalid_argument("a grid is three numbers of workgroups from 0 to {}", kMaxGrid);
    }
    std::copy(grid.begin(), grid.end(), code.groups.begin());
    plan::KernelStep step;
    step.kernel = static_cast<int32_t>(plan_.kernels.size());
    kernel::Kernel kernel;
    kernel.name = code.code.name;
    kernel.grid = grid;
    const auto add = [&](const plan::Slice& slice, bool is_written) {
      step.operands.push_back(slice);
      kernel.operands.push_back({slice.bytes, !is_written, is_written, false});
    };
    const ir::Block& body = host.program->entry()->body().front();
    for (const ir::Value* operand : call.operands()) {
      for (size_t i = 0; i < body.argument_count(); ++i) {
        if (body.argument(i) == operand) add(host.inputs[i], false);
      }
    }
    for (const plan::Slice& slice : host.outputs) add(slice, true);
    if (step.operands.size() != call.operand_count() + call.result_count()) {
      return internal_error("{} arrays of {} operands and {} results", step.operands.size(),
                            call.operand_count(), call.result_count());
    }
    plan_.kernels.push_back(std::move(kernel));
    kernels_.push_back(std::move(code));
    return step;
  }

  plan::LaunchPlan& plan_;
  const Target& target_;
  std::vector<DeviceKernel> kernels_;
};

}  // namespace

Result<UserKernels> take_user_kernels(std::shared_ptr<const plan::LaunchPlan> plan,
                                      const Target& target) {
  bool has_calls = false;
  plan::for_each_step(plan->steps, [&](const plan::Step& step) {
    const auto* host = std::get_if<plan::HostStep>(&step.what);
    has_calls = has_calls || (host != nullptr && shader_call(*host->program) != nullptr);
  });
  if (!has_calls) return UserKernels{std::move(plan), {}};
  auto copy = std::make_shared<plan::LaunchPlan>(*plan);
  Taker taker(*copy, target);
  HEKLA_RETURN_IF_ERROR(taker.take(copy->steps));
  return UserKernels{std::move(copy), taker.take_kernels()};
}

}  // namespace hekla::vulkan
