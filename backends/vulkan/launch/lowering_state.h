// SPDX-License-Identifier: Apache-2.0
// Lowering: how the steps of a plan become parts of a launch, for the files of it alone:
// lowering.cc (steps of the device), lowering_host.cc (what needs the host), lowering_link.cc
// (blocks, gates and recordings). Lives for one call of lower_program; one thread.
#pragma once

#include <initializer_list>
#include <vector>

#include "backends/vulkan/launch/lowering.h"

namespace hekla::vulkan {

// Of the loop states, beside the regions of region_of().
constexpr int64_t kLoopRegion = -1;
constexpr int64_t kWord = sizeof(uint32_t);

// How a gate decides; loop_gate.comp has the same numbers.
enum class GateKind : uint32_t {
  kAlways = 0,
  kPredicate = 1,
  kIndex = 2,
  kCounted = 3,
  kResumed = 4
};

// A dispatch that may be recorded several times.
struct Item {
  LoweredDispatch dispatch;
  std::vector<Access> accesses;
  size_t block = 0;
};

// Items in the order of recording; or a list of such that repeats.
struct Node {
  std::vector<size_t> items;
  std::vector<Node> body;
  int64_t times = 1;
  int64_t loop = -1;  // into LoweredProgram::loops: `times` is what one piece holds
};
using Sequence = std::vector<Node>;

int64_t size_of(const Sequence& sequence);

class Lowering {
 public:
  using Slice = plan::Slice;

  Lowering(const LaunchProgram& program, const std::vector<bool>& is_shared,
           const LoweringOptions& options)
      : program_(program), plan_(*program.plan), is_shared_(is_shared), options_(options) {
    begin_part();
  }

  Result<LoweredProgram> run();

 private:
  // ---- what needs the host: parts of its own, in the order of the steps

  bool needs_host(const plan::Step& step) const;

  Status add_parts(const plan::Steps& steps);

  size_t add_host_part(const HostPart& host);
  // After these steps the launch goes on with part `next`.
  Result<size_t> add_parts_and_go(const plan::Steps& steps, std::vector<size_t> next);

  template <typename Other>
  Status add_on_host(const plan::Step& step, const Other&);
  Status add_on_host(const plan::Step& step, const plan::HostStep&);
  // What the device does between a start and its done is a part of its own: it is submitted while
  // the collective is under way.
  Status add_on_host(const plan::Step& step, const plan::StartStep&);
  Status add_on_host(const plan::Step& step, const plan::DoneStep&);
  Status add_on_host(const plan::Step& step, const plan::KernelStep&);
  Status add_on_host(const plan::Step&, const plan::RowsStep& rows);
  Status add_on_host(const plan::Step& step, const plan::RepeatStep& loop);
  Status add_on_host(const plan::Step& step, const plan::WhileStep& loop);
  Status add_on_host(const plan::Step& step, const plan::BranchStep& branch);

  // ---- what the device does

  struct Gate {
    GateKind kind = GateKind::kAlways;
    Slice selector;
    std::vector<size_t> targets;
    int64_t iterations = 0;  // words into the loop state; 0: none
    int64_t counter = 0;     // the same; of kResumed what is not 0 where the loop goes on
    uint32_t count = 0;      // of iterations
  };

  // The end of a block: how the next one is chosen, and among which.
  struct Block {
    std::vector<size_t> items;  // each once, its gate last
    GateKind kind = GateKind::kAlways;
    std::vector<size_t> targets;  // empty: the end of the part
  };

  void add(const plan::Steps& steps, Sequence& out);

  // They need the host.
  void add(const plan::HostStep&, Sequence&) {}
  void add(const plan::StartStep&, Sequence&) {}
  void add(const plan::DoneStep&, Sequence&) {}
  // In no plan for this device: traits.has_transforms. run() ends with an error then.
  void add(const plan::TransformStep& step, Sequence&);

  void add(const plan::RowsStep& rows, Sequence& out) { add(rows.steps, out); }

  void add(const plan::KernelStep& step, Sequence& out);

  void add(const plan::ContractionStep& step, Sequence& out);

  void add(const plan::CopyStep& step, Sequence& out);

  // A kernel of the plan's, or a contraction.
  void add_code(const auto& step, size_t pipeline, const DeviceKernel& code, Sequence& out);

  void add(const plan::RepeatStep& step, Sequence& out);

  void add(const plan::WhileStep& step, Sequence& out);

  void add(const plan::BranchStep& step, Sequence& out);

  // A loop whose iterations the device decides.
  struct DeviceLoop {
    size_t number = 0;  // in LoweredProgram::loops
    size_t body = 0;    // blocks
    size_t after = 0;
    Node node;
  };

  DeviceLoop new_loop();

  // A dispatch of a loop that one workgroup runs; and dispatches until it is done.
  void add_loop_kernel(const DeviceLoopKernel& loop, int64_t iterations, int64_t state,
                       Sequence& out);
  void add_resumed_loop(const DeviceLoopKernel& loop, Sequence& out);

  // What an iteration runs, and the gate at its end.
  void add_body(DeviceLoop& loop, std::initializer_list<const plan::Steps*> lists,
                const Gate& gate);

  void add_body(DeviceLoop& loop, const DeviceLoopKernel& kernel, int64_t state, const Gate& gate);

  void end_loop(DeviceLoop loop, Sequence& out);

  // That one iteration takes after the first, by the counted loops in it.
  int64_t more_pieces(const Sequence& sequence) const;

  size_t new_block();

  int64_t add_state(std::initializer_list<uint32_t> words);

  // Ends the current block; the constants that need all blocks are filled in by link().
  void end_block(const Gate& gate, Sequence& out);

  // A block of nothing but a way to one other block is that block.
  size_t resolve(size_t block) const;

  // Gives the blocks their places in the loop state, and the gates what they need to know.
  void link(LoweredPart& part);

  // The items of the sequence in the order of recording, without the gates of blocks that are
  // another one.
  void expand(const Sequence& sequence, std::vector<size_t>& out) const;

  Access access(const Slice& slice, bool is_written) const;

  // The 32-bit words that a byte range touches: the shaders rewrite the rest of them.
  Access words(const Slice& slice, bool is_written) const;

  static std::array<uint32_t, 3> groups_of(const Slice& to);

  void add_dispatch(size_t pipeline, const std::vector<TableEntry>& operands,
                    std::vector<Access> accesses, const std::array<uint32_t, 3>& groups,
                    const std::vector<uint32_t>& constants, Sequence& out);

  void begin_part();

  // Ends a run of dispatches.
  Status close_part();

  Status close_recording(LoweredPart& part, std::vector<size_t>& items, int64_t repeats,
                         int64_t loop);

  const LaunchProgram& program_;
  const plan::LaunchPlan& plan_;
  const std::vector<bool>& is_shared_;
  const LoweringOptions& options_;
  LoweredProgram lowered_;
  // Of the part that is open.
  std::vector<Item> items_;
  std::vector<Block> blocks_;  // the first is not behind any gate
  Sequence top_;
  size_t current_ = 0;
  const plan::Step* step_ = nullptr;  // whose dispatches are added
  Status status_ = ok_status();       // of a step that the device has no code for
  int depth_ = 0;                     // of loops and branches around what is added
  int64_t part_state_ = 0;            // words into the loop state
};

}  // namespace hekla::vulkan
