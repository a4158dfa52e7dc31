// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/transposes.h"

#include <algorithm>
#include <map>
#include <optional>

#include "backends/vulkan/codegen/generator.h"

namespace hekla::vulkan::codegen {
namespace {

using kernel::Function;
using kernel::IndexAnalysis;
using kernel::Instruction;
using kernel::Op;
using kernel::Value;

// Neighbours in memory that a tile reaches for across dimensions.
constexpr int64_t kEnoughPoints = 64;
// What an address is made of is computed once more for each element that an invocation loads.
constexpr int kMostAddress = 64;

// Whether the address can be computed for any point: of indices, constants and integers alone.
bool is_of_indices(const Function& f, Value v, int& budget) {
  const Instruction& inst = f[v];
  if (inst.op == Op::kConstant || inst.op == Op::kParameter) return true;
  if (kernel::is_float(inst.type) || inst.op == Op::kLoad || inst.op == Op::kShuffleXor ||
      --budget < 0) {
    return false;
  }
  return std::all_of(inst.arguments.begin(), inst.arguments.end(),
                     [&](Value a) { return is_of_indices(f, a, budget); });
}

// The dimension along which a load is contiguous, where it is not along the last one and does not
// stay where it is there.
std::optional<size_t> dimension_of(const IndexAnalysis& index, Value load) {
  const kernel::Kernel& kernel = index.kernel();
  const Value element = kernel.body[load].arguments[0];
  const auto last = static_cast<int>(kernel.grid.size()) - 1;
  const auto step = index.slope(element, index.dimension(last));
  if (!step || step == int64_t{0} || step == int64_t{1}) return std::nullopt;
  for (int d = last; d-- > 0;) {
    if (kernel.grid[static_cast<size_t>(d)] < 2 ||
        index.slope(element, index.dimension(d)) != int64_t{1}) {
      continue;
    }
    int budget = kMostAddress;
    if (!is_of_indices(kernel.body, element, budget)) return std::nullopt;
    return static_cast<size_t>(d);
  }
  return std::nullopt;
}

}  // namespace

int64_t points_of(const kernel::Kernel& kernel, const std::vector<size_t>& dimensions) {
  int64_t points = 1;
  for (const size_t d : dimensions) points *= kernel.grid[d];
  return points;
}

uint32_t elements_of_word(const Function& f, Value load) {
  const uint32_t bytes = kernel::unpack_access(f[load].immediate).bytes;
  return bytes < 4 ? 4 / bytes : 1;
}

TransposedTile transposed_tile(const IndexAnalysis& index) {
  const kernel::Kernel& kernel = index.kernel();
  const Function& f = kernel.body;
  TransposedTile tile;
  const size_t rank = kernel.grid.size();
  if (rank < 2 || kernel.points() == 0 || f.region_count() > 1 || kernel::team_dimension(f) >= 0) {
    return tile;
  }
  std::map<size_t, std::vector<Value>> loads;
  std::map<size_t, int> bytes;
  for (const Value v : f.body().instructions) {
    if (f[v].op == Op::kStore) break;
    if (f[v].op != Op::kLoad) continue;
    if (const auto d = dimension_of(index, v)) {
      loads[*d].push_back(v);
      bytes[*d] += kernel::unpack_access(f[v].immediate).bytes;
    }
  }
  if (loads.empty()) return tile;
  const size_t most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->first;
  tile.loads = loads[most];
  tile.rows = {most};
  const Value element = f[tile.loads.front()].arguments[0];
  for (bool is_found = true; is_found && points_of(kernel, tile.rows) < kEnoughPoints;) {
    is_found = false;
    for (size_t d = 0; d + 1 < rank && !is_found; ++d) {
      is_found = std::find(tile.rows.begin(), tile.rows.end(), d) == tile.rows.end() &&
                 index.slope(element, index.dimension(static_cast<int>(d))) ==
                     points_of(kernel, tile.rows);
      if (is_found) tile.rows.push_back(d);
    }
  }
  tile.columns = {rank - 1};
  for (size_t d = rank - 1; d-- > 0 && points_of(kernel, tile.columns) < kEnoughPoints;) {
    if (std::find(tile.rows.begin(), tile.rows.end(), d) != tile.rows.end()) break;
    tile.columns.push_back(d);
  }
  tile.depends.assign(f.size(), 0);
  const auto mark = [&](const std::vector<size_t>& dimensions, uint8_t bit) {
    for (size_t i = 0; i < f.size(); ++i) {
      for (const size_t d : dimensions) {
        if (index.depends_on_dimension(static_cast<Value>(i), static_cast<int>(d)))
          tile.depends[i] |= bit;
      }
    }
  };
  mark(tile.columns, kOnColumn);
  mark(tile.rows, kOnRow);
  return tile;
}

// Sets the indices of some dimensions by the number of the point in them.
void Generator::set_indices(const std::vector<size_t>& dimensions, size_t point, Bits number) {
  for (size_t i = 0; i < dimensions.size(); ++i) {
    Bits index = number;
    if (i + 1 < dimensions.size()) {
      number = divide(index, static_cast<uint64_t>(kernel_.grid[dimensions[i]]));
    }
    set_index(dimensions[i], point, index);
  }
}

void Generator::emit_transposes(Bits group, Bits local) {
  const int64_t columns = points_of(kernel_, transposed_.columns);
  const int64_t rows = points_of(kernel_, transposed_.rows);
  local_ = local;
  Bits x = local;
  const Bits y = divide(x, schedule_.lanes_x);
  Bits gx = group;
  Bits gy = divide(gx, static_cast<uint64_t>(schedule_.groups_x));
  Bits rest = divide(gy, static_cast<uint64_t>(schedule_.groups_y));
  for (size_t d = kernel_.grid.size(); d-- > 0;) {
    const auto has = [d](const std::vector<size_t>& dimensions) {
      return std::find(dimensions.begin(), dimensions.end(), d) != dimensions.end();
    };
    if (has(transposed_.columns) || has(transposed_.rows)) continue;
    Bits index = rest;
    rest = divide(index, static_cast<uint64_t>(kernel_.grid[d]));
    for (size_t p = 0; p < side_by_side_; ++p) set_index(d, p, index);
  }
  first_column_ = gx * (uint64_t{schedule_.lanes_x} * schedule_.columns);
  first_row_ = gy * (uint64_t{schedule_.lanes_y} * schedule_.rows);
  fill_transposed();
  lane_x_ = x;
  lane_y_ = y;
  const Side across = adjacent(columns, x);
  const Side down = side(rows, first_row_, y, schedule_.lanes_y, schedule_.rows);
  for (size_t p = 0; p < side_by_side_; ++p) {
    const size_t r = p / schedule_.columns, c = p % schedule_.columns;
    set_indices(transposed_.columns, p, across.indices[c]);
    set_indices(transposed_.rows, p, down.indices[r]);
    if (!across.inside.empty()) inside_[p] = across.inside[c];
    if (!down.inside.empty()) {
      inside_[p] = inside_[p].id != 0 ? inside_[p] & down.inside[r] : down.inside[r];
    }
  }
  emit_region(0);
}

// An array has the columns of the tile one behind the other, each with a row more than it has, so
// that neighbours of a row lie in different banks.
spv::Id Generator::transposed_element(Value load, Bits column, Bits row) {
  const uint64_t rows = uint64_t{schedule_.lanes_y} * schedule_.rows;
  return m_.op(spv::OpAccessChain,
               b_.makePointer(spv::StorageClassWorkgroup, m_.type(f_.type(load))),
               {transposed_arrays_.at(load), (column * (rows + 1) + row).id()});
}

spv::Id Generator::load_transposed(Value load) {
  const auto r = static_cast<uint64_t>(point_ / schedule_.columns);
  const auto c = static_cast<uint64_t>(point_ % schedule_.columns);
  const Bits column = lane_x_ * uint64_t{schedule_.columns} + c;
  const Bits row = lane_y_ + r * schedule_.lanes_y;
  return b_.createLoad(transposed_element(load, column, row), spv::NoPrecision);
}

// All lanes of the workgroup together load the tile, the elements of a column one after the other.
void Generator::fill_transposed() {
  const uint64_t columns = uint64_t{schedule_.lanes_x} * schedule_.columns;
  const uint64_t rows = uint64_t{schedule_.lanes_y} * schedule_.rows;
  const auto last_column = static_cast<uint64_t>(points_of(kernel_, transposed_.columns)) - 1;
  const auto all_rows = static_cast<uint64_t>(points_of(kernel_, transposed_.rows));
  const auto variable = index_.dimension(static_cast<int>(transposed_.rows.front()));
  struct Loaded {
    Value load;
    Bits column, row;
    std::vector<spv::Id> elements;
  };
  std::vector<Loaded> open;
  const auto put = [&] {
    for (const Loaded& one : open) {
      for (size_t i = 0; i < one.elements.size(); ++i) {
        b_.createStore(one.elements[i], transposed_element(one.load, one.column, one.row + i));
      }
    }
    open.clear();
  };
  const auto& parameters = f_.body().parameters;
  for (const Value load : transposed_.loads) {
    const kernel::Access access = kernel::unpack_access(f_[load].immediate);
    const Value element = f_[load].arguments[0];
    const kernel::ScalarType type = f_.type(load);
    const spv::Id array = b_.makeArrayType(
        m_.type(type), b_.makeUintConstant(static_cast<unsigned>(columns * (rows + 1))),
        /*stride=*/0);
    const spv::Id variable_id =
        b_.createVariable(spv::NoPrecision, spv::StorageClassWorkgroup, array, "transposed");
    entry_.add(variable_id);
    transposed_arrays_[load] = variable_id;
    uint64_t run = elements_of_word(f_, load);
    const auto size = static_cast<uint64_t>(kernel_.grid[transposed_.rows.front()]);
    if (!memory_.is_narrow(access)) run = 1;
    while (run > 1 && (size % run != 0 || rows % run != 0)) run /= 2;
    const auto aligned_to =
        run == 1
            ? uint64_t{1}
            : static_cast<uint64_t>(index_.factor(element, variable, static_cast<int64_t>(run)));
    const uint64_t of_column = rows / run;
    const uint64_t accesses = columns * of_column;
    for (uint64_t done = 0; done < accesses; done += schedule_.workgroup_size) {
      Bits part = done == 0 ? local_ : local_ + done;
      const Flag is_needed = part < accesses;
      std::optional<spv::Builder::If> guard;
      if (accesses - done < schedule_.workgroup_size) {
        put();
        guard.emplace(is_needed.id, spv::SelectionControlMaskNone, b_);
      }
      Loaded one;
      one.load = load;
      one.column = divide(part, of_column);
      one.row = part * run;
      Bits column = first_column_ + one.column;
      column = select(column <= last_column, column, last_column);
      Bits row = first_row_ + one.row;
      row = select(row < all_rows, row, all_rows - run);
      set_indices(transposed_.columns, 0, column);
      set_indices(transposed_.rows, 0, row);
      Replay r;
      for (const Value p : parameters) r.known[p] = ids_[id_index(p, 0)];
      const Bits at{&m_, kernel::bit_width(f_.type(element)), replay(element, r)};
      if (run == 1) {
        one.elements = {memory_.load(access, type, at)};
      } else {
        one.elements = memory_.load_run(access, type, at, static_cast<uint32_t>(run), aligned_to);
      }
      open.push_back(std::move(one));
      if (guard) {
        put();
        guard->makeEndIf();
      }
    }
  }
  put();
  barrier();
}

}  // namespace hekla::vulkan::codegen
