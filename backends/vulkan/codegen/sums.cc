// SPDX-License-Identifier: Apache-2.0
// Sums of products that a team owns (kernel::SumsAccess) on matrix units: each subgroup has the
// matrices of rows of its own, in registers.
#include "backends/vulkan/codegen/generator.h"

namespace hekla::vulkan::codegen {

using kernel::Op;
using kernel::SumsAccess;

namespace {

MatrixShape shape_of(const Target& target, const SumsAccess& access) {
  const MatrixShape* shape = matrix_shape(target, access.is_bf16 ? DType::kBF16 : DType::kF16);
  return shape == nullptr ? MatrixShape() : *shape;
}

}  // namespace

void Generator::begin_sums() { subgroup_ = entry_.built_in(spv::BuiltInSubgroupId, "subgroup", 1); }

std::vector<spv::Id>& Generator::sums_of(const SumsAccess& access, const MatrixShape& shape) {
  std::vector<spv::Id>& sums = sums_[access.number];
  const uint32_t subgroups = schedule_.workgroup_size / target_.subgroup_size;
  const uint32_t count = access.rows / (subgroups * shape.rows) * (access.columns / shape.columns);
  const spv::Id type = matrix_types_.type(shape, kAccumulator);
  while (sums.size() < count) {
    sums.push_back(b_.createVariable(spv::NoPrecision, spv::StorageClassFunction, type, "sums"));
  }
  return sums;
}

// A matrix from `place` on, whose rows or columns are `pitch` words apart.
spv::Id Generator::load_sums(const SumsAccess&, uint32_t array, Bits place, spv::Id type,
                             uint32_t order, uint32_t pitch) {
  return m_.raw_op(kOpCooperativeMatrixLoad, type,
                   {{team_unit(team_memories_.at(array), place)},
                    {m_.uint_constant(32, order)},
                    {m_.uint_constant(32, pitch / 4)},
                    Module::literal(kShared)});
}

void Generator::emit_sums(const kernel::Instruction& inst) {
  const SumsAccess a = kernel::unpack_sums(inst.immediate);
  const MatrixShape shape = shape_of(target_, a);
  const std::vector<spv::Id>& sums = sums_of(a, shape);
  const spv::Id type = matrix_types_.type(shape, kAccumulator);
  const uint32_t across = a.columns / shape.columns;
  const auto down = static_cast<uint32_t>(sums.size()) / across;
  const auto load = [&](spv::Id sum) { return b_.createLoad(sum, spv::NoPrecision); };
  const auto place = [&](size_t argument) { return integer(inst.arguments[argument]); };
  // The first row of this subgroup's matrices in a block of rows.
  const Bits first_row = subgroup_ * uint64_t{down * shape.rows};
  const auto row_place = [&](uint32_t i, uint32_t pitch) {
    return place(0) + (first_row + uint64_t{i * shape.rows}) * uint64_t{pitch};
  };
  switch (inst.op) {
    case Op::kSumsClear: {
      const spv::Id none = matrix_types_.no_sums(shape);
      for (const spv::Id sum : sums) b_.createStore(none, sum);
      return;
    }
    case Op::kSumsMultiply: {
      meet({{a.left, Op::kTeamLoad}, {a.right, Op::kTeamLoad}});
      const spv::Id left_type = matrix_types_.type(shape, kMatrixA);
      const spv::Id right_type = matrix_types_.type(shape, kMatrixB);
      for (uint32_t depth = 0; depth < a.depth; depth += shape.depth) {
        std::vector<spv::Id> left;
        for (uint32_t i = 0; i < down; ++i) {
          left.push_back(load_sums(a, a.left, row_place(i, a.left_pitch) + uint64_t{depth / 2},
                                   left_type, kRowMajor, a.left_pitch));
        }
        for (uint32_t j = 0; j < across; ++j) {
          const uint32_t column = j * shape.columns;
          const uint64_t from = a.is_by_column ? column * a.right_pitch + depth / 2
                                               : depth * a.right_pitch + column / 2;
          const spv::Id right = load_sums(a, a.right, place(1) + from, right_type,
                                          a.is_by_column ? kColumnMajor : kRowMajor, a.right_pitch);
          for (uint32_t i = 0; i < down; ++i) {
            const spv::Id sum = sums[i * across + j];
            b_.createStore(
                m_.raw_op(kOpCooperativeMatrixMulAdd, type, {{left[i]}, {right}, {load(sum)}}),
                sum);
          }
        }
      }
      return;
    }
    case Op::kSumsScale:
      meet({{a.left, Op::kTeamLoad}});
      for (uint32_t i = 0; i < down; ++i) {
        // Columns that all lie at the same place: each row has one number.
        const spv::Id factors =
            load_sums(a, a.left, row_place(i, 1), type, kColumnMajor, /*pitch=*/0);
        for (uint32_t j = 0; j < across; ++j) {
          const spv::Id sum = sums[i * across + j];
          b_.createStore(m_.op(spv::OpFMul, type, {load(sum), factors}), sum);
        }
      }
      return;
    default:
      meet({{a.left, Op::kSumsStore}});
      for (uint32_t i = 0; i < down; ++i) {
        for (uint32_t column = 0; column < a.depth; column += shape.columns) {
          const spv::Id sum = sums[i * across + (a.first + column) / shape.columns];
          m_.raw_op(kOpCooperativeMatrixStore, 0,
                    {{team_unit(team_memories_.at(a.left),
                                row_place(i, a.left_pitch) + uint64_t{column})},
                     {load(sum)},
                     {m_.uint_constant(32, kRowMajor)},
                     {m_.uint_constant(32, a.left_pitch / 4)},
                     Module::literal(kShared)});
        }
      }
  }
}

}  // namespace hekla::vulkan::codegen
