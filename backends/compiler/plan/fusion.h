// SPDX-License-Identifier: Apache-2.0
// Fusion: which values of a block lie in memory, and which are computed inside the kernels that use
// them.
//
// A value is computed in place when that costs no more than storing and loading it: it has one
// reader kernel that asks for each element about once, or it is so cheap that several may repeat
// it. Contractions and reductions are computed inside elementwise readers of the same shape
// (epilogues) and nowhere else; those that the back end has code of its own for stand alone, and
// read their operands through what only moves elements. Kernels over the same elements that read
// the same values, or one the other's result, become one kernel with several results. The decision
// looks at the graph only, so that the same program always becomes the same kernels. Pure; one
// object per block.
#pragma once

#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "backends/compiler/kernel/implementations.h"
#include "backends/compiler/lower/attention.h"
#include "backends/compiler/lower/lower.h"
#include "backends/compiler/lower/scores.h"
#include "backends/compiler/plan/device_traits.h"
#include "backends/compiler/plan/plan_options.h"
#include "runtime/program/ir/ir.h"

namespace hekla::plan {

class Fusion {
 public:
  using Operations = std::unordered_set<const ir::Operation*>;

  // `cuts`: operations whose results are stored, each by a kernel that stores nothing else: where a
  // kernel would get too long. Outlive the object; null: none. `unwanted`: values that only the
  // block's terminator uses and that nobody needs after all.
  explicit Fusion(const ir::Block& block, const PlanOptions& options = {},
                  const DeviceTraits& traits = {}, const Operations* cuts = nullptr,
                  std::unordered_set<const ir::Value*> unwanted = {});

  // Whether a kernel loads this value (true) or computes it. Values of other blocks and block
  // arguments are loaded, constants of one number and iotas computed.
  bool in_memory(const ir::Value& value) const;
  // Whether somebody needs a result of this operation in memory, constants and iotas included.
  bool is_stored(const ir::Value& value) const { return stored_.contains(&value); }
  lower::Role role(const ir::Operation& op) const { return roles_.at(&op); }
  bool is_contraction(const ir::Operation& op) const { return contractions_.contains(&op); }
  // Whether the kernel of the operation's result is lower/attention.h's or scores.h's, which is not
  // cut.
  bool is_attention(const ir::Operation& op) const { return attentions_.contains(&op); }
  // What each way to do the operation said; null: there is but one.
  const std::vector<kernel::Implementation>* asked(const ir::Operation& op) const {
    const auto it = asked_.find(&op);
    return it == asked_.end() ? nullptr : &it->second;
  }
  // Whether nobody needs what the operation computes: it takes no step.
  bool is_unwanted(const ir::Operation& op) const {
    return op.result_count() == 1 && unwanted_.contains(op.result());
  }
  // What a contraction writes in place of its result; see lower::output_of.
  const ir::Value& output_of(const ir::Operation& contraction) const {
    return *contractions_.at(&contraction);
  }
  // The operations whose results one kernel stores, in order. Kernels stand where the last of them
  // does; the others have none of their own. Empty for operations that store nothing.
  std::vector<const ir::Operation*> kernel_at(const ir::Operation& op) const;
  // The operations that the kernel of these outputs computes, without constants, in order.
  std::vector<const ir::Operation*> computed_for(
      const std::vector<const ir::Value*>& outputs) const;

 private:
  // How an operation of this block is computed.
  struct Computed {
    const ir::Operation* root = nullptr;  // of the one kernel that computes it; null: of several
    int path = 0;                         // readers with the same path ask for the same elements
    double repeats = 1;                   // how often the kernel computes an element of it
    int copies = 0;    // how many operations in a row are computed by several kernels
    double spare = 0;  // cost that may still be repeated, when repeats is above 1
  };

  bool is_cut(const ir::Operation& op) const { return cuts_ != nullptr && cuts_->contains(&op); }
  void decide(const ir::Operation& op);
  void demand(const ir::Value& value);
  void demand_captured(const ir::Operation& op);
  bool try_inline(const ir::Operation& op);
  // Whether a few operations make it of indices and constants of one element.
  bool is_of_indices(const ir::Operation& op) const;
  // Whether it reads a little of a large array that an operation of the block then writes a window
  // of: stored, so that the window is written in place, not into a copy beside what is still read.
  bool is_of_updated(const ir::Operation& op) const;
  // Whether `user` needs no place for its operand `value`: it is a contraction that looks through
  // it, or is itself only looked through.
  bool looks_through(const ir::Operation& user, const ir::Value& value) const;
  void demand_operands(const ir::Operation& contraction);
  void add_contraction(const ir::Operation& op);
  void ask_contraction(const ir::Operation& op, bool has_contractions);
  void ask_fft(const ir::Operation& op);
  void ask_reduce(const ir::Operation& op);
  void ask_scatter(const ir::Operation& op);
  void ask_scan(const ir::Operation& op);
  void ask_sort(const ir::Operation& op);
  bool is_staged(const ir::Operation& op) const { return staged_.contains(&op); }

  // What the kernel of a root loads; `same` when only the elements that it computes itself.
  struct Load {
    const ir::Value* value;
    bool same;
  };
  // Roots of one kernel.
  struct Group {
    std::vector<const ir::Operation*> members;
    std::vector<Load> loads;
    bool has_loops = false;
    int size = 0;
    int64_t first = 0;  // position of the first member in the block
  };
  // Products whose kernel computes all of an attention.
  void find_attentions();
  void add_attention(const lower::Attention& attention);
  // Products and reductions whose kernels make scores that nobody stores.
  void find_scores();
  void prepend(const ir::Operation& op, std::string_view way, const kernel::Refusal& why);
  void drop_contraction(const ir::Operation& op);
  // Elementwise operations of whole lines whose kernel computes reductions of these lines too.
  void find_rows();
  bool add_rows(const ir::Operation& root, std::span<const ir::Operation* const> before);
  bool is_row_member(const ir::Operation& op, const Dims& dims, const Operations& members) const;
  void merge_roots();
  // `seen`: values looked at; `again`: those of them that are asked for at other elements.
  void collect_loads(const ir::Value& value, bool same, Group& group,
                     std::unordered_set<const ir::Value*>& seen,
                     std::unordered_set<const ir::Value*>& again) const;
  // What an operation, as a root or without a kernel, reads from memory.
  struct Reader {
    int64_t position;  // in the block
    const ir::Operation* op;
    std::vector<const ir::Value*> values;
  };
  bool may_join(const Group& group, const Group& next, int64_t position,
                const std::vector<Reader>& readers) const;
  // Results that only their own group reads stay in registers.
  void drop_inner_results(const std::vector<Reader>& readers);

  const ir::Block& block_;
  const bool fuse_;
  const bool merge_reductions_;
  const int64_t least_transpose_;  // elements
  const lower::LowerOptions lower_options_;
  const passes::WindowLimits window_limits_;
  const std::unordered_set<const ir::Value*> unwanted_;
  const Operations* const cuts_;
  std::vector<Group> groups_;
  std::unordered_map<const ir::Operation*, size_t> last_of_;  // group whose last member it is
  std::unordered_map<const ir::Operation*, lower::Role> roles_;
  std::unordered_map<const ir::Operation*, Computed> computed_;
  std::unordered_map<const ir::Operation*, int> sizes_;  // operations computed in a root's kernel
  std::unordered_set<const ir::Value*> stored_;
  // Contractions with what they write, and the operations between a result and that.
  std::unordered_map<const ir::Operation*, const ir::Value*> contractions_;
  // Members of kernels, by their root; null: of several.
  std::unordered_map<const ir::Operation*, const ir::Operation*> rows_;
  Operations attentions_;                            // products, and reductions of scores
  std::unordered_set<const ir::Operation*> staged_;  // reductions of several kernels
  std::unordered_map<const ir::Operation*, std::vector<kernel::Implementation>> asked_;
  std::unordered_set<const ir::Operation*> written_through_;
  std::unordered_set<const ir::Operation*> viewed_;  // what only contractions look through
  // Values that contractions look through to their operands' places, by contraction.
  std::unordered_map<const ir::Operation*, std::unordered_set<const ir::Value*>> views_;
  int next_path_ = 1;
};

}  // namespace hekla::plan
