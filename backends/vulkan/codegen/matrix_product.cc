// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/matrix_product.h"

#include <fmt/format.h>

#include <bit>
#include <map>
#include <utility>

#include "backends/vulkan/codegen/bits.h"
#include "backends/vulkan/codegen/cooperative.h"
#include "backends/vulkan/codegen/counted_loop.h"
#include "backends/vulkan/codegen/entry.h"
#include "backends/vulkan/codegen/matrix_elements.h"
#include "backends/vulkan/codegen/matrix_layout.h"

namespace hekla::vulkan {
namespace codegen {
namespace {

using kernel::Contraction;

// Operands of a multiply-add whose components are signed: A, B, C and the result.
constexpr uint32_t kSignedOperands = 1 | 2;
constexpr uint32_t kSignedSums = 4 | 8;

// Tiles that follow each other share rows of the right operand and so many rows of tiles.
constexpr int64_t kTileBand = 8;

class ProductGenerator {
 public:
  ProductGenerator(const MatrixLayout& layout, const Target& target)
      : l_(layout),
        c_(layout.contraction),
        target_(target),
        m_(target),
        b_(m_.builder()),
        entry_(m_),
        types_(m_) {}

  Shader run();

 private:
  // ---- types and memory

  void declare();
  spv::Id unit_type() { return m_.vector_type(m_.uint_type(32), static_cast<int>(l_.unit_words)); }
  spv::Id matrix_type(MatrixUse use) { return types_.type(l_.shape, use); }
  // A pointer to elements of `bytes` each, at a device address; `words` of them in a vector.
  struct Element {
    uint32_t bytes = 4;
    uint32_t count = 1;
    auto operator<=>(const Element&) const = default;
  };
  spv::Id element_type(const Element& element);
  spv::Id block_pointer(const Element& element);
  struct Buffer {
    spv::Id address = 0;  // u64
    int64_t bytes = 0;
    int width = 32;  // of indices
    std::map<Element, spv::Id> pointers;
  };
  spv::Id pointer(Buffer& buffer, const Element& element, Bits index);
  spv::Id load(Buffer& buffer, const Element& element, Bits index) {
    return b_.createLoad(pointer(buffer, element, index), spv::NoPrecision,
                         spv::MemoryAccessAlignedMask, spv::ScopeMax,
                         element.bytes * element.count);
  }
  spv::Id shared_unit(Bits unit) {
    return m_.op(spv::OpAccessChain, b_.makePointer(spv::StorageClassWorkgroup, unit_type()),
                 {shared_, unit.id()});
  }
  void barrier();
  void execution_barrier();
  Bits number(uint64_t value) { return Bits::constant(m_, 32, value); }
  Bits zero() { return number(0); }

  // ---- places

  static Bits divide(Bits& number, uint64_t by);
  // The index along each axis of element `flat` of all of them.
  static std::vector<Bits> indices(const MatrixAxes& axes, Bits flat);
  // Where an operand's element is, and whether it is there: outside of windows there are zeros.
  struct Place {
    Bits element;              // of the operand, of its width; id 0: 0
    std::vector<Bits> window;  // by window: the place along the input, without the other half
    Flag inside;               // id 0: it is
  };
  void add(Bits& sum, Bits index, int64_t stride, int width);
  void step(Place& place, const MatrixAxes& axes, const std::vector<Bits>& at, bool is_lhs,
            bool is_row);
  void finish(Place& place, bool is_lhs);
  Place place(bool is_lhs, Bits across, Bits depth);
  static void both(Flag& flag, Flag more) { flag = flag.id == 0 ? more : flag & more; }

  // ---- the steps of a tile

  void emit_tile(Bits group);
  struct Slot {
    Bits line, unit;  // within the tile
    Flag inside;      // id 0: there is one for every invocation
  };
  std::vector<Slot> slots(const MatrixSide& side);
  // What an operand has for one slot: MatrixLayout::operand_units of them.
  using Units = std::vector<spv::Id>;
  std::vector<Units> load_side(const MatrixSide& side, Bits first_depth);
  Units load_unit(const MatrixSide& side, const Slot& slot, Bits first_depth);
  Units load_elements(const MatrixSide& side, const Slot& slot, Bits first_depth);
  Units in_pieces(const Units& operand);
  void store_side(const MatrixSide& side, const std::vector<Units>& units, Bits stage);
  std::vector<Units> load_all(Bits first_depth);
  void store_all(const std::vector<Units>& units, Bits stage);
  void multiply(Bits stage);
  void multiply_add(spv::Id left, spv::Id right, spv::Id sum);
  spv::Id load_matrix(const MatrixSide& side, uint32_t piece, Bits stage, Bits first,
                      uint32_t depth);
  void store_sums();
  void store_strip(uint32_t strip);

  Buffer& buffer(bool is_lhs) { return is_lhs ? lhs_ : rhs_; }
  int64_t across_count(bool is_lhs) const { return is_lhs ? l_.row_count : l_.column_count; }
  uint32_t matrices_down() const { return l_.tile.subgroup_rows / l_.shape.rows; }
  uint32_t matrices_across() const { return l_.tile.subgroup_columns / l_.shape.columns; }

  const MatrixLayout& l_;
  const Contraction& c_;
  const Target& target_;
  Module m_;
  spv::Builder& b_;
  Entry entry_;
  MatrixTypes types_;
  spv::Id shared_ = 0;
  std::map<Element, spv::Id> block_pointers_;
  Buffer lhs_, rhs_, out_;
  std::vector<spv::Id> sums_;   // variables, row by row
  std::vector<spv::Id> rests_;  // of what is not the product of first pieces
  // Of this invocation.
  Bits local_, lane_, subgroup_row_, subgroup_column_, subgroup_;
  std::vector<Bits> batch_;  // index along each axis
  Bits first_row_, first_column_;
};

void ProductGenerator::declare() {
  types_.declare();
  const spv::Id address = m_.uint_type(64);
  entry_.begin(l_.workgroup_size, {address, address, address});
  const spv::Id units =
      b_.makeArrayType(unit_type(), b_.makeUintConstant(l_.shared_units), /*stride=*/0);
  shared_ = b_.createVariable(spv::NoPrecision, spv::StorageClassWorkgroup, units, "tiles");
  entry_.add(shared_);
  const auto describe = [&](Buffer& buffer, int64_t elements, DType dtype) {
    buffer.bytes = elements * dtype_bytes(dtype);
    buffer.width = buffer.bytes > target_.max_narrow_bytes ? 64 : 32;
  };
  describe(lhs_, c_.lhs_elements, c_.lhs_dtype);
  describe(rhs_, c_.rhs_elements, c_.rhs_dtype);
  describe(out_, c_.out_elements, c_.out_dtype);
}

spv::Id ProductGenerator::element_type(const Element& element) {
  const spv::Id one = m_.uint_type(static_cast<int>(element.bytes * 8));
  return element.count == 1 ? one : m_.vector_type(one, static_cast<int>(element.count));
}

spv::Id ProductGenerator::block_pointer(const Element& element) {
  spv::Id& type = block_pointers_[element];
  if (type != 0) return type;
  if (element.bytes == 1) {
    b_.addCapability(spv::CapabilityStorageBuffer8BitAccess);
    m_.require("storageBuffer8BitAccess");
  } else if (element.bytes == 2) {
    b_.addCapability(spv::CapabilityStorageBuffer16BitAccess);
    m_.require("storageBuffer16BitAccess");
  }
  const spv::Id array = b_.makeRuntimeArray(element_type(element));
  b_.addDecoration(array, spv::DecorationArrayStride,
                   static_cast<int>(element.bytes * element.count));
  const spv::Id block = b_.makeStructType({array}, "Buffer");
  b_.addDecoration(block, spv::DecorationBlock);
  b_.addMemberDecoration(block, 0, spv::DecorationOffset, 0);
  if (element.bytes == 4) {
    type = b_.makePointer(spv::StorageClassPhysicalStorageBuffer, block);
  } else {
    // See Memory::block_pointer_type.
    type = b_.makeForwardPointer(spv::StorageClassPhysicalStorageBuffer);
    b_.makePointerFromForwardPointer(spv::StorageClassPhysicalStorageBuffer, type, block);
  }
  return type;
}

spv::Id ProductGenerator::pointer(Buffer& buffer, const Element& element, Bits index) {
  const spv::Id type =
      b_.makePointer(spv::StorageClassPhysicalStorageBuffer, element_type(element));
  if (buffer.width == 32) {
    return m_.op(spv::OpAccessChain, type, {buffer.pointers.at(element), zero().id(), index.id()});
  }
  const Bits address = Bits(&m_, 64, buffer.address) +
                       index.resized(64) * uint64_t{element.bytes} * uint64_t{element.count};
  const spv::Id moved = m_.op(spv::OpConvertUToPtr, block_pointer(element), {address.id()});
  return m_.op(spv::OpAccessChain, type, {moved, zero().id(), zero().id()});
}

void ProductGenerator::barrier() {
  b_.createControlBarrier(spv::ScopeWorkgroup, spv::ScopeWorkgroup, kSharedSemantics);
}

// For writes after reads, where the device allows it: whole barriers cost a twentieth of a product
// on NVIDIA's Hopper.
void ProductGenerator::execution_barrier() {
  if (!m_.target().execution_barriers_suffice) return barrier();
  b_.createControlBarrier(spv::ScopeWorkgroup, spv::ScopeWorkgroup, spv::MemorySemanticsMaskNone);
}

Bits ProductGenerator::divide(Bits& number, uint64_t by) {
  if (by == 1) return std::exchange(number, number.like(0));
  const Bits quotient = number / by;
  number = number - quotient * by;
  return quotient;
}

std::vector<Bits> ProductGenerator::indices(const MatrixAxes& axes, Bits flat) {
  std::vector<Bits> at(axes.size());
  for (size_t d = axes.size(); d-- > 0;) {
    Bits rest = flat;
    if (d > 0) {
      flat = divide(rest, static_cast<uint64_t>(axes[d].size));
    }
    at[d] = rest;
  }
  return at;
}

void ProductGenerator::add(Bits& sum, Bits index, int64_t stride, int width) {
  if (stride == 0) return;
  // Strides may be negative; sums wrap, and are no element's number before they are complete.
  const Bits term =
      stride == 1 ? index.resized(width) : index.resized(width) * static_cast<uint64_t>(stride);
  sum = sum.id() == 0 ? term : sum + term;
}

void ProductGenerator::step(Place& place, const MatrixAxes& axes, const std::vector<Bits>& at,
                            bool is_lhs, bool is_row) {
  const int width = buffer(is_lhs).width;
  if (is_lhs) place.window.resize(c_.windows.size());
  for (size_t d = 0; d < axes.size(); ++d) {
    add(place.element, at[d], is_lhs ? axes[d].lhs : axes[d].rhs, width);
    if (!is_lhs || axes[d].window < 0) continue;
    const auto w = static_cast<size_t>(axes[d].window);
    const Contraction::Window& window = c_.windows[w];
    add(place.window[w], at[d], is_row ? window.stride : window.dilation, 32);
  }
}

// Places along windows become elements.
void ProductGenerator::finish(Place& place, bool is_lhs) {
  const int width = buffer(is_lhs).width;
  const int64_t offset = is_lhs ? c_.lhs_offset : c_.rhs_offset;
  if (place.element.id() == 0) place.element = Bits::constant(m_, width, 0);
  if (offset != 0) place.element = place.element + static_cast<uint64_t>(offset);
  for (size_t w = 0; w < place.window.size(); ++w) {
    const Contraction::Window& window = c_.windows[w];
    Bits at = place.window[w].id() == 0 ? zero() : place.window[w];
    if (window.low != 0) at = at - static_cast<uint64_t>(window.low);
    const int64_t extent = (window.extent - 1) * window.base_dilation + 1;
    both(place.inside, at < static_cast<uint64_t>(extent));
    if (window.base_dilation > 1) {
      Bits rest = at;
      at = divide(rest, static_cast<uint64_t>(window.base_dilation));
      both(place.inside, rest == 0);
    }
    add(place.element, at, window.lhs, width);
  }
  if (place.inside.id != 0) place.element = select(place.inside, place.element, 0);
}

ProductGenerator::Place ProductGenerator::place(bool is_lhs, Bits across, Bits depth) {
  Place place;
  const MatrixAxes& axes = is_lhs ? l_.rows : l_.columns;
  step(place, l_.batch, batch_, is_lhs, true);
  step(place, axes, indices(axes, across), is_lhs, true);
  if (l_.depth_count % l_.tile.depth != 0) {
    place.inside = depth < static_cast<uint64_t>(l_.depth_count);
  }
  step(place, l_.depth, indices(l_.depth, depth), is_lhs, false);
  finish(place, is_lhs);
  return place;
}

std::vector<ProductGenerator::Slot> ProductGenerator::slots(const MatrixSide& side) {
  const uint32_t all = side.lines * side.line_units;
  std::vector<Slot> slots;
  for (uint32_t first = 0; first < all; first += l_.workgroup_size) {
    Slot slot;
    Bits unit = first == 0 ? local_ : local_ + uint64_t{first};
    if (first + l_.workgroup_size > all) {
      slot.inside = unit < uint64_t{all};
      unit = select(slot.inside, unit, 0);
    }
    slot.line = divide(unit, side.line_units);
    slot.unit = unit;
    slots.push_back(slot);
  }
  return slots;
}

// One load. Rows and columns behind the last one are that one again, since nobody stores their
// sums; behind the depth are zeros in both operands.
ProductGenerator::Units ProductGenerator::load_unit(const MatrixSide& side, const Slot& slot,
                                                    Bits first_depth) {
  const int64_t count = across_count(side.is_lhs);
  Bits across = side.is_lhs ? first_row_ : first_column_;
  Bits depth = first_depth;
  const Bits along = slot.unit * uint64_t{l_.unit_elements};
  int64_t last = count - 1;
  if (side.along_depth) {
    across = across + slot.line;
    depth = depth + along;
  } else {
    across = across + along;
    depth = depth + slot.line;
    last = count - l_.unit_elements;
  }
  if (count % (side.is_lhs ? l_.tile.rows : l_.tile.columns) != 0) {
    across = select(across < static_cast<uint64_t>(count), across, static_cast<uint64_t>(last));
  }
  const Place at = place(side.is_lhs, across, depth);
  const uint32_t elements = l_.unit_elements / l_.operand_units;
  const Bits unit = at.element >> uint64_t(std::countr_zero(elements));
  Units units;
  for (uint32_t u = 0; u < l_.operand_units; ++u) {
    units.push_back(
        load(buffer(side.is_lhs), {4, l_.unit_words}, u == 0 ? unit : unit + uint64_t{u}));
    if (at.inside.id == 0) continue;
    units[u] = m_.op(spv::OpSelect, unit_type(),
                     {at.inside.id, units[u], b_.makeNullConstant(unit_type())});
  }
  return units;
}

// Element by element.
ProductGenerator::Units ProductGenerator::load_elements(const MatrixSide& side, const Slot& slot,
                                                        Bits first_depth) {
  const int64_t count = across_count(side.is_lhs);
  const auto bytes = static_cast<uint32_t>(dtype_bytes(c_.lhs_dtype));
  const uint32_t per_word = 4 / bytes;
  Units units;
  std::vector<spv::Id> words;
  Bits word;
  for (uint32_t e = 0; e < l_.unit_elements; ++e) {
    Bits along = slot.unit * uint64_t{l_.unit_elements};
    if (e > 0) along = along + uint64_t{e};
    Bits across =
        (side.is_lhs ? first_row_ : first_column_) + (side.along_depth ? slot.line : along);
    const Bits depth = first_depth + (side.along_depth ? along : slot.line);
    if (count % (side.is_lhs ? l_.tile.rows : l_.tile.columns) != 0) {
      across =
          select(across < static_cast<uint64_t>(count), across, static_cast<uint64_t>(count - 1));
    }
    const Place at = place(side.is_lhs, across, depth);
    const spv::Id loaded = load(buffer(side.is_lhs), {bytes, 1}, at.element);
    Bits value{&m_, 32, bytes == 4 ? loaded : m_.op(spv::OpUConvert, m_.uint_type(32), {loaded})};
    if (at.inside.id != 0) value = select(at.inside, value, 0);
    const uint32_t in_word = e % per_word;
    word = in_word == 0 ? value : word | (value << uint64_t{in_word * bytes * 8});
    if (in_word + 1 == per_word) words.push_back(word.id());
    if (words.size() < l_.unit_words) continue;
    units.push_back(b_.createCompositeConstruct(unit_type(), words));
    words.clear();
  }
  return units;
}

std::vector<ProductGenerator::Units> ProductGenerator::load_side(const MatrixSide& side,
                                                                 Bits first_depth) {
  std::vector<Units> units;
  for (const Slot& slot : slots(side)) {
    units.push_back(side.is_vector ? load_unit(side, slot, first_depth)
                                   : load_elements(side, slot, first_depth));
  }
  return units;
}

// Of each piece the unit that a slot of shared memory gets.
ProductGenerator::Units ProductGenerator::in_pieces(const Units& operand) {
  const uint32_t count = l_.pieces();
  if (count == 1) return operand;
  std::vector<std::vector<spv::Id>> words(count);
  std::vector<Bits> before;  // pieces of the lower half of a word
  for (const spv::Id unit : operand) {
    for (uint32_t k = 0; k < l_.unit_words; ++k) {
      const Bits element{&m_, 32, b_.createCompositeExtract(unit, m_.uint_type(32), k)};
      std::vector<Bits> pieces = pieces_of(element, l_.shape.operands, count);
      if (k % 2 == 0) {
        before = std::move(pieces);
        continue;
      }
      for (uint32_t p = 0; p < count; ++p) {
        words[p].push_back((before[p] | (pieces[p] << uint64_t{16})).id());
      }
    }
  }
  Units units;
  for (const std::vector<spv::Id>& of_piece : words) {
    units.push_back(b_.createCompositeConstruct(unit_type(), of_piece));
  }
  return units;
}

void ProductGenerator::store_side(const MatrixSide& side, const std::vector<Units>& units,
                                  Bits stage) {
  const std::vector<Slot> all = slots(side);
  for (size_t i = 0; i < all.size(); ++i) {
    Bits at = stage + all[i].line * uint64_t{side.pitch} + all[i].unit;
    if (!side.is_lhs) at = at + uint64_t{l_.lhs.units()};
    const Units pieces = in_pieces(units[i]);
    const auto store = [&] {
      for (size_t p = 0; p < pieces.size(); ++p) {
        const Bits to = p == 0 ? at : at + uint64_t{p * l_.piece_units()};
        b_.createStore(pieces[p], shared_unit(to), kShared);
      }
    };
    if (all[i].inside.id == 0) {
      store();
      continue;
    }
    spv::Builder::If inside(all[i].inside.id, spv::SelectionControlMaskNone, b_);
    store();
    inside.makeEndIf();
  }
}

std::vector<ProductGenerator::Units> ProductGenerator::load_all(Bits first_depth) {
  std::vector<Units> units = load_side(l_.lhs, first_depth);
  const std::vector<Units> more = load_side(l_.rhs, first_depth);
  units.insert(units.end(), more.begin(), more.end());
  return units;
}

void ProductGenerator::store_all(const std::vector<Units>& units, Bits stage) {
  const auto middle = units.begin() + static_cast<ptrdiff_t>(slots(l_.lhs).size());
  store_side(l_.lhs, {units.begin(), middle}, stage);
  store_side(l_.rhs, {middle, units.end()}, stage);
}

// The matrix whose first row (of rhs: column) and product are these.
spv::Id ProductGenerator::load_matrix(const MatrixSide& side, uint32_t piece, Bits stage,
                                      Bits first, uint32_t depth) {
  const uint64_t unit = l_.unit_elements;
  Bits at = piece == 0 ? stage : stage + uint64_t{piece * l_.piece_units()};
  if (side.along_depth) {
    at = at + first * uint64_t{side.pitch} + uint64_t{depth / unit};
  } else {
    at = at + first / unit + uint64_t{depth} * side.pitch;
  }
  if (!side.is_lhs) at = at + uint64_t{l_.lhs.units()};
  const MatrixMemory memory = side.along_depth == side.is_lhs ? kRowMajor : kColumnMajor;
  return m_.raw_op(kOpCooperativeMatrixLoad, matrix_type(side.is_lhs ? kMatrixA : kMatrixB),
                   {{shared_unit(at)},
                    {m_.uint_constant(32, memory)},
                    {m_.uint_constant(32, side.pitch)},
                    Module::literal(kShared)});
}

void ProductGenerator::multiply_add(spv::Id left, spv::Id right, spv::Id sum) {
  uint32_t signs = 0;
  if (l_.shape.operands == DType::kI8) signs |= kSignedOperands;
  if (l_.shape.sums == DType::kI32) signs |= kSignedSums;
  const spv::Id before = b_.createLoad(sum, spv::NoPrecision);
  const spv::Id after = signs == 0
                            ? m_.raw_op(kOpCooperativeMatrixMulAdd, matrix_type(kAccumulator),
                                        {{left}, {right}, {before}})
                            : m_.raw_op(kOpCooperativeMatrixMulAdd, matrix_type(kAccumulator),
                                        {{left}, {right}, {before}, Module::literal(signs)});
  b_.createStore(after, sum);
}

void ProductGenerator::multiply(Bits stage) {
  const uint32_t pieces = l_.pieces();
  const auto most_left = static_cast<uint32_t>(c_.pieces.most_left());
  for (uint32_t depth = 0; depth < l_.tile.depth; depth += l_.shape.depth) {
    // By piece.
    std::vector<std::vector<spv::Id>> left(pieces), right(pieces);
    for (uint32_t p = 0; p < pieces; ++p) {
      for (uint32_t i = 0; i < matrices_down(); ++i) {
        left[p].push_back(
            load_matrix(l_.lhs, p, stage, subgroup_row_ + uint64_t{i * l_.shape.rows}, depth));
      }
      for (uint32_t j = 0; j < matrices_across(); ++j) {
        right[p].push_back(load_matrix(l_.rhs, p, stage,
                                       subgroup_column_ + uint64_t{j * l_.shape.columns}, depth));
      }
    }
    for (uint32_t i = 0; i < matrices_down(); ++i) {
      for (uint32_t j = 0; j < matrices_across(); ++j) {
        const uint32_t at = i * matrices_across() + j;
        // The least ones first.
        for (uint32_t rest = pieces > 1 ? most_left : 0; rest > 0; --rest) {
          for (uint32_t p = 0; p < pieces; ++p) {
            if (p > rest || rest - p >= pieces) continue;
            multiply_add(left[p][i], right[rest - p][j], rests_[at]);
          }
        }
        multiply_add(left[0][i], right[0][j], sums_[at]);
      }
    }
  }
}

// What one subgroup has put into its strip, to the result.
void ProductGenerator::store_strip(uint32_t strip) {
  const bool rows = l_.stores_rows;
  const MatrixTile& t = l_.tile;
  const uint32_t length = rows ? t.subgroup_rows : t.subgroup_columns;
  const uint32_t lines = rows ? l_.shape.columns : l_.shape.rows;
  const uint32_t lanes = target_.matrix_subgroup_size;
  const uint32_t at_once = l_.store_elements;
  const uint32_t all = lines * length / at_once;
  const bool has_tail = l_.row_count % t.rows != 0 || l_.column_count % t.columns != 0;
  const Bits strip_start = subgroup_ * uint64_t{l_.sums() * l_.strip_units};
  for (uint32_t first = 0; first < all; first += lanes) {
    Bits element = first == 0 ? lane_ : lane_ + uint64_t{first};
    Flag inside;
    if (first + lanes > all) inside = element < uint64_t{all};
    const Bits line = divide(element, length / at_once);
    const Bits along = at_once == 1 ? element : element * uint64_t{at_once};
    Bits row = first_row_ + subgroup_row_ + (rows ? along : line);
    Bits column = first_column_ + subgroup_column_ + (rows ? line : along);
    const uint64_t before = uint64_t{strip} * lines;
    if (before > 0) (rows ? column : row) = (rows ? column : row) + before;
    if (has_tail) {
      both(inside, row < static_cast<uint64_t>(l_.row_count));
      both(inside, column < static_cast<uint64_t>(l_.column_count));
    }
    const auto store = [&] {
      const uint64_t words = l_.unit_words;
      const auto load_sums = [&](Bits start) {
        const Bits line_start = start + line * uint64_t{l_.strip_pitch};
        std::vector<Bits> sums;
        if (at_once == 1) {
          const spv::Id word = m_.op(
              spv::OpAccessChain, b_.makePointer(spv::StorageClassWorkgroup, m_.uint_type(32)),
              {shared_, (line_start + along / words).id(), (along & (words - 1)).id()});
          sums.push_back({&m_, 32, b_.createLoad(word, spv::NoPrecision, kShared)});
        }
        for (uint32_t i = 0; at_once > 1 && i < at_once; i += l_.unit_words) {
          const Bits at = line_start + along / words + uint64_t{i / words};
          const spv::Id unit = b_.createLoad(shared_unit(at), spv::NoPrecision, kShared);
          for (unsigned k = 0; k < l_.unit_words; ++k) {
            sums.push_back({&m_, 32, b_.createCompositeExtract(unit, m_.uint_type(32), k)});
          }
        }
        return sums;
      };
      std::vector<Bits> sums = load_sums(strip_start);
      if (l_.sums() > 1) {
        const std::vector<Bits> rests = load_sums(strip_start + uint64_t{l_.strip_units});
        for (size_t i = 0; i < sums.size(); ++i) sums[i] = whole_sum(sums[i], rests[i]);
      }
      Bits to;
      const auto go = [&](const MatrixAxes& axes, const std::vector<Bits>& at) {
        for (size_t d = 0; d < axes.size(); ++d) add(to, at[d], axes[d].out, out_.width);
      };
      go(l_.batch, batch_);
      go(l_.rows, indices(l_.rows, row));
      go(l_.columns, indices(l_.columns, column));
      if (to.id() == 0) to = Bits::constant(m_, out_.width, 0);
      if (c_.out_offset != 0) to = to + static_cast<uint64_t>(c_.out_offset);
      const auto bytes = static_cast<uint32_t>(dtype_bytes(c_.out_dtype));
      if (bytes < 4) {
        for (Bits& sum : sums) sum = rounded(sum, c_.out_dtype);
      }
      if (at_once == 1) {
        spv::Id value = sums[0].id();
        if (bytes < 4) value = m_.op(spv::OpUConvert, m_.uint_type(16), {value});
        b_.createStore(value, pointer(out_, {bytes, 1}, to), spv::MemoryAccessAlignedMask,
                       spv::ScopeMax, bytes);
        return;
      }
      std::vector<spv::Id> all_words;
      const uint32_t per_word = 4 / bytes;
      for (uint32_t i = 0; i < at_once; i += per_word) {
        all_words.push_back(
            (per_word == 1 ? sums[i] : sums[i] | (sums[i + 1] << uint64_t{16})).id());
      }
      const spv::Id unit = b_.createCompositeConstruct(unit_type(), all_words);
      b_.createStore(unit,
                     pointer(out_, {4, l_.unit_words}, to >> uint64_t(std::countr_zero(at_once))),
                     spv::MemoryAccessAlignedMask, spv::ScopeMax, l_.unit_words * 4);
    };
    if (inside.id == 0) {
      store();
      continue;
    }
    spv::Builder::If guard(inside.id, spv::SelectionControlMaskNone, b_);
    store();
    guard.makeEndIf();
  }
}

void ProductGenerator::store_sums() {
  const bool rows = l_.stores_rows;
  const uint32_t strips = rows ? matrices_across() : matrices_down();
  const uint32_t length = rows ? matrices_down() : matrices_across();
  const Bits strip_start = subgroup_ * uint64_t{l_.sums() * l_.strip_units};
  for (uint32_t s = 0; s < strips; ++s) {
    barrier();  // what was there has been read
    for (uint32_t k = 0; k < length; ++k) {
      const uint32_t i = rows ? k : s, j = rows ? s : k;
      const uint32_t along = k * (rows ? l_.shape.rows : l_.shape.columns);
      for (const bool is_rest : {false, true}) {
        if (is_rest && rests_.empty()) continue;
        const spv::Id sum =
            b_.createLoad((is_rest ? rests_ : sums_)[i * matrices_across() + j], spv::NoPrecision);
        const uint64_t at = along / l_.unit_words + (is_rest ? l_.strip_units : 0);
        m_.raw_op(kOpCooperativeMatrixStore, 0,
                  {{shared_unit(strip_start + at)},
                   {sum},
                   {m_.uint_constant(32, rows ? kColumnMajor : kRowMajor)},
                   {m_.uint_constant(32, l_.strip_pitch)},
                   Module::literal(kShared)});
      }
    }
    barrier();
    store_strip(s);
  }
}

void ProductGenerator::emit_tile(Bits group) {
  Bits rest = group;
  Bits batch = divide(rest, static_cast<uint64_t>(l_.row_tiles * l_.column_tiles));
  batch_ = indices(l_.batch, batch);
  // Bands of rows of tiles, column by column: what is read again is read soon.
  const Bits band = divide(rest, static_cast<uint64_t>(kTileBand * l_.column_tiles));
  const Bits first = band * static_cast<uint64_t>(kTileBand);
  Bits height = number(static_cast<uint64_t>(std::min(kTileBand, l_.row_tiles)));
  if (l_.row_tiles > kTileBand && l_.row_tiles % kTileBand != 0) {
    const Bits left = number(static_cast<uint64_t>(l_.row_tiles)) - first;
    height = select(left < height, left, height);
  }
  const Bits column_tile = rest / height;
  const Bits row_tile = first + (rest - column_tile * height);
  first_row_ = row_tile * uint64_t{l_.tile.rows};
  first_column_ = column_tile * uint64_t{l_.tile.columns};
  Bits subgroup_column = subgroup_;
  const Bits subgroup_row = divide(subgroup_column, l_.tile.columns / l_.tile.subgroup_columns);
  subgroup_row_ = subgroup_row * uint64_t{l_.tile.subgroup_rows};
  subgroup_column_ = subgroup_column * uint64_t{l_.tile.subgroup_columns};

  const spv::Id no_sums = types_.no_sums(l_.shape);
  for (uint32_t i = 0; i < matrices_down() * matrices_across(); ++i) {
    sums_.push_back(b_.createVariable(spv::NoPrecision, spv::StorageClassFunction,
                                      matrix_type(kAccumulator), "sums"));
    b_.createStore(no_sums, sums_.back());
    if (l_.sums() == 1) continue;
    rests_.push_back(b_.createVariable(spv::NoPrecision, spv::StorageClassFunction,
                                       matrix_type(kAccumulator), "rests"));
    b_.createStore(no_sums, rests_.back());
  }

  const uint64_t depth = l_.tile.depth;
  const auto blocks = static_cast<uint64_t>((l_.depth_count + l_.tile.depth - 1) / l_.tile.depth);
  const uint64_t stage_units = uint64_t{l_.pieces()} * l_.piece_units();
  store_all(load_all(zero()), zero());
  barrier();
  Bits stage = zero();
  if (blocks > 1) {
    // While a block is multiplied the next one is on its way.
    CountedLoop loop(number(1));
    const Bits block = loop.iteration();
    loop.begin_body(block < blocks, spv::LoopControlDontUnrollMask);
    const std::vector<Units> units = load_all(block * depth);
    const bool is_double = l_.tile.stages == 2;
    const Bits place = is_double ? (block & 1) * stage_units : zero();
    multiply(is_double ? number(stage_units) - place : zero());
    if (!is_double) execution_barrier();
    store_all(units, place);
    barrier();
    loop.end();
    if (is_double) stage = number((blocks - 1) % 2 * stage_units);
  }
  multiply(stage);
  store_sums();
}

Shader ProductGenerator::run() {
  declare();
  lane_ = entry_.built_in(spv::BuiltInSubgroupLocalInvocationId, "lane", 1);
  subgroup_ = entry_.built_in(spv::BuiltInSubgroupId, "subgroup", 1);
  local_ = subgroup_ * uint64_t{target_.matrix_subgroup_size} + lane_;
  const Bits group = entry_.group();
  const Flag has_work = group < static_cast<uint64_t>(l_.group_count());
  spv::Builder::If outer(has_work.id, spv::SelectionControlMaskNone, b_);
  const spv::Id table = entry_.table();
  const auto operand_bytes = static_cast<uint32_t>(dtype_bytes(c_.lhs_dtype));
  const auto out_bytes = static_cast<uint32_t>(dtype_bytes(c_.out_dtype));
  const std::pair<Buffer*, Element> uses[] = {
      {&lhs_, l_.lhs.is_vector ? Element{4, l_.unit_words} : Element{operand_bytes, 1}},
      {&rhs_, l_.rhs.is_vector ? Element{4, l_.unit_words} : Element{operand_bytes, 1}},
      {&out_, l_.store_elements > 1 ? Element{4, l_.unit_words} : Element{out_bytes, 1}}};
  for (unsigned i = 0; i < 3; ++i) {
    const auto& [buffer, element] = uses[i];
    buffer->address = entry_.table_member(table, i, m_.uint_type(64));
    buffer->pointers[element] =
        m_.op(spv::OpConvertUToPtr, block_pointer(element), {buffer->address});
  }
  emit_tile(group);
  outer.makeEndIf();
  entry_.end();

  Shader shader;
  shader.words = m_.words();
  shader.workgroup_size = l_.workgroup_size;
  shader.group_count = l_.group_count();
  shader.subgroup_size = target_.matrix_subgroup_size;
  shader.schedule = "matrix units";
  shader.required_features = m_.features();
  return shader;
}

}  // namespace
}  // namespace codegen

Result<Shader> generate_product(const kernel::Contraction& contraction, const Target& target) {
  HEKLA_ASSIGN_OR_RETURN(const codegen::MatrixLayout layout,
                         codegen::matrix_layout(contraction, target));
  Shader shader = codegen::ProductGenerator(layout, target).run();
  const MatrixTile& t = layout.tile;
  std::string how =
      fmt::format("matrices {} x {} x {}, tile {} x {} x {}", layout.shape.rows,
                  layout.shape.columns, layout.shape.depth, t.rows, t.columns, t.depth);
  const kernel::Pieces& pieces = contraction.pieces;
  if (pieces.products > 1) {
    how += fmt::format(", {} products of {}", pieces.products, dtype_name(pieces.type));
  }
  shader.implementations = {{std::move(how), ""}};
  return shader;
}

}  // namespace hekla::vulkan
