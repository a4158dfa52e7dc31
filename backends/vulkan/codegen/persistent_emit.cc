// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/persistent_emit.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "backends/compiler/kernel/builder.h"
#include "backends/vulkan/codegen/counted_loop.h"
#include "backends/vulkan/codegen/generator.h"

namespace hekla::vulkan::codegen {
namespace {

// Addresses of operands that wait in a GPU's registers; with 200 of them AMD's compiler spills 370
// scalar registers, and NVK's 1,970 to memory. A processor's wait on its stack.
constexpr size_t kMostKept = 32;

kernel::Access access_of_selector(int64_t bytes) { return {0, static_cast<uint8_t>(bytes), false}; }

// A byte or an i32, which all invocations load.
kernel::Kernel selector_kernel(int64_t bytes) {
  kernel::Builder builder(0, kernel::ScalarType::kI32);
  builder.load(kernel::ScalarType::kI32, access_of_selector(bytes), builder.index(0));
  kernel::Kernel kernel;
  kernel.name = "selector";
  kernel.operands.push_back({bytes, true, false, false});
  kernel.body = std::move(builder).finish();
  return kernel;
}

class PersistentEmitter {
 public:
  PersistentEmitter(const PersistentLoop& loop, const PersistentForm& form)
      : loop_(loop), form_(form), parts_(form.target) {}

  PersistentShader run() {
    emit();
    PersistentShader result;
    result.most_iterations = form_.most_iterations;
    result.state_words = is_resumable_ ? 1 + counters_ : 0;
    result.shader.words = parts_.module.words();
    result.shader.workgroup_size = form_.target.workgroup_size;
    result.shader.group_count = 1;
    result.shader.schedule = "one workgroup";
    result.shader.required_features = parts_.module.features();
    return result;
  }

 private:
  void emit() {
    std::vector<spv::Id> members;
    for (const bool is_constant : loop_.is_constant) {
      members.push_back(parts_.blocks.pointer(
          32, is_constant ? BlockTypes::Use::kReadOnly : BlockTypes::Use::kShared));
    }
    if (is_resumable_) members.push_back(parts_.blocks.pointer(32, BlockTypes::Use::kShared));
    Entry& entry = parts_.entry;
    entry.begin(form_.target.workgroup_size, members, /*constants=*/2);
    local_ = entry.component(entry.built_in(spv::BuiltInLocalInvocationId, "invocation"), 0);
    prepare(loop_.body);
    const Bits limit = entry.constant(0);
    if (is_resumable_) {
      emit_all(limit);
    } else {
      std::optional<Memory> predicate;
      if (loop_.predicate) predicate.emplace(selector_memory({*loop_.predicate, 1}));
      emit_loop(limit.like(0), limit, [&](Bits) {
        barrier();
        emit(loop_.body);
        if (!predicate) return limit;
        barrier();
        return select(load(*predicate, 1) != 0, limit, 0);
      });
    }
    entry.end();
  }

  // Runs body(iteration) from `first` on while the iteration is below `count`, which the body gives
  // anew: a number, no truth value (loops.cc).
  void emit_loop(Bits first, Bits count, const std::function<Bits(Bits)>& body) {
    CountedLoop loop(first);
    const Bits end{&parts_.module, 32, loop.carry(parts_.module.uint_type(32), count.id())};
    loop.begin_body(loop.iteration() < end, spv::LoopControlDontUnrollMask);
    const spv::Id following[] = {body(loop.iteration()).id()};
    loop.end(following);
  }

  OperandPlaces places_of(const std::vector<unsigned>& operands) const {
    OperandPlaces places;
    places.members = operands;
    for (const unsigned place : operands) places.is_constant.push_back(loop_.is_constant[place]);
    return places;
  }

  // In the order of emit(): a few addresses are loaded in front of the loop and stay in registers.
  void prepare(const std::vector<PersistentStep>& steps) {
    for (const PersistentStep& step : steps) {
      if (step.kernel != nullptr) {
        const PersistentKernel& kernel = form_.kernels.at(step.kernel);
        const OperandPlaces& places = places_.emplace_back(places_of(step.operands));
        generators_.emplace_back(*kernel.index, form_.target, kernel.schedule, parts_, &places);
        if (keeps_addresses_) generators_.back().prepare();
      }
      if (step.selector) selectors_.push_back(selector_memory(*step.selector));
      if (step.predicate) {
        selectors_.push_back(selector_memory({*step.predicate, 1}));
        prepare(step.bodies[1]);
        prepare(step.bodies[0]);
        continue;
      }
      for (const auto& body : step.bodies) prepare(body);
    }
  }

  void emit(const std::vector<PersistentStep>& steps) {
    for (const PersistentStep& step : steps) emit_one(step);
  }

  void emit_one(const PersistentStep& step) {
    if (step.has_barrier_before) barrier();
    if (step.kernel != nullptr) {
      Generator& generator = generators_[emitted_++];
      if (!keeps_addresses_) generator.prepare();
      generator.emit_all_groups(local_);
    } else if (step.selector) {
      emit_branch(step);
    } else {
      const Bits count = Bits::constant(parts_.module, 32, static_cast<uint64_t>(step.count));
      emit_loop(count.like(0), count, [&](Bits) {
        barrier();
        emit(step.bodies[0]);
        return count;
      });
    }
  }

  // ---- with searches: what stands in front of the place where the launch before ended, and behind
  // the one where this one does, is left out.

  // A loop of which an iteration may be the first or the last of a launch: those with searches. Its
  // number, those of the loops inside up to `last`, and which word of the state counts, if any
  // does.
  struct Place {
    uint32_t number = 0, last = 0;
    unsigned counter = 0;
  };
  static constexpr uint32_t kRuns = 0, kEnded = UINT32_MAX;

  void emit_all(Bits limit) {
    spv::Builder& b = parts_.module.builder();
    const spv::Id word = parts_.module.uint_type(32);
    const auto variable = [&](const char* name) {
      return b.createVariable(spv::NoPrecision, spv::StorageClassFunction, word, name);
    };
    number_places(loop_.body);
    state_first_ = parts_.entry.constant(1);
    state_ = parts_.entry.table_member(parts_.entry.table(),
                                       static_cast<unsigned>(loop_.is_constant.size()),
                                       parts_.blocks.pointer(32, BlockTypes::Use::kShared));
    mode_ = variable("mode");
    budget_ = variable("budget");
    ended_at_ = variable("ended_at");
    set(mode_, load_state(0));
    set(budget_, limit);
    set(ended_at_, limit.like(0));
    // All have read where to begin.
    barrier();
    emit_resumable(loop_.body);
    store_state(0, get(ended_at_));
  }

  void number_places(const std::vector<PersistentStep>& steps) {
    for (const PersistentStep& step : steps) {
      if (step.kernel != nullptr || !has_search(step)) continue;
      Place place;
      if (!step.selector) place.number = ++numbered_;
      if (!step.selector && !step.predicate) place.counter = static_cast<unsigned>(++counters_);
      for (const auto& body : step.bodies) {
        const uint32_t before = numbered_;
        number_places(body);
        ranges_[&body] = {before + 1, numbered_};
      }
      place.last = numbered_;
      loops_[&step] = place;
    }
  }

  Bits get(spv::Id variable) {
    return {&parts_.module, 32, parts_.module.builder().createLoad(variable, spv::NoPrecision)};
  }
  void set(spv::Id variable, Bits value) {
    parts_.module.builder().createStore(value.id(), variable);
  }
  void emit_if(Flag condition, const std::function<void()>& body) {
    spv::Builder::If chosen(condition.id, spv::SelectionControlMaskNone, parts_.module.builder());
    body();
    chosen.makeEndIf();
  }
  // Of a loop's number, or of what goes on within a range of them.
  Flag is_within(Bits mode, uint32_t first, uint32_t last) {
    return mode - uint64_t{first} <= uint64_t{last - first};
  }

  spv::Id state_word(unsigned number) {
    Module& m = parts_.module;
    return m.op(spv::OpAccessChain,
                m.builder().makePointer(spv::StorageClassPhysicalStorageBuffer, m.uint_type(32)),
                {state_, m.uint_constant(32, 0), (state_first_ + uint64_t{number}).id()});
  }
  Bits load_state(unsigned number) {
    return {&parts_.module, 32,
            parts_.module.builder().createLoad(state_word(number), spv::NoPrecision,
                                               spv::MemoryAccessAlignedMask, spv::ScopeMax, 4)};
  }
  void store_state(unsigned number, Bits value) {
    emit_if(local_ == 0, [&] {
      parts_.module.builder().createStore(value.id(), state_word(number),
                                          spv::MemoryAccessAlignedMask, spv::ScopeMax, 4);
    });
  }

  void emit_resumable(const std::vector<PersistentStep>& steps) {
    for (size_t i = 0; i < steps.size();) {
      if (const auto loop = loops_.find(&steps[i]); loop != loops_.end()) {
        if (steps[i].selector) {
          emit_resumable_branch(steps[i]);
        } else {
          emit_resumable_loop(steps[i], loop->second);
        }
        ++i;
        continue;
      }
      emit_if(get(mode_) == uint64_t{kRuns}, [&] {
        for (; i < steps.size() && !loops_.contains(&steps[i]); ++i) emit_one(steps[i]);
      });
    }
  }

  void emit_resumable_branch(const PersistentStep& step) {
    if (step.has_barrier_before) barrier();
    const Bits value = load(selectors_[selected_++], step.selector->bytes);
    const Bits mode = get(mode_);
    std::vector<Flag> runs;
    for (size_t i = 0; i < step.bodies.size(); ++i) {
      Flag one = (mode == uint64_t{kRuns}) & is_chosen(step, value, i);
      const auto& [first, last] = ranges_.at(&step.bodies[i]);
      if (first <= last) one = one | is_within(mode, first, last);
      runs.push_back(one);
    }
    for (size_t i = 0; i < step.bodies.size(); ++i) {
      emit_if(runs[i], [&] { emit_resumable(step.bodies[i]); });
    }
  }

  void emit_resumable_loop(const PersistentStep& step, const Place& place) {
    const Bits mode = get(mode_);
    const Flag runs = mode == uint64_t{kRuns};
    emit_if(runs | is_within(mode, place.number, place.last), [&] {
      Bits first = mode.like(0), end = mode.like(UINT32_MAX);
      if (place.counter != 0) {
        first = select(runs, uint64_t{0}, load_state(place.counter));
        end = mode.like(static_cast<uint64_t>(step.count));
      }
      Memory* const predicate = step.predicate ? &selectors_[selected_++] : nullptr;
      emit_loop(first, end, [&](Bits iteration) {
        barrier();
        const Bits at = get(mode_);
        emit_if((at == uint64_t{kRuns}) | (at == uint64_t{place.number}), [&] {
          const Bits left = get(budget_);
          const Flag is_over = left == 0;
          set(mode_, select(is_over, uint64_t{kEnded}, left.like(kRuns)));
          set(ended_at_, select(is_over, uint64_t{place.number}, left.like(0)));
          set(budget_, select(is_over, uint64_t{0}, left - 1));
        });
        if (predicate != nullptr) {
          // It goes on where the launch before ended inside.
          set(goes_on_of(place), number(!(get(mode_) == uint64_t{kEnded}), 32));
          emit_if(get(mode_) == uint64_t{kRuns}, [&] {
            emit(step.bodies[1]);
            barrier();
            set(goes_on_of(place), load(*predicate, 1));
          });
          emit_if(get(goes_on_of(place)) != 0, [&] { emit_resumable(step.bodies[0]); });
          const Flag is_done = (get(goes_on_of(place)) == 0) | (get(mode_) == uint64_t{kEnded});
          return select(is_done, uint64_t{0}, end);
        }
        emit_resumable(step.bodies[0]);
        const Flag is_over = get(mode_) == uint64_t{kEnded};
        emit_if(is_over, [&] { store_state(place.counter, iteration); });
        return select(is_over, uint64_t{0}, end);
      });
    });
  }

  spv::Id goes_on_of(const Place& place) {
    spv::Id& variable = goes_on_[place.number];
    if (variable == 0) {
      variable = parts_.module.builder().createVariable(spv::NoPrecision, spv::StorageClassFunction,
                                                        parts_.module.uint_type(32), "goes_on");
    }
    return variable;
  }

  // Whether body `i` is what the selector says.
  static Flag is_chosen(const PersistentStep& step, Bits value, size_t i) {
    const size_t last = step.bodies.size() - 1;
    if (step.selector->bytes == 1) return i == 0 ? value != 0 : value == 0;
    return i < last ? value == static_cast<uint64_t>(i) : value >= static_cast<uint64_t>(last);
  }

  void emit_branch(const PersistentStep& step) {
    const Bits value = load(selectors_[selected_++], step.selector->bytes);
    for (size_t i = 0; i < step.bodies.size(); ++i) {
      emit_if(is_chosen(step, value, i), [&] { emit(step.bodies[i]); });
    }
  }

  Memory selector_memory(const PersistentStep::Selector& selector) {
    const kernel::Kernel& kernel = selector_kernels_.emplace_back(selector_kernel(selector.bytes));
    const OperandPlaces& places = places_.emplace_back(places_of({selector.place}));
    Memory memory(parts_.module, parts_.blocks, kernel, false, false, &places);
    memory.load_table(parts_.entry);
    return memory;
  }

  Bits load(Memory& memory, int64_t bytes) {
    Module& m = parts_.module;
    return {
        &m, 32,
        memory.load(access_of_selector(bytes), kernel::ScalarType::kI32, Bits::constant(m, 32, 0))};
  }

  void barrier() {
    parts_.module.builder().createControlBarrier(
        spv::ScopeWorkgroup, spv::ScopeWorkgroup,
        static_cast<spv::MemorySemanticsMask>(spv::MemorySemanticsAcquireReleaseMask |
                                              spv::MemorySemanticsUniformMemoryMask |
                                              spv::MemorySemanticsWorkgroupMemoryMask));
  }

  const PersistentLoop& loop_;
  const PersistentForm& form_;
  const bool keeps_addresses_ = form_.target.is_cpu || loop_.is_constant.size() <= kMostKept;
  const bool is_resumable_ = has_search(loop_.body);
  ShaderParts parts_;
  Bits local_;
  // By step, in order; with stable addresses.
  std::deque<Generator> generators_;
  std::deque<Memory> selectors_;
  std::deque<kernel::Kernel> selector_kernels_;
  std::deque<OperandPlaces> places_;
  size_t emitted_ = 0, selected_ = 0;
  // With searches.
  std::map<const PersistentStep*, Place> loops_;  // branches too, which are no places themselves
  std::map<const std::vector<PersistentStep>*, std::pair<uint32_t, uint32_t>> ranges_;
  std::map<uint32_t, spv::Id> goes_on_;  // of searches, by number
  uint32_t numbered_ = 0;
  int64_t counters_ = 0;
  Bits state_first_;
  spv::Id state_ = 0;
  // kRuns, the number of the loop where to begin, or kEnded; iterations that are left; and the
  // number of the loop where this launch ended, or 0.
  spv::Id mode_ = 0, budget_ = 0, ended_at_ = 0;
};

}  // namespace

bool has_search(const PersistentStep& step) {
  return step.predicate || std::any_of(step.bodies.begin(), step.bodies.end(),
                                       [](const auto& body) { return has_search(body); });
}

bool has_search(const std::vector<PersistentStep>& steps) {
  return std::any_of(steps.begin(), steps.end(),
                     [](const PersistentStep& step) { return has_search(step); });
}

PersistentShader emit_persistent(const PersistentLoop& loop, const PersistentForm& form) {
  return PersistentEmitter(loop, form).run();
}

}  // namespace hekla::vulkan::codegen
