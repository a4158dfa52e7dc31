// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/fusion_cost.h"

#include <algorithm>

#include "runtime/program/ir/op_attributes.h"

namespace hekla::plan {

using ir::OpCode;
using lower::Role;

namespace {

// A reshape that cuts a slice for a product into parts (split_contractions.cc), with which it is
// one change of place.
bool is_cut_operand(const ir::Operation& op) {
  const auto& users = op.result()->users();
  const ir::Operation* from =
      op.code() == OpCode::kReshape ? op.operand(0)->defining_op() : nullptr;
  return from != nullptr && from->code() == OpCode::kSlice && users.size() == 1 &&
         (users[0]->code() == OpCode::kDotGeneral || users[0]->code() == OpCode::kConvolution);
}

}  // namespace

double cost_of(const ir::Operation& op, Role role) {
  switch (role) {
    case Role::kConstant:
      return 0;
    case Role::kMovement:
      if (op.code() == OpCode::kBroadcast || op.code() == OpCode::kBroadcastInDim) return 0.1;
      if (is_cut_operand(op)) return 0.1;
      return op.code() == OpCode::kGather || op.code() == OpCode::kConcatenate ? 4 : 0.5;
    case Role::kReduction:
    case Role::kSequence:
      return 1000;
    case Role::kElementwise:
    case Role::kNone:
      break;
  }
  switch (op.code()) {
    case OpCode::kAtan2:
    case OpCode::kCbrt:
    case OpCode::kCosine:
    case OpCode::kExponential:
    case OpCode::kExponentialMinusOne:
    case OpCode::kLog:
    case OpCode::kLogPlusOne:
    case OpCode::kLogistic:
    case OpCode::kPower:
    case OpCode::kRemainder:
    case OpCode::kRsqrt:
    case OpCode::kSine:
    case OpCode::kTan:
    case OpCode::kTanh:
      return 20;
    case OpCode::kDivide:
    case OpCode::kSqrt:
      return 5;
    default:
      return 1;
  }
}

double repeats_of(const ir::Operation& user, Role role, const ir::Value& value) {
  const double in = static_cast<double>(element_count(value.type().dims()));
  const double out = static_cast<double>(element_count(user.result()->type().dims()));
  if (in <= 1) return 1;  // the same for all points: computed once a thread, not once a point
  switch (user.code()) {
    case OpCode::kBroadcast:
    case OpCode::kBroadcastInDim:
    case OpCode::kGather:
      return std::max(1.0, out / in);
    case OpCode::kDotGeneral: {
      const auto& lhs = user.operand(0)->type().dims();
      const auto* n = user.attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>();
      double depth = 1;
      for (int64_t d : n->lhs_contracting_dimensions) {
        depth *= static_cast<double>(lhs[static_cast<size_t>(d)]);
      }
      return std::max(1.0, out * depth / in);
    }
    case OpCode::kConvolution:
      return 1e3;
    case OpCode::kScatter: {
      // Every element of the result looks through all updates.
      if (&value == user.operand(0)) return 1;
      // In order: updates once, indices once for every part of a window.
      if (role == Role::kSequence) return &value == user.operand(user.result_count()) ? 4 : 1;
      return lower::scatter_updates(user) == 1 ? std::max(1.0, out / in) : 1e3;
    }
    case OpCode::kSelectAndScatter:
    case OpCode::kReduceWindow: {
      double window = 1;
      for (int64_t w : ir::int_list(user, "window_dimensions")) window *= static_cast<double>(w);
      return std::max(1.0, out * window / in);
    }
    default:
      return 1;
  }
}

bool is_strided_transpose(const ir::Operation& op) {
  if (op.code() != OpCode::kTranspose) return false;
  const Dims& dims = op.result()->type().dims();
  const std::vector<int64_t> permutation = ir::int_list(op, "permutation");
  // The last dimension that has a size, on either side.
  size_t last = dims.size();
  while (last > 0 && dims[last - 1] == 1) --last;
  if (last == 0) return false;
  const auto from = static_cast<size_t>(permutation[last - 1]);
  for (size_t d = 0; d < dims.size(); ++d) {
    if (static_cast<size_t>(permutation[d]) > from && dims[d] != 1) return true;
  }
  return false;
}

bool keeps_elements(const ir::Operation& user, Role role, const ir::Value& value) {
  if (role == Role::kElementwise) {
    return value.type().dims() == user.result()->type().dims();
  }
  return lower::keeps_row_major_order(user);
}

}  // namespace hekla::plan
