// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/lapack_calls.h"

#include <algorithm>
#include <atomic>
#include <complex>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "backends/lapack/library.h"
#include "backends/reference/matrix_order.h"
#include "backends/reference/task_ranges.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::reference {
namespace {

using lapack::Parallel;
using lapack::Table;
using lapack::Type;
using Data = std::vector<Datum>;

enum class Routine {
  kPotrf,
  kTrsm,
  kGetrf,
  kGeqrf,
  kGeqp3,
  kOrgqr,
  kOrmqr,
  kSyevd,
  kGesdd,
  kGesvd,
  kGeev,
  kGees,
  kGehrd,
  kSytrd,
  kGtsv
};

struct RoutineName {
  std::string_view real, complex;
  Routine routine;
};

constexpr RoutineName kRoutines[] = {
    {"potrf", "potrf", Routine::kPotrf}, {"trsm", "trsm", Routine::kTrsm},
    {"getrf", "getrf", Routine::kGetrf}, {"geqrf", "geqrf", Routine::kGeqrf},
    {"geqp3", "geqp3", Routine::kGeqp3}, {"orgqr", "ungqr", Routine::kOrgqr},
    {"ormqr", "unmqr", Routine::kOrmqr}, {"syevd", "heevd", Routine::kSyevd},
    {"gesdd", "gesdd", Routine::kGesdd}, {"gesvd", "gesvd", Routine::kGesvd},
    {"geev", "geev", Routine::kGeev},    {"gees", "gees", Routine::kGees},
    {"gehrd", "gehrd", Routine::kGehrd}, {"sytrd", "hetrd", Routine::kSytrd},
    {"gtsv", "gtsv", Routine::kGtsv},
};

std::optional<Type> lapack_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Type::kF32;
    case DType::kF64:
      return Type::kF64;
    case DType::kC64:
      return Type::kC64;
    case DType::kC128:
      return Type::kC128;
    default:
      return std::nullopt;
  }
}

DType real_type(DType dtype) {
  if (dtype == DType::kC64) return DType::kF32;
  return dtype == DType::kC128 ? DType::kF64 : dtype;
}
DType complex_type(DType dtype) {
  if (dtype == DType::kF32) return DType::kC64;
  return dtype == DType::kF64 ? DType::kC128 : dtype;
}

// An array of the call: its dtype, what follows the batch, and whether matrices are column-major.
struct Shape {
  DType dtype = DType::kInvalid;
  Dims dims;  // without the batch
  bool by_columns = false;

  int64_t size() const { return element_count(dims); }
  int64_t bytes() const { return size() * dtype_bytes(dtype); }
};

// A call as its operation describes it.
struct Call {
  Routine routine = Routine::kPotrf;
  DType dtype = DType::kInvalid;
  Type type = Type::kF32;
  Dims batch_dims;
  int64_t m = 0, n = 0, k = 0;
  char mode = 'N', second_mode = 'N';  // gees, geev ...
  char uplo = 'L', side = 'L', trans = 'N', diag = 'N';
  int64_t low = 1, high = 1;
  std::vector<Shape> operands, results;

  int64_t batch() const { return element_count(batch_dims); }
};

const ir::DictionaryValue* configuration(const ir::Operation& op) {
  for (const char* name : {"mhlo.backend_config", "backend_config"}) {
    if (const auto* found = op.attribute(name).get<ir::DictionaryValue>()) return found;
  }
  return nullptr;
}

// An integer, a flag or (as its number) a letter of the call.
std::optional<int64_t> number_of(const ir::DictionaryValue* config, std::string_view name) {
  const ir::Attribute* found = config == nullptr ? nullptr : config->find(name);
  if (found == nullptr) return std::nullopt;
  if (const auto* integer = found->get<ir::IntegerValue>()) return integer->value;
  if (const auto* flag = found->get<ir::BoolValue>()) return flag->value ? 1 : 0;
  return std::nullopt;
}

bool read_letter(const ir::DictionaryValue* config, std::string_view name, std::string_view allowed,
                 char& letter) {
  const std::optional<int64_t> value = number_of(config, name);
  if (!value || *value <= 0 || *value > 127) return false;
  letter = static_cast<char>(*value);
  return allowed.find(letter) != std::string_view::npos;
}

std::optional<std::vector<int64_t>> layout_of(const ir::Attribute& attribute) {
  if (const auto* list = attribute.get<ir::IntArrayValue>()) return list->values;
  const auto* dense = attribute.get<ir::DenseValue>();
  if (dense == nullptr || dense->values.dtype() != DType::kI64) return std::nullopt;
  const Result<HostArray> all = dense->expand();
  if (!all.ok()) return std::nullopt;
  const int64_t* first = all->as<int64_t>();
  return std::vector<int64_t>(first, first + all->size());
}

// Sets by_columns of each of `shapes` from the layouts; false for an order that is neither rows nor
// columns.
bool read_layouts(const ir::Operation& op, const char* name, size_t batch_rank,
                  std::vector<Shape>& shapes) {
  const auto* layouts = op.attribute(name).get<ir::ArrayValue>();
  if (layouts == nullptr || layouts->elements.empty()) return true;
  if (layouts->elements.size() != shapes.size()) return false;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const std::optional<std::vector<int64_t>> order = layout_of(layouts->elements[i]);
    const size_t rank = batch_rank + shapes[i].dims.size();
    if (!order || order->size() != rank) return false;
    std::vector<int64_t> rows(rank);
    for (size_t d = 0; d < rank; ++d) rows[d] = static_cast<int64_t>(rank - 1 - d);
    if (*order == rows) continue;
    if (rank < 2 || shapes[i].dims.size() != 2) return false;
    std::swap(rows[0], rows[1]);
    if (*order != rows) return false;
    shapes[i].by_columns = true;
  }
  return true;
}

bool has_shape(const ir::Type& type, const Dims& batch, const Shape& shape) {
  Dims dims = batch;
  dims.insert(dims.end(), shape.dims.begin(), shape.dims.end());
  return type.is_static_tensor() && type.dtype() == shape.dtype && type.dims() == dims;
}

// "lapack_" type letter, routine, "_ffi".
bool read_target(std::string_view target, Call& call) {
  constexpr std::string_view kPrefix = "lapack_", kSuffix = "_ffi";
  if (!target.starts_with(kPrefix) || !target.ends_with(kSuffix)) return false;
  target.remove_prefix(kPrefix.size());
  if (target.size() <= kSuffix.size()) return false;
  target.remove_suffix(kSuffix.size());
  switch (target[0]) {
    case 's':
      call.dtype = DType::kF32;
      break;
    case 'd':
      call.dtype = DType::kF64;
      break;
    case 'c':
      call.dtype = DType::kC64;
      break;
    case 'z':
      call.dtype = DType::kC128;
      break;
    default:
      return false;
  }
  call.type = *lapack_type(call.dtype);
  for (const RoutineName& name : kRoutines) {
    if (target.substr(1) == (is_complex(call.dtype) ? name.complex : name.real)) {
      call.routine = name.routine;
      return true;
    }
  }
  return false;
}

// XLA's own call for all eigenvalues and vectors of Hermitian matrices, whose configuration is a
// text: 1 for the lower triangle, 1 for sorted values (LAPACK's always are), two numbers of another
// algorithm. It has no info.
constexpr std::string_view kEigh = "Eigh";

bool read_eigh(const ir::Operation& op, Call& call) {
  if (op.operand_count() != 1 || op.result_count() != 2) return false;
  const ir::Type& a = op.operand(0)->type();
  const std::string config = ir::text_value(op, "backend_config");
  const std::optional<Type> type = a.is_tensor() ? lapack_type(a.dtype()) : std::nullopt;
  if (!type || (!config.starts_with("0") && !config.starts_with("1"))) return false;
  call.routine = Routine::kSyevd;
  call.dtype = a.dtype();
  call.type = *type;
  call.mode = 'V';
  call.uplo = config[0] == '1' ? 'L' : 'U';
  return true;
}

// Letters, sizes and the shapes that follow from them; false when a letter is not allowed.
bool read_letters(const ir::DictionaryValue* config, Call& call) {
  switch (call.routine) {
    case Routine::kPotrf:
    case Routine::kSytrd:
      return read_letter(config, "uplo", "LU", call.uplo);
    case Routine::kTrsm:
      return read_letter(config, "side", "LR", call.side) &&
             read_letter(config, "uplo", "LU", call.uplo) &&
             read_letter(config, "trans_x", "NTC", call.trans) &&
             read_letter(config, "diag", "NU", call.diag);
    case Routine::kOrmqr: {
      const std::optional<int64_t> left = number_of(config, "left");
      const std::optional<int64_t> transpose = number_of(config, "transpose");
      if (!left || !transpose) return false;
      call.side = *left != 0 ? 'L' : 'R';
      call.trans = *transpose == 0 ? 'N' : is_complex(call.dtype) ? 'C' : 'T';
      return true;
    }
    case Routine::kSyevd:
      return read_letter(config, "mode", "NV", call.mode) &&
             read_letter(config, "uplo", "LU", call.uplo);
    case Routine::kGesdd:
    case Routine::kGesvd:
      return read_letter(config, "mode", "ASN", call.mode);
    case Routine::kGeev:
      return read_letter(config, "compute_left", "NV", call.mode) &&
             read_letter(config, "compute_right", "NV", call.second_mode);
    case Routine::kGees: {
      char sort = 'N';
      return read_letter(config, "mode", "NV", call.mode) && read_letter(config, "sort", "N", sort);
    }
    case Routine::kGehrd: {
      const std::optional<int64_t> low = number_of(config, "low");
      const std::optional<int64_t> high = number_of(config, "high");
      if (!low || !high) return false;
      call.low = *low;
      call.high = *high;
      const int64_t least = std::min<int64_t>(1, call.n);
      return call.m == call.n && call.low >= 1 && call.low <= std::max<int64_t>(1, call.n) &&
             call.high >= std::min(call.low, call.n) && call.high >= least && call.high <= call.n;
    }
    default:
      return true;
  }
}

void set_shapes(Call& call) {
  const DType t = call.dtype, r = real_type(t), c = complex_type(t), info = DType::kI32;
  const int64_t m = call.m, n = call.n, k = call.k, count = std::min(m, n);
  const Dims matrix{m, n}, square{n, n}, none{};
  const int64_t less = std::max<int64_t>(n - 1, 0);
  auto& in = call.operands;
  auto& out = call.results;
  in = {{t, matrix}};
  switch (call.routine) {
    case Routine::kPotrf:
      out = {{t, square}, {info, none}};
      break;
    case Routine::kTrsm: {
      const int64_t size = call.side == 'L' ? m : n;
      in = {{t, {size, size}}, {t, matrix}};
      out = {{t, matrix}};
      break;
    }
    case Routine::kGetrf:
      out = {{t, matrix}, {DType::kI32, {count}}, {info, none}};
      break;
    case Routine::kGeqrf:
      out = {{t, matrix}, {t, {count}}};
      break;
    case Routine::kGeqp3:
      in = {{t, matrix}, {DType::kI32, {n}}};
      out = {{t, matrix}, {DType::kI32, {n}}, {t, {count}}};
      break;
    case Routine::kOrgqr:
      in = {{t, matrix}, {t, {k}}};
      out = {{t, matrix}};
      break;
    case Routine::kOrmqr:
      in = {{t, {call.side == 'L' ? m : n, k}}, {t, {k}}, {t, matrix}};
      out = {{t, matrix}};
      break;
    case Routine::kSyevd:
      out = {{t, square}, {r, {n}}, {info, none}};
      break;
    case Routine::kGesdd:
    case Routine::kGesvd:
      // Without vectors there is room for them that nobody uses, of either size.
      out = {{t, matrix},
             {r, {count}},
             {t, {m, call.mode == 'A' ? m : count}},
             {t, {call.mode == 'A' ? n : count, n}},
             {info, none}};
      break;
    case Routine::kGeev:
      out = {{t, {n}}, {c, square}, {c, square}, {info, none}};
      if (!is_complex(t)) out.insert(out.begin(), {t, {n}});
      break;
    case Routine::kGees:
      out = {{t, square}, {t, square}, {t, {n}}, {info, none}, {info, none}};
      if (!is_complex(t)) out.insert(out.begin() + 2, {t, {n}});
      break;
    case Routine::kGehrd:
      out = {{t, square}, {t, {less}}, {info, none}};
      break;
    case Routine::kSytrd:
      out = {{t, square}, {r, {n}}, {r, {less}}, {t, {less}}, {info, none}};
      break;
    case Routine::kGtsv:
      in = {{t, {m}}, {t, {m}}, {t, {m}}, {t, matrix}};
      out = {{t, {m}}, {t, {m}}, {t, {m}}, {t, matrix}, {info, none}};
      break;
  }
}

bool needs_square(Routine routine) {
  switch (routine) {
    case Routine::kPotrf:
    case Routine::kSyevd:
    case Routine::kGeev:
    case Routine::kGees:
    case Routine::kGehrd:
    case Routine::kSytrd:
      return true;
    default:
      return false;
  }
}

Result<Call> read_call(const ir::Operation& op) {
  const std::string target = ir::text_value(op, "call_target_name");
  Call call;
  const bool is_eigh = target == kEigh;
  if (!is_eigh && !read_target(target, call)) {
    return unimplemented("custom call target {}", target);
  }
  const auto misfit = [&](const char* what) {
    std::vector<ir::Type> operands;
    for (const ir::Value* operand : op.operands()) operands.push_back(operand->type());
    return unimplemented("custom call {} on ({}) -> ({}): {} not as clients send them", target,
                         ir::types_string(operands), ir::types_string(op.result_types()), what);
  };
  if (is_eigh && !read_eigh(op, call)) return misfit("operands, results or configuration are");
  // The operand whose last two dimensions are m and n.
  const size_t main = call.routine == Routine::kTrsm    ? 1
                      : call.routine == Routine::kOrmqr ? 2
                      : call.routine == Routine::kGtsv  ? 3
                                                        : 0;
  if (op.operand_count() <= main || !op.operand(main)->type().is_static_tensor() ||
      op.operand(main)->type().rank() < 2) {
    return misfit("operands are");
  }
  const Dims& dims = op.operand(main)->type().dims();
  call.batch_dims.assign(dims.begin(), dims.end() - 2);
  call.m = dims[dims.size() - 2];
  call.n = dims.back();
  if (call.routine == Routine::kOrgqr || call.routine == Routine::kOrmqr) {
    if (op.operand_count() < 2 || !op.operand(1)->type().is_static_tensor() ||
        op.operand(1)->type().rank() < 1) {
      return misfit("operands are");
    }
    call.k = op.operand(1)->type().dims().back();
  }
  if (!is_eigh && !read_letters(configuration(op), call)) return misfit("attributes are");
  const int64_t order = call.routine == Routine::kOrmqr ? (call.side == 'L' ? call.m : call.n)
                                                        : std::min(call.m, call.n);
  if ((needs_square(call.routine) && call.m != call.n) || call.k > order ||
      (call.routine == Routine::kOrgqr && call.n > call.m)) {
    return misfit("sizes are");
  }
  set_shapes(call);
  if (call.routine == Routine::kGesdd || call.routine == Routine::kGesvd) {
    // Unused vectors may be of the size of all.
    std::vector<Shape> all = call.results;
    all[2].dims = {call.m, call.m};
    all[3].dims = {call.n, call.n};
    if (call.mode == 'N' && op.result_count() == 5 &&
        has_shape(op.result(2)->type(), call.batch_dims, all[2]) &&
        has_shape(op.result(3)->type(), call.batch_dims, all[3])) {
      call.results = std::move(all);
    }
  }
  const size_t shown = call.results.size() - (is_eigh ? 1 : 0);
  if (op.operand_count() != call.operands.size() || op.result_count() != shown) {
    return misfit("operands or results are");
  }
  for (size_t i = 0; i < call.operands.size(); ++i) {
    if (!has_shape(op.operand(i)->type(), call.batch_dims, call.operands[i])) {
      return misfit("operands are");
    }
  }
  for (size_t i = 0; i < shown; ++i) {
    if (!has_shape(op.result(i)->type(), call.batch_dims, call.results[i])) {
      return misfit("results are");
    }
  }
  if (is_eigh) {
    call.operands[0].by_columns = call.results[0].by_columns = true;
  } else if (!read_layouts(op, "operand_layouts", call.batch_dims.size(), call.operands) ||
             !read_layouts(op, "result_layouts", call.batch_dims.size(), call.results)) {
    return misfit("layouts are");
  }
  for (const std::vector<Shape>* shapes : {&call.operands, &call.results}) {
    for (const Shape& shape : *shapes) {
      for (const int64_t size : shape.dims) {
        if (size > std::numeric_limits<int32_t>::max()) return misfit("sizes are");
      }
    }
  }
  return call;
}

// What LAPACK takes from whoever runs the operation: threads, memory, places of results.
class Runner {
 public:
  explicit Runner(const EvaluateOptions& options) : options_(options) {
    parallel_.context = const_cast<EvaluateOptions*>(&options);
    if (options.for_each) {
      parallel_.run = [](void* context, int32_t count, void (*body)(void*, int32_t), void* state) {
        static_cast<const EvaluateOptions*>(context)->for_each(
            count, [&](int64_t i) { body(state, static_cast<int32_t>(i)); });
      };
    }
    if (options.allocate) {
      parallel_.take = [](void* context, int64_t bytes, void** block) -> void* {
        std::shared_ptr<void> memory =
            static_cast<const EvaluateOptions*>(context)->allocate(bytes);
        void* const data = memory.get();
        if (data != nullptr) *block = new std::shared_ptr<void>(std::move(memory));
        return data;
      };
      parallel_.give = [](void*, void* block) {
        delete static_cast<std::shared_ptr<void>*>(block);
      };
    }
    alone_ = parallel_;
    alone_.run = nullptr;
  }

  const ForEach& for_each() const { return options_.for_each; }
  const Parallel* parallel() const { return &parallel_; }
  // One thread.
  const Parallel* alone() const { return &alone_; }

  // An array for something that ends with the operation, uninitialized.
  Result<HostArray> temporary(DType dtype, Dims dims) const {
    if (!options_.allocate) return HostArray::allocate(dtype, std::move(dims), false);
    HEKLA_ASSIGN_OR_RETURN(const int64_t bytes, checked_bytes(dtype, dims));
    std::shared_ptr<void> memory = options_.allocate(bytes);
    if (memory == nullptr) {
      return resource_exhausted("no host memory for {} ({} bytes)", shape_string(dtype, dims),
                                bytes);
    }
    return HostArray::adopt(dtype, std::move(dims), std::move(memory));
  }
  // The operation's result with this number, uninitialized.
  Result<HostArray> result(size_t index, DType dtype, Dims dims) const {
    std::byte* const memory =
        index < options_.result_memory.size() ? options_.result_memory[index] : nullptr;
    if (memory == nullptr) return HostArray::allocate(dtype, std::move(dims), false);
    return HostArray::adopt(dtype, std::move(dims), std::shared_ptr<void>(memory, [](void*) {}));
  }

 private:
  const EvaluateOptions& options_;
  Parallel parallel_{};
  Parallel alone_{};
};

void copy_bytes(const void* from, void* to, int64_t bytes, const ForEach& for_each) {
  constexpr int64_t kPiece = 64 * 1024;
  for_ranges(for_each, (bytes + kPiece - 1) / kPiece, kPiece / 8, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kPiece, last = std::min(bytes, end * kPiece);
    std::memcpy(static_cast<std::byte*>(to) + first, static_cast<const std::byte*>(from) + first,
                static_cast<size_t>(last - first));
  });
}

// Whether the real numbers of one triangle, or of all, are finite.
template <typename R>
bool all_finite(const R* values, int64_t count) {
  R sums[8] = {};  // of zeros, or NaN
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t k = 0; k < 8; ++k) sums[k] += values[i + k] * R(0);
  }
  for (; i < count; ++i) sums[0] += values[i] * R(0);
  R total = 0;
  for (const R sum : sums) total += sum;
  return total == 0;
}

bool is_finite(const Call& call, const void* a, int64_t rows, int64_t columns, char uplo) {
  const int64_t parts = is_complex(call.dtype) ? 2 : 1;
  const auto range = [&](int64_t begin, int64_t count) {
    if (real_type(call.dtype) == DType::kF32) {
      return all_finite(static_cast<const float*>(a) + begin * parts, count * parts);
    }
    return all_finite(static_cast<const double*>(a) + begin * parts, count * parts);
  };
  if (uplo == 'A') return range(0, rows * columns);
  for (int64_t j = 0; j < columns; ++j) {
    if (!(uplo == 'L' ? range(j * rows + j, rows - j) : range(j * rows, j + 1))) return false;
  }
  return true;
}

// jaxlib's info for a matrix that is not looked at further.
constexpr int32_t kNotFinite = -4;

// The arrays of one matrix of the batch, as LAPACK takes them.
struct Arrays {
  const std::vector<const std::byte*>& operands;
  const std::vector<std::byte*>& results;
};

int32_t run_one(const Call& call, const Table& lapack, const Parallel* parallel,
                const Arrays& arrays) {
  const auto& in = arrays.operands;
  const auto& out = arrays.results;
  const auto m = static_cast<int32_t>(call.m), n = static_cast<int32_t>(call.n),
             k = static_cast<int32_t>(call.k);
  const auto finite = [&](char uplo) { return is_finite(call, out[0], call.m, call.n, uplo); };
  switch (call.routine) {
    case Routine::kPotrf:
      return lapack.potrf(parallel, call.type, call.uplo, n, out[0]);
    case Routine::kTrsm:
      return lapack.trsm(parallel, call.type, call.side, call.uplo, call.trans, call.diag, m, n,
                         in[0], out[0]);
    case Routine::kGetrf:
      return lapack.getrf(parallel, call.type, m, n, out[0], reinterpret_cast<int32_t*>(out[1]));
    case Routine::kGeqrf:
      return lapack.geqrf(parallel, call.type, m, n, out[0], out[1]);
    case Routine::kGeqp3:
      return lapack.geqp3(parallel, call.type, m, n, out[0], reinterpret_cast<int32_t*>(out[1]),
                          out[2]);
    case Routine::kOrgqr:
      return lapack.orgqr(parallel, call.type, m, n, k, out[0], in[1]);
    case Routine::kOrmqr:
      return lapack.ormqr(parallel, call.type, call.side, call.trans, m, n, k, in[0], in[1],
                          out[0]);
    case Routine::kSyevd:
      if (!finite(call.uplo)) return kNotFinite;
      return lapack.syevd(parallel, call.type, call.mode, call.uplo, n, out[0], out[1]);
    case Routine::kGesdd:
    case Routine::kGesvd:
      if (!finite('A')) return kNotFinite;
      return (call.routine == Routine::kGesdd ? lapack.gesdd : lapack.gesvd)(
          parallel, call.type, call.mode, m, n, out[0], out[1], out[2], out[3]);
    case Routine::kGehrd:
      return lapack.gehrd(parallel, call.type, n, static_cast<int32_t>(call.low),
                          static_cast<int32_t>(call.high), out[0], out[1]);
    case Routine::kSytrd:
      return lapack.sytrd(parallel, call.type, call.uplo, n, out[0], out[1], out[2], out[3]);
    case Routine::kGees: {
      if (!finite('A')) return kNotFinite;
      const bool real = !is_complex(call.dtype);
      return lapack.gees(parallel, call.type, call.mode, n, out[0], out[2], real ? out[3] : nullptr,
                         out[1]);
    }
    case Routine::kGtsv: {
      // lower[0] and upper[m - 1] are outside of the matrix.
      const int64_t skipped = m > 0 ? dtype_bytes(call.dtype) : 0;
      return lapack.gtsv(call.type, m, n, out[0] + skipped, out[1], out[2], out[3]);
    }
    case Routine::kGeev:
      break;  // has no result in the place of its operand
  }
  return 0;
}

// geev destroys its operand, which is no result: a copy for each matrix.
int32_t run_geev(const Call& call, const Table& lapack, const Parallel* parallel,
                 const Arrays& arrays, const Runner& runner) {
  const auto n = static_cast<int32_t>(call.n);
  if (!is_finite(call, arrays.operands[0], n, n, 'A')) return kNotFinite;
  Result<HostArray> copy = runner.temporary(call.dtype, {call.n, call.n});
  if (!copy.ok()) return lapack::kNoMemory;
  HostArray matrix = std::move(*copy);
  std::memcpy(matrix.mutable_data(), arrays.operands[0], static_cast<size_t>(matrix.size_bytes()));
  const bool real = !is_complex(call.dtype);
  const size_t left = real ? 2 : 1;
  return lapack.geev(parallel, call.type, call.mode, call.second_mode, n, matrix.mutable_data(),
                     arrays.results[0], real ? arrays.results[1] : nullptr, arrays.results[left],
                     arrays.results[left + 1]);
}

// The operand whose memory a result begins as; -1: zeros.
int operand_of_result(const Call& call, size_t result) {
  switch (call.routine) {
    case Routine::kTrsm:
      return 1;
    case Routine::kOrmqr:
      return 2;
    case Routine::kGeev:
      return -1;
    case Routine::kGeqp3:
      return result < 2 ? static_cast<int>(result) : -1;
    case Routine::kGtsv:
      return result < 4 ? static_cast<int>(result) : -1;
    default:
      return result == 0 ? 0 : -1;
  }
}

bool has_info(Routine routine) {
  switch (routine) {
    case Routine::kTrsm:
    case Routine::kGeqrf:
    case Routine::kGeqp3:
    case Routine::kOrgqr:
    case Routine::kOrmqr:
      return false;
    default:
      return true;
  }
}

Dims with_batch(const Call& call, Dims dims, bool by_columns) {
  if (by_columns) std::swap(dims[0], dims[1]);
  dims.insert(dims.begin(), call.batch_dims.begin(), call.batch_dims.end());
  return dims;
}

bool is_square(const Shape& shape) {
  return shape.dims.size() == 2 && shape.dims[0] == shape.dims[1];
}

// `from` in rows to `to` in the memory order of `shape`.
void to_memory_order(const Call& call, const Shape& shape, const HostArray& from, HostArray& to,
                     const Runner& runner) {
  if (shape.by_columns) {
    transpose_matrices(dtype_bytes(shape.dtype), call.batch(), shape.dims[0], shape.dims[1],
                       from.data(), to.mutable_data(), runner.for_each());
  } else {
    copy_bytes(from.data(), to.mutable_data(), from.size_bytes(), runner.for_each());
  }
}

// The result with the number `index` where LAPACK computes it: where it stays, but for matrices in
// columns that no transposition in place brings into rows.
Result<HostArray> make_result(const Call& call, size_t index, const Runner& runner) {
  const Shape& shape = call.results[index];
  Dims dims = with_batch(call, shape.dims, shape.by_columns);
  if (shape.by_columns && !is_square(shape)) return runner.temporary(shape.dtype, std::move(dims));
  return runner.result(index, shape.dtype, std::move(dims));
}

Result<HostArray> finish_result(const Call& call, size_t index, HostArray array,
                                const Runner& runner) {
  const Shape& shape = call.results[index];
  if (!shape.by_columns) return array;
  const int64_t width = dtype_bytes(shape.dtype);
  if (is_square(shape)) {
    transpose_squares(width, call.batch(), shape.dims[0], array.mutable_data(), runner.for_each());
    return array;
  }
  HEKLA_ASSIGN_OR_RETURN(
      HostArray rows,
      runner.result(index, shape.dtype, with_batch(call, shape.dims, /*by_columns=*/false)));
  transpose_matrices(width, call.batch(), shape.dims[1], shape.dims[0], array.data(),
                     rows.mutable_data(), runner.for_each());
  return rows;
}

Status check_info(int32_t info, std::string_view what) {
  if (info == lapack::kNoMemory) {
    return Status(StatusCode::kResourceExhausted,
                  std::string(what) + ": no memory for LAPACK's workspace");
  }
  return Status(StatusCode::kResourceExhausted,
                std::string(what) +
                    ": the workspace is beyond LAPACK's 32-bit integers; use smaller "
                    "matrices");
}

// Whether a matrix is so large that its own work is worth splitting.
bool is_large(int64_t m, int64_t n) { return m * n >= 128 * 128; }

// Calls f(i, parallel) -> info for each matrix; the worst of kNoMemory and kTooLarge, or 0.
template <typename F>
int32_t for_matrices(int64_t batch, int64_t m, int64_t n, const Runner& runner, const F& f) {
  // With as many matrices as threads and more each thread has its own.
  constexpr int64_t kFew = 16;
  const bool splits = is_large(m, n) && batch < kFew;
  std::atomic<int32_t> error = 0;
  const double work = 200.0 + 4.0 * static_cast<double>(m * n * std::min(m, n));
  for_ranges(runner.for_each(), batch, work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int32_t info = f(i, splits ? runner.parallel() : runner.alone());
      if (info == lapack::kNoMemory || info == lapack::kTooLarge) {
        error.store(info, std::memory_order_relaxed);
      }
    }
  });
  return error.load();
}

Result<Data> run_call(const Call& call, const Data& operands, std::string_view target,
                      const EvaluateOptions& options) {
  const Table* lapack = lapack::table();
  if (lapack == nullptr) return unimplemented("{}: {}", target, lapack::why_missing());
  const Runner runner(options);
  std::vector<HostArray> in, out;
  for (size_t i = 0; i < call.operands.size(); ++i) in.push_back(operands[i].array);
  std::vector<bool> is_copied(in.size());
  for (size_t i = 0; i < call.results.size(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(HostArray array, make_result(call, i, runner));
    const int source = operand_of_result(call, i);
    if (source >= 0) {
      const auto operand = static_cast<size_t>(source);
      // As LAPACK takes it: in the order of the result.
      const Shape shape{call.operands[operand].dtype, call.operands[operand].dims,
                        call.results[i].by_columns};
      to_memory_order(call, shape, in[operand], array, runner);
      is_copied[operand] = true;
    } else if (array.size_bytes() > 0) {
      std::memset(array.mutable_data(), 0, static_cast<size_t>(array.size_bytes()));
    }
    out.push_back(std::move(array));
  }
  for (size_t i = 0; i < in.size(); ++i) {
    const Shape& shape = call.operands[i];
    if (is_copied[i] || !shape.by_columns) continue;
    HEKLA_ASSIGN_OR_RETURN(HostArray array,
                           runner.temporary(shape.dtype, with_batch(call, shape.dims, true)));
    to_memory_order(call, shape, in[i], array, runner);
    in[i] = std::move(array);
  }
  std::vector<const std::byte*> in_data;
  std::vector<std::byte*> out_data;
  for (const HostArray& array : in) in_data.push_back(array.data());
  for (HostArray& array : out) out_data.push_back(array.mutable_data());

  const int32_t error =
      for_matrices(call.batch(), call.m, call.n, runner, [&](int64_t i, const Parallel* parallel) {
        std::vector<const std::byte*> from(in_data);
        std::vector<std::byte*> to(out_data);
        for (size_t o = 0; o < from.size(); ++o) {
          if (from[o] != nullptr) from[o] += i * call.operands[o].bytes();
        }
        for (size_t r = 0; r < to.size(); ++r) to[r] += i * call.results[r].bytes();
        const Arrays arrays{from, to};
        const int32_t info = call.routine == Routine::kGeev
                                 ? run_geev(call, *lapack, parallel, arrays, runner)
                                 : run_one(call, *lapack, parallel, arrays);
        if (has_info(call.routine)) std::memcpy(to.back(), &info, sizeof(info));
        return info;
      });
  if (error != 0) return check_info(error, target);
  Data results;
  for (size_t i = 0; i < call.results.size(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(HostArray array, finish_result(call, i, std::move(out[i]), runner));
    results.emplace_back(std::move(array));
  }
  return results;
}

template <typename F>
void with_element(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(float());
    case DType::kF64:
      return f(double());
    case DType::kC64:
      return f(std::complex<float>());
    default:
      return f(std::complex<double>());
  }
}

bool is_number(DType dtype, const std::byte* at) {
  bool result = false;
  with_element(dtype, [&](auto value) {
    std::memcpy(&value, at, sizeof(value));
    result = value == value;
  });
  return result;
}

void fill_nan(DType dtype, std::byte* begin, std::byte* end) {
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    std::fill(reinterpret_cast<T*>(begin), reinterpret_cast<T*>(end),
              T(std::numeric_limits<decltype(std::real(element))>::quiet_NaN()));
  });
}

char flipped(bool lower) { return lower ? 'U' : 'L'; }

}  // namespace

bool is_lapack_call(std::string_view target) {
  if (target == kEigh) return true;
  Call call;
  return read_target(target, call);
}

bool is_lapack_type(DType dtype) { return lapack_type(dtype).has_value(); }

Status check_lapack_call(const ir::Operation& op) {
  const Result<Call> call = read_call(op);
  if (!call.ok()) return call.status();
  if (lapack::table() == nullptr) {
    return unimplemented("custom call {}: there is no LAPACK here ({})",
                         ir::text_value(op, "call_target_name"), lapack::why_missing());
  }
  return ok_status();
}

Result<Data> execute_lapack_call(const ir::Operation& op, const Data& operands,
                                 const EvaluateOptions& options) {
  HEKLA_ASSIGN_OR_RETURN(const Call call, read_call(op));
  const std::string target = ir::text_value(op, "call_target_name");
  HEKLA_ASSIGN_OR_RETURN(Data results, run_call(call, operands, target, options));
  if (target != kEigh) return results;
  // What fails is NaN.
  const int32_t* infos = results[2].array.as<int32_t>();
  for (int64_t i = 0; i < call.batch(); ++i) {
    if (infos[i] == 0) continue;
    for (size_t r = 0; r < 2; ++r) {
      std::byte* begin = results[r].array.mutable_data() + i * call.results[r].bytes();
      fill_nan(call.results[r].dtype, begin, begin + call.results[r].bytes());
    }
  }
  results.pop_back();
  return results;
}

// Rows are the columns of the transpose: a^T = conj(a) has the factors conj(l) l^T, and what is the
// lower triangle in rows is the upper one in columns.
Result<HostArray> lapack_cholesky(const HostArray& a, bool lower, const EvaluateOptions& options) {
  const Table* lapack = lapack::table();
  if (lapack == nullptr) return internal_error("cholesky: {}", lapack::why_missing());
  const Runner runner(options);
  const Type type = *lapack_type(a.dtype());
  const int64_t n = a.dims().back();
  const int64_t batch = element_count(std::span(a.dims()).first(a.dims().size() - 2));
  HEKLA_ASSIGN_OR_RETURN(HostArray result, runner.result(0, a.dtype(), a.dims()));
  std::byte* data = result.mutable_data();
  const int64_t width = dtype_bytes(a.dtype()), bytes = n * n * width;
  // One triangle of it, zeros in the other.
  for_ranges(runner.for_each(), batch * n, static_cast<double>(n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::byte* to = data + i * n * width;
      const int64_t row = i % n, first = lower ? 0 : row, last = lower ? row + 1 : n;
      std::memset(to, 0, static_cast<size_t>(first * width));
      std::memcpy(to + first * width, a.data() + (i * n + first) * width,
                  static_cast<size_t>((last - first) * width));
      std::memset(to + last * width, 0, static_cast<size_t>((n - last) * width));
    }
  });
  const int32_t error = for_matrices(batch, n, n, runner, [&](int64_t i, const Parallel* parallel) {
    std::byte* matrix = data + i * bytes;
    const int32_t info =
        lapack->potrf(parallel, type, flipped(lower), static_cast<int32_t>(n), matrix);
    // A pivot that is no number, of which LAPACK does not tell, makes all later ones so.
    if (info == 0 && (n == 0 || is_number(a.dtype(), matrix + (n * n - 1) * width))) return info;
    for (int64_t row = 0; row < n; ++row) {
      std::byte* begin = matrix + row * n * width;
      std::byte* diagonal = begin + row * width;
      if (lower) {
        fill_nan(a.dtype(), begin, diagonal + width);
      } else {
        fill_nan(a.dtype(), diagonal, begin + n * width);
      }
    }
    return info;
  });
  if (error != 0) return check_info(error, "cholesky");
  return result;
}

// op(a) x = b in rows is x^T op(a)^T = b^T in columns, where a is a^T already: the other side, the
// other triangle, the same op.
Result<HostArray> lapack_triangular_solve(const HostArray& a, const HostArray& b,
                                          const TriangularSolveConfig& config,
                                          const EvaluateOptions& options) {
  const Table* lapack = lapack::table();
  if (lapack == nullptr) return internal_error("triangular_solve: {}", lapack::why_missing());
  const Runner runner(options);
  const Type type = *lapack_type(a.dtype());
  const int64_t rank = a.rank(), n = a.dims().back();
  const int64_t rows = b.dims()[rank - 2], columns = b.dims()[rank - 1];
  const int64_t batch = element_count(std::span(a.dims()).first(a.dims().size() - 2));
  HEKLA_ASSIGN_OR_RETURN(HostArray result, runner.result(0, b.dtype(), b.dims()));
  std::byte* data = result.mutable_data();
  copy_bytes(b.data(), data, b.size_bytes(), runner.for_each());
  const int64_t width = dtype_bytes(a.dtype());
  const char trans = config.transpose_a == Transpose::kNoTranspose ? 'N'
                     : config.transpose_a == Transpose::kTranspose ? 'T'
                                                                   : 'C';
  const int32_t error =
      for_matrices(batch, rows, columns, runner, [&](int64_t i, const Parallel* parallel) {
        return lapack->trsm(parallel, type, config.left_side ? 'R' : 'L', flipped(config.lower),
                            trans, config.unit_diagonal ? 'U' : 'N', static_cast<int32_t>(columns),
                            static_cast<int32_t>(rows), a.data() + i * n * n * width,
                            data + i * rows * columns * width);
      });
  if (error != 0) return check_info(error, "triangular_solve");
  return result;
}

}  // namespace hekla::reference
