// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/lapack_call.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/program/ir/op_attributes.h"

namespace hekla::reference {
namespace {

using lapack::Type;

struct RoutineName {
  std::string_view real, complex;
  LapackRoutine routine;
};

constexpr RoutineName kRoutines[] = {
    {"potrf", "potrf", LapackRoutine::kPotrf}, {"trsm", "trsm", LapackRoutine::kTrsm},
    {"getrf", "getrf", LapackRoutine::kGetrf}, {"geqrf", "geqrf", LapackRoutine::kGeqrf},
    {"geqp3", "geqp3", LapackRoutine::kGeqp3}, {"orgqr", "ungqr", LapackRoutine::kOrgqr},
    {"ormqr", "unmqr", LapackRoutine::kOrmqr}, {"syevd", "heevd", LapackRoutine::kSyevd},
    {"gesdd", "gesdd", LapackRoutine::kGesdd}, {"gesvd", "gesvd", LapackRoutine::kGesvd},
    {"geev", "geev", LapackRoutine::kGeev},    {"gees", "gees", LapackRoutine::kGees},
    {"gehrd", "gehrd", LapackRoutine::kGehrd}, {"sytrd", "hetrd", LapackRoutine::kSytrd},
    {"gtsv", "gtsv", LapackRoutine::kGtsv},
};

DType complex_type(DType dtype) {
  if (dtype == DType::kF32) return DType::kC64;
  return dtype == DType::kF64 ? DType::kC128 : dtype;
}

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
                  std::vector<LapackArray>& shapes) {
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

bool has_shape(const ir::Type& type, const Dims& batch, const LapackArray& shape) {
  Dims dims = batch;
  dims.insert(dims.end(), shape.dims.begin(), shape.dims.end());
  return type.is_static_tensor() && type.dtype() == shape.dtype && type.dims() == dims;
}

// XLA's Eigh: its configuration is a text, "1" for the lower triangle, "1" for sorted values
// (LAPACK's always are), two numbers of another algorithm.
bool read_eigh(const ir::Operation& op, LapackCall& call) {
  if (op.operand_count() != 1 || op.result_count() != 2) return false;
  const ir::Type& a = op.operand(0)->type();
  const std::string config = ir::text_value(op, "backend_config");
  const std::optional<Type> type = a.is_tensor() ? lapack_type(a.dtype()) : std::nullopt;
  if (!type || (!config.starts_with("0") && !config.starts_with("1"))) return false;
  call.routine = LapackRoutine::kSyevd;
  call.dtype = a.dtype();
  call.type = *type;
  call.mode = 'V';
  call.uplo = config[0] == '1' ? 'L' : 'U';
  return true;
}

// Letters, sizes and the shapes that follow from them; false when a letter is not allowed.
bool read_letters(const ir::DictionaryValue* config, LapackCall& call) {
  switch (call.routine) {
    case LapackRoutine::kPotrf:
    case LapackRoutine::kSytrd:
      return read_letter(config, "uplo", "LU", call.uplo);
    case LapackRoutine::kTrsm:
      return read_letter(config, "side", "LR", call.side) &&
             read_letter(config, "uplo", "LU", call.uplo) &&
             read_letter(config, "trans_x", "NTC", call.trans) &&
             read_letter(config, "diag", "NU", call.diag);
    case LapackRoutine::kOrmqr: {
      const std::optional<int64_t> left = number_of(config, "left");
      const std::optional<int64_t> transpose = number_of(config, "transpose");
      if (!left || !transpose) return false;
      call.side = *left != 0 ? 'L' : 'R';
      call.trans = *transpose == 0 ? 'N' : is_complex(call.dtype) ? 'C' : 'T';
      return true;
    }
    case LapackRoutine::kSyevd:
      return read_letter(config, "mode", "NV", call.mode) &&
             read_letter(config, "uplo", "LU", call.uplo);
    case LapackRoutine::kGesdd:
    case LapackRoutine::kGesvd:
      return read_letter(config, "mode", "ASN", call.mode);
    case LapackRoutine::kGeev:
      return read_letter(config, "compute_left", "NV", call.mode) &&
             read_letter(config, "compute_right", "NV", call.second_mode);
    case LapackRoutine::kGees: {
      char sort = 'N';
      return read_letter(config, "mode", "NV", call.mode) && read_letter(config, "sort", "N", sort);
    }
    case LapackRoutine::kGehrd: {
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

void set_shapes(LapackCall& call) {
  const DType t = call.dtype, r = real_type(t), c = complex_type(t), info = DType::kI32;
  const int64_t m = call.m, n = call.n, k = call.k, count = std::min(m, n);
  const Dims matrix{m, n}, square{n, n}, none{};
  const int64_t less = std::max<int64_t>(n - 1, 0);
  auto& in = call.operands;
  auto& out = call.results;
  in = {{t, matrix}};
  switch (call.routine) {
    case LapackRoutine::kPotrf:
      out = {{t, square}, {info, none}};
      break;
    case LapackRoutine::kTrsm: {
      const int64_t size = call.side == 'L' ? m : n;
      in = {{t, {size, size}}, {t, matrix}};
      out = {{t, matrix}};
      break;
    }
    case LapackRoutine::kGetrf:
      out = {{t, matrix}, {DType::kI32, {count}}, {info, none}};
      if (call.has_permutation) out.insert(out.begin() + 2, {DType::kI32, {m}});
      break;
    case LapackRoutine::kGeqrf:
      out = {{t, matrix}, {t, {count}}};
      break;
    case LapackRoutine::kGeqp3:
      in = {{t, matrix}, {DType::kI32, {n}}};
      out = {{t, matrix}, {DType::kI32, {n}}, {t, {count}}};
      break;
    case LapackRoutine::kOrgqr:
      in = {{t, matrix}, {t, {k}}};
      out = {{t, matrix}};
      break;
    case LapackRoutine::kOrmqr:
      in = {{t, {call.side == 'L' ? m : n, k}}, {t, {k}}, {t, matrix}};
      out = {{t, matrix}};
      break;
    case LapackRoutine::kSyevd:
      out = {{t, square}, {r, {n}}, {info, none}};
      break;
    case LapackRoutine::kGesdd:
    case LapackRoutine::kGesvd:
      // Without vectors there is room for them that nobody uses, of either size.
      out = {{t, matrix},
             {r, {count}},
             {t, {m, call.mode == 'A' ? m : count}},
             {t, {call.mode == 'A' ? n : count, n}},
             {info, none}};
      break;
    case LapackRoutine::kGeev:
      out = {{t, {n}}, {c, square}, {c, square}, {info, none}};
      if (!is_complex(t)) out.insert(out.begin(), {t, {n}});
      break;
    case LapackRoutine::kGees:
      out = {{t, square}, {t, square}, {t, {n}}, {info, none}, {info, none}};
      if (!is_complex(t)) out.insert(out.begin() + 2, {t, {n}});
      break;
    case LapackRoutine::kGehrd:
      out = {{t, square}, {t, {less}}, {info, none}};
      break;
    case LapackRoutine::kSytrd:
      out = {{t, square}, {r, {n}}, {r, {less}}, {t, {less}}, {info, none}};
      break;
    case LapackRoutine::kGtsv:
      in = {{t, {m}}, {t, {m}}, {t, {m}}, {t, matrix}};
      out = {{t, {m}}, {t, {m}}, {t, {m}}, {t, matrix}, {info, none}};
      break;
  }
}

bool needs_square(LapackRoutine routine) {
  switch (routine) {
    case LapackRoutine::kPotrf:
    case LapackRoutine::kSyevd:
    case LapackRoutine::kGeev:
    case LapackRoutine::kGees:
    case LapackRoutine::kGehrd:
    case LapackRoutine::kSytrd:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::optional<lapack::Type> lapack_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return lapack::Type::kF32;
    case DType::kF64:
      return lapack::Type::kF64;
    case DType::kC64:
      return lapack::Type::kC64;
    case DType::kC128:
      return lapack::Type::kC128;
    default:
      return std::nullopt;
  }
}

DType real_type(DType dtype) {
  if (dtype == DType::kC64) return DType::kF32;
  return dtype == DType::kC128 ? DType::kF64 : dtype;
}

bool read_target(std::string_view target, LapackCall& call) {
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

Result<LapackCall> read_call(const ir::Operation& op) {
  const std::string target = ir::text_value(op, "call_target_name");
  LapackCall call;
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
  const size_t main = call.routine == LapackRoutine::kTrsm    ? 1
                      : call.routine == LapackRoutine::kOrmqr ? 2
                      : call.routine == LapackRoutine::kGtsv  ? 3
                                                              : 0;
  if (op.operand_count() <= main || !op.operand(main)->type().is_static_tensor() ||
      op.operand(main)->type().rank() < 2) {
    return misfit("operands are");
  }
  const Dims& dims = op.operand(main)->type().dims();
  call.batch_dims.assign(dims.begin(), dims.end() - 2);
  call.m = dims[dims.size() - 2];
  call.n = dims.back();
  if (call.routine == LapackRoutine::kOrgqr || call.routine == LapackRoutine::kOrmqr) {
    if (op.operand_count() < 2 || !op.operand(1)->type().is_static_tensor() ||
        op.operand(1)->type().rank() < 1) {
      return misfit("operands are");
    }
    call.k = op.operand(1)->type().dims().back();
  }
  if (!is_eigh && !read_letters(configuration(op), call)) return misfit("attributes are");
  const int64_t order = call.routine == LapackRoutine::kOrmqr ? (call.side == 'L' ? call.m : call.n)
                                                              : std::min(call.m, call.n);
  if ((needs_square(call.routine) && call.m != call.n) || call.k > order ||
      (call.routine == LapackRoutine::kOrgqr && call.n > call.m)) {
    return misfit("sizes are");
  }
  call.has_permutation = call.routine == LapackRoutine::kGetrf && op.result_count() == 4;
  set_shapes(call);
  if (call.routine == LapackRoutine::kGesdd || call.routine == LapackRoutine::kGesvd) {
    // Unused vectors may be of the size of all.
    std::vector<LapackArray> all = call.results;
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
  for (const std::vector<LapackArray>* shapes : {&call.operands, &call.results}) {
    for (const LapackArray& shape : *shapes) {
      for (const int64_t size : shape.dims) {
        if (size > std::numeric_limits<int32_t>::max()) return misfit("sizes are");
      }
    }
  }
  return call;
}

}  // namespace hekla::reference
