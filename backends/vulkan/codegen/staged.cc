// SPDX-License-Identifier: Apache-2.0
// Loops whose loads go through shared memory: the invocations of a workgroup fetch what all of them
// need for a block of iterations, in the order of memory, and take it in words.
#include <algorithm>

#include "backends/vulkan/codegen/generator.h"

namespace hekla::vulkan::codegen {

using kernel::Value;

namespace {

// Elements of 32 bits that shared memory gives a lane at once.
constexpr uint32_t kSharedWord = 4;
// Words of 16 bytes that half of the banks have.
constexpr uint32_t kBankSkew = 4;

}  // namespace

// Whether loads of this loop go through shared memory; staged_ says which.
bool Generator::stage(int32_t region, int64_t trip_count, int64_t depth) {
  const bool has_rows = schedule_.lanes_y * schedule_.rows > 1;
  std::vector<StagedLoad> rows, others;
  for (const StagedLoad& load : staged_loads(index_, region, trip_count, depends_, has_rows)) {
    // Each lane loads its own, unless others would then load far from it.
    const uint32_t lanes = load.is_by_row ? schedule_.lanes_y : schedule_.lanes_x;
    if (lanes == schedule_.workgroup_size && !load.is_along_iteration) continue;
    if (!may_be_loaded_early(load.load)) continue;
    // Several rows of a point: those of one lane lie side by side, and it takes them at once.
    const bool is_word = !target_.is_cpu && has_rows && load.is_by_row &&
                         kernel::bit_width(f_.type(load.load)) == 32;
    (is_word ? rows : others).push_back(load);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const auto& a, const auto& b) { return f_.type(a.load) < f_.type(b.load); });
  for (std::span<const StagedLoad> rest(rows); !rest.empty();) {
    const bool is_word =
        rest.size() >= kSharedWord && f_.type(rest[0].load) == f_.type(rest[kSharedWord - 1].load);
    size_t count = is_word ? kSharedWord : 1;
    if (!share(rest.first(count), static_cast<uint32_t>(count), depth) && is_word) {
      count = 1;  // where there is no room for all of them there may be for some
      share(rest.first(1), 1, depth);
    }
    rest = rest.subspan(count);
  }
  for (const StagedLoad& load : others) {
    const bool is_word = !target_.is_cpu && has_rows && !load.is_by_row &&
                         schedule_.columns % kSharedWord == 0 &&
                         kernel::bit_width(f_.type(load.load)) == 32;
    share({&load, 1}, is_word ? kSharedWord : 1, depth);
  }
  return !staged_.empty();
}

bool Generator::share(std::span<const StagedLoad> loads, uint32_t parts, int64_t depth) {
  SharedArray shared;
  shared.loads.assign(loads.begin(), loads.end());
  shared.is_by_row = loads[0].is_by_row;
  shared.type = f_.type(loads[0].load);
  shared.parts = parts;
  shared.lanes = shared.is_by_row ? schedule_.lanes_y : schedule_.lanes_x;
  shared.words = shared.is_by_row ? schedule_.rows : schedule_.columns;
  if (loads.size() == 1) shared.words /= parts;
  shared.word_pitch = shared.lanes;
  // Words that lie side by side in memory are those of one lane: when lanes that follow each other
  // put them there, they meet different banks.
  const bool is_run = parts > 1 && loads.size() == 1 && schedule_.is_adjacent;
  if (is_run && shared.words > 1) shared.word_pitch += kBankSkew;
  shared.pitch = (shared.words - 1) * shared.word_pitch + shared.lanes + 1;
  const auto words = shared.pitch * static_cast<uint32_t>(depth);
  const auto bytes = words * parts * static_cast<uint32_t>(kernel::bit_width(shared.type) / 8);
  if (shared_bytes_ + bytes > target_.max_shared_memory_bytes) return false;
  shared_bytes_ += bytes;
  const spv::Id word = parts == 1
                           ? m_.type(shared.type)
                           : b_.makeVectorType(m_.type(shared.type), static_cast<int>(parts));
  const spv::Id array = b_.makeArrayType(word, b_.makeUintConstant(words), /*stride=*/0);
  shared.array = b_.createVariable(spv::NoPrecision, spv::StorageClassWorkgroup, array, "shared");
  entry_.add(shared.array);
  for (size_t i = 0; i < loads.size(); ++i) {
    staged_.emplace(loads[i].load, Staged{shared_.size(), static_cast<uint32_t>(i)});
  }
  shared_.push_back(std::move(shared));
  return true;
}

spv::Id Generator::shared_word(const SharedArray& shared, Bits iteration, Bits word, Bits lane) {
  Bits at = iteration.resized(32) * uint64_t{shared.pitch} + lane;
  if (shared.words > 1) at = at + word * uint64_t{shared.word_pitch};
  const spv::Id scalar = m_.type(shared.type);
  const spv::Id type =
      shared.parts == 1 ? scalar : b_.makeVectorType(scalar, static_cast<int>(shared.parts));
  return m_.op(spv::OpAccessChain, b_.makePointer(spv::StorageClassWorkgroup, type),
               {shared.array, at.id()});
}

spv::Id Generator::load_staged(Value v, const Staged& staged) {
  const SharedArray& shared = shared_[staged.array];
  const Bits lane = shared.is_by_row ? lane_y_ : lane_x_;
  size_t number = shared.is_by_row ? point_ / schedule_.columns : point_ % schedule_.columns;
  uint32_t part = staged.part;
  if (shared.loads.size() == 1) {
    part = static_cast<uint32_t>(number % shared.parts);
    number /= shared.parts;
  }
  spv::Id& word = words_[{staged.array, number}];
  if (word == 0) {
    word = b_.createLoad(shared_word(shared, shared_iteration_, lane.like(number), lane),
                         spv::NoPrecision);
  }
  if (shared.parts == 1) return word;
  return b_.createCompositeExtract(word, m_.type(f_.type(v)), part);
}

// In the order of memory, as far as the words of a block are contiguous there.
std::vector<Generator::SharedPlace> Generator::shared_places(const SharedArray& shared,
                                                             uint64_t depth) {
  const uint64_t across = uint64_t{shared.lanes} * shared.words;
  const uint64_t words = across * depth;
  std::vector<SharedPlace> places;
  for (uint64_t done = 0; done < words; done += schedule_.workgroup_size) {
    SharedPlace place;
    Bits number = local_ + done;
    if (words - done < schedule_.workgroup_size) {
      place.inside = number < words;
      number = select(place.inside, number, 0);
    }
    place.iteration = number;
    if (shared.loads[0].is_along_iteration) {
      number = divide(place.iteration, depth);
    } else {
      place.iteration = divide(number, across);
    }
    if (schedule_.is_adjacent && !shared.is_by_row) {
      place.word = number;
      place.lane = divide(place.word, shared.words);
    } else {
      place.lane = number;
      place.word = divide(place.lane, shared.lanes);
    }
    places.push_back(place);
  }
  return places;
}

void Generator::fetch_word(int32_t region, const SharedArray& shared, const SharedPlace& place,
                           Bits first_iteration, Carried& values) {
  const int index_width = kernel::bit_width(kernel_.index_type);
  const auto& parameters = f_.body().parameters;
  const size_t dim = parameters.size() - (shared.is_by_row ? 2 : 1);
  const auto size = static_cast<uint64_t>(kernel_.grid[dim]);
  const Bits iteration = first_iteration + place.iteration.resized(first_iteration.width());
  const bool has_columns = shared.loads.size() == 1 && shared.parts > 1;
  const auto replayed = [&](Value v, Bits index) {
    Replay r;
    r.region = region;
    r.known[parameters[dim]] = index.resized(index_width).id();
    r.known[f_.region(region).parameters[0]] = iteration.id();
    return replay(v, r);
  };
  const Bits first = shared.is_by_row ? first_row_ : first_column_;
  // Adjacent columns are all there or none.
  if (has_columns && schedule_.is_adjacent) {
    const Value load = shared.loads[0].load;
    const kernel::Access access = kernel::unpack_access(f_[load].immediate);
    Bits index = first + place.lane * uint64_t{schedule_.columns};
    if (shared.words > 1) index = index + place.word * uint64_t{shared.parts};
    index = select(index < size, index, size - shared.parts);
    const Value element = f_[load].arguments[0];
    if (memory_.is_narrow(access) && index_.slope(element, column()) == int64_t{1}) {
      const Bits at{&m_, kernel::bit_width(f_.type(element)), replayed(element, index)};
      const auto factor = static_cast<uint64_t>(index_.factor(element, column(), shared.parts));
      for (const spv::Id one : memory_.load_run(access, shared.type, at, shared.parts, factor)) {
        values.emplace_back(one, shared.type);
      }
      return;
    }
    for (uint64_t p = 0; p < shared.parts; ++p) {
      values.emplace_back(replayed(load, p == 0 ? index : index + p), shared.type);
    }
    return;
  }
  for (uint32_t p = 0; p < shared.parts; ++p) {
    Bits number = place.lane;
    if (has_columns) {
      if (shared.words > 1) number = number + place.word * uint64_t{shared.parts * shared.lanes};
      if (p > 0) number = number + uint64_t{p * shared.lanes};
    } else if (schedule_.is_adjacent && !shared.is_by_row) {
      number = number * uint64_t{schedule_.columns} + place.word;
    } else if (shared.words > 1) {
      number = number + place.word * uint64_t{shared.lanes};
    }
    Bits index = first + number;
    index = select(index < size, index, size - 1);
    values.emplace_back(replayed(shared.loads[has_columns ? 0 : p].load, index), shared.type);
  }
}

void Generator::fetch(int32_t region, const SharedArray& shared, Bits first_iteration,
                      uint64_t depth, Carried& values) {
  for (const SharedPlace& place : shared_places(shared, depth)) {
    fetch_word(region, shared, place, first_iteration, values);
  }
}

std::span<const Generator::Carried::value_type> Generator::put(
    const SharedArray& shared, std::span<const Carried::value_type> values, uint64_t depth) {
  for (const SharedPlace& place : shared_places(shared, depth)) {
    std::vector<spv::Id> parts;
    for (uint32_t p = 0; p < shared.parts; ++p) parts.push_back(values[p].first);
    values = values.subspan(shared.parts);
    std::optional<spv::Builder::If> guard;
    if (place.inside.id != 0) {
      guard.emplace(place.inside.id, spv::SelectionControlMaskNone, b_);
    }
    const spv::Id word =
        shared.parts == 1
            ? parts[0]
            : b_.createCompositeConstruct(
                  b_.makeVectorType(m_.type(shared.type), static_cast<int>(shared.parts)), parts);
    b_.createStore(word, shared_word(shared, place.iteration, place.word, place.lane));
    if (guard) guard->makeEndIf();
  }
  return values;
}

void Generator::barrier() {
  b_.createControlBarrier(
      spv::ScopeWorkgroup, spv::ScopeWorkgroup,
      has_sums_ ? kSharedSemantics
                : static_cast<spv::MemorySemanticsMask>(spv::MemorySemanticsAcquireReleaseMask |
                                                        spv::MemorySemanticsWorkgroupMemoryMask));
}

// What a block needs is fetched while the block before it is computed, where the schedule says so:
// it waits in registers.
Generator::Carried Generator::emit_staged_iterations(int32_t region, Bits blocks, uint64_t depth,
                                                     const Carried& initial) {
  const bool prefetches = schedule_.prefetches;
  Carried entering = initial;
  if (prefetches) {
    for (const SharedArray& shared : shared_) {
      fetch(region, shared, blocks.like(0), depth, entering);
    }
  }
  Loop loop = begin_loop(blocks, spv::LoopControlDontUnrollMask, entering);
  const Carried all = with_types(loop.carried, entering);
  const Carried before(all.begin(), all.begin() + static_cast<ptrdiff_t>(initial.size()));
  const Bits first = loop.iteration * depth;
  std::span<const Carried::value_type> waiting =
      std::span<const Carried::value_type>(all).subspan(initial.size());
  for (const SharedArray& shared : shared_) {
    Carried fetched;
    if (prefetches) {
      waiting = put(shared, waiting, depth);
    } else {
      fetch(region, shared, first, depth, fetched);
      put(shared, fetched, depth);
    }
  }
  barrier();
  Carried next;
  if (prefetches) {
    // Behind the last block that one again.
    Bits block = loop.iteration + 1;
    block = select(block < blocks, block, loop.iteration);
    for (const SharedArray& shared : shared_) fetch(region, shared, block * depth, depth, next);
  }
  const bool is_long = schedule_.lanes_y * schedule_.rows == 1 &&
                       f_.region(region).instructions.size() * depth > kMostUnrolledInstructions;
  Loop inner =
      begin_loop(blocks.like(depth),
                 is_long ? spv::LoopControlDontUnrollMask : spv::LoopControlUnrollMask, before);
  shared_iteration_ = inner.iteration;
  end_loop(inner,
           emit_unrolled(region, first + inner.iteration, 1, with_types(inner.carried, initial)));
  barrier();
  Carried leaving = with_types(inner.carried, initial);
  leaving.insert(leaving.end(), next.begin(), next.end());
  end_loop(loop, leaving);
  loop.carried.resize(initial.size());
  return with_types(loop.carried, initial);
}

}  // namespace hekla::vulkan::codegen
