// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/fusion.h"

#include <algorithm>
#include <limits>

#include "backends/compiler/lower/contraction.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::plan {
namespace {

using ir::OpCode;
using lower::Role;

// Operations of one kernel. Compile time grows with it, and a fused chain of this length is bound
// by arithmetic, not by memory.
// Values of so many elements that need nothing from memory are computed wherever they are used.
constexpr int64_t kLeastComputedMask = 64 * 1024;
constexpr int kMaxOperations = 400;
// Staged reductions that go through their lines together: more would want more registers than there
// are.
constexpr size_t kMaxSiblings = 4;
// Operations in a row that several kernels may each compute for themselves.
constexpr int kMaxCopies = 4;
// Cost per element that a kernel may repeat for every use of an element, when there are few uses,
// and when there are many, as in a contraction: then only a change of place.
constexpr double kRepeatedCost = 3;
constexpr double kOftenRepeatedCost = 0.6;
constexpr double kOften = 8;
// Elements of a transposition beyond which its lines do not stay in the cache of a core.
constexpr int64_t kLeastTranspose = 1 << 16;
// Elements of an array whose copy takes longer than a kernel more, and which part of it is little.
constexpr int64_t kLeastUpdated = 1 << 16, kLeastUpdatedForTests = 64;
constexpr int64_t kLittle = 64;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// A reshape that cuts a slice for a product into parts (split_contractions.cc), with which it is
// one change of place.
bool is_cut_operand(const ir::Operation& op) {
  const auto& users = op.result()->users();
  const ir::Operation* from =
      op.code() == OpCode::kReshape ? op.operand(0)->defining_op() : nullptr;
  return from != nullptr && from->code() == OpCode::kSlice && users.size() == 1 &&
         (users[0]->code() == OpCode::kDotGeneral || users[0]->code() == OpCode::kConvolution);
}

// Roughly, in additions.
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

// How often, on average, an operation reads an element of an operand per element of its result,
// scaled by the sizes: above 1 where elements are read again and again.
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

// Whether what is contiguous in the result is not in the operand.
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

// Whether element i of the result needs element i of the operand.
bool keeps_elements(const ir::Operation& user, Role role, const ir::Value& value) {
  if (role == Role::kElementwise) {
    return value.type().dims() == user.result()->type().dims();
  }
  return lower::keeps_row_major_order(user);
}

// lower::role_of, asked once for operations that differ in nothing it looks at: elementwise ones
// whose dtypes are all that they have.
Role role_like(const ir::Operation& op, const lower::LowerOptions& options,
               std::unordered_map<std::string, Role>& known) {
  if (op.region_count() != 0 || op.result_count() != 1 || !op.attributes().empty() ||
      op.code() == OpCode::kBitcastConvert) {
    return lower::role_of(op, options);
  }
  const auto code = static_cast<uint16_t>(op.code());
  std::string key{static_cast<char>(code), static_cast<char>(code >> 8)};
  const auto add = [&](const ir::Type& type) {
    if (!type.is_static_tensor() || type.quantization() != nullptr) return false;
    key += static_cast<char>(type.dtype());
    key += type.dims().empty() ? 's' : element_count(type.dims()) == 0 ? '0' : '1';
    return true;
  };
  bool is_known = add(op.result()->type());
  for (const ir::Value* operand : op.operands()) is_known = is_known && add(operand->type());
  if (!is_known) return lower::role_of(op, options);
  const auto it = known.find(key);
  if (it != known.end()) return it->second;
  const Role role = lower::role_of(op, options);
  // Others look at dimensions.
  if (role == Role::kElementwise) known.emplace(std::move(key), role);
  return role;
}

}  // namespace

Fusion::Fusion(const ir::Block& block, const PlanOptions& options, const DeviceTraits& traits,
               const Operations* cuts, std::unordered_set<const ir::Value*> unwanted)
    : block_(block),
      fuse_(options.fuse),
      merge_reductions_(options.fuse && traits.merges_reductions),
      least_transpose_(options.stored_transposes == StoredTransposes::kAll    ? 2
                       : options.stored_transposes == StoredTransposes::kNone ? kNever
                                                                              : kLeastTranspose),
      lower_options_(lower_options(options, traits)),
      unwanted_(std::move(unwanted)),
      cuts_(cuts) {
  const auto& ops = block.operations();
  std::unordered_map<std::string, Role> known;
  for (const auto& op : ops) {
    roles_[op.get()] = role_like(*op, lower_options_, known);
    if (op->code() == OpCode::kDotGeneral || op->code() == OpCode::kConvolution) {
      ask_contraction(*op, (fuse_ && traits.has_contractions) || !traits.matrix_types.empty());
    }
    if (op->code() == OpCode::kReduce && roles_[op.get()] != Role::kNone) ask_reduce(*op);
    if (op->code() == OpCode::kReduceWindow && roles_[op.get()] != Role::kNone) ask_scan(*op);
    if (op->code() == OpCode::kSort && roles_[op.get()] != Role::kNone) ask_sort(*op);
    if (op->code() == OpCode::kScatter && roles_[op.get()] != Role::kNone) ask_scatter(*op);
    if (op->code() == OpCode::kFft && roles_[op.get()] != Role::kNone) ask_fft(*op);
  }
  find_attentions();
  find_scores();
  if (fuse_ && lower_options_.team_points > 1) find_rows();
  for (auto it = ops.rbegin(); it != ops.rend(); ++it) decide(**it);
  merge_roots();
}

std::vector<const ir::Operation*> Fusion::computed_for(
    const std::vector<const ir::Value*>& outputs) const {
  std::unordered_set<const ir::Operation*> inside;
  std::vector<const ir::Value*> open;
  const auto add = [&](const ir::Operation& op) {
    if (inside.insert(&op).second)
      open.insert(open.end(), op.operands().begin(), op.operands().end());
  };
  for (const ir::Value* output : outputs) add(*output->defining_op());
  while (!open.empty()) {
    const ir::Value& value = *open.back();
    open.pop_back();
    if (!in_memory(value)) add(*value.defining_op());
  }
  std::vector<const ir::Operation*> in_order;
  for (const auto& op : block_.operations()) {
    if (inside.contains(op.get()) && roles_.at(op.get()) != Role::kConstant) {
      in_order.push_back(op.get());
    }
  }
  return in_order;
}

std::vector<const ir::Operation*> Fusion::kernel_at(const ir::Operation& op) const {
  auto it = last_of_.find(&op);
  return it == last_of_.end() ? std::vector<const ir::Operation*>() : groups_[it->second].members;
}

void Fusion::collect_loads(const ir::Value& value, bool same, Group& group,
                           std::unordered_set<const ir::Value*>& seen,
                           std::unordered_set<const ir::Value*>& again) const {
  const ir::Operation* op = value.defining_op();
  const bool is_loaded = in_memory(value);
  if (is_loaded) {
    auto it = std::find_if(group.loads.begin(), group.loads.end(),
                           [&](const Load& load) { return load.value == &value; });
    if (it == group.loads.end()) {
      group.loads.push_back({&value, same});
    } else {
      it->same = it->same && same;
    }
    return;
  }
  if (op->operand_count() == 0) return;
  if (!seen.insert(&value).second) {
    if (same || !again.insert(&value).second) return;
  } else if (!same) {
    again.insert(&value);
  }
  for (const ir::Value* operand : op->operands()) {
    collect_loads(*operand, same && keeps_elements(*op, roles_.at(op), *operand), group, seen,
                  again);
  }
  if (roles_.at(op) == Role::kReduction) group.has_loops = true;
}

bool Fusion::may_join(const Group& group, const Group& next, int64_t position,
                      const std::vector<Reader>& readers) const {
  const ir::Operation& theirs = *group.members.front();
  const ir::Operation& ours = *next.members.front();
  if (theirs.result()->type().dims() != ours.result()->type().dims() ||
      group.size + next.size > kMaxOperations) {
    return false;
  }
  const bool is_staged = this->is_staged(ours);
  if (is_staged != this->is_staged(theirs)) return false;
  if (is_staged) {
    if (group.members.size() >= kMaxSiblings || !lower::are_siblings(theirs, ours, lower_options_))
      return false;
  } else if (group.has_loops && next.has_loops) {
    return false;
  }
  auto makes = [&](const ir::Value* value) {
    return std::find(group.members.begin(), group.members.end(), value->defining_op()) !=
           group.members.end();
  };
  const ir::Value& whole = is_staged ? *ours.operand(0) : *ours.result();
  const int64_t points = element_count(whole.type().dims());
  bool gains = false;
  for (const Load& load : next.loads) {
    if (makes(load.value)) {
      if (!load.same) return false;
      gains = true;
    }
    // Reading a large value once instead of twice, in its own order or transposed.
    if (element_count(load.value->type().dims()) != points) continue;
    gains |= std::any_of(group.loads.begin(), group.loads.end(), [&](const Load& other) {
      return other.value == load.value && other.same == load.same;
    });
  }
  if (!gains) return false;
  // Nobody else in between waits for what the group makes.
  return std::none_of(readers.begin(), readers.end(), [&](const Reader& reader) {
    if (reader.position <= group.first || reader.position >= position) return false;
    const auto& members = group.members;
    return std::find(members.begin(), members.end(), reader.op) == members.end() &&
           std::any_of(reader.values.begin(), reader.values.end(), makes);
  });
}

void Fusion::merge_roots() {
  // How far back a partner is looked for, so that the time stays linear in the program.
  constexpr size_t kLookBack = 1000;
  std::vector<Reader> readers;
  std::vector<size_t> candidates;  // groups, in order
  int64_t position = 0;
  for (const auto& owned : block_.operations()) {
    const ir::Operation& op = *owned;
    ++position;
    if (roles_.at(&op) == Role::kNone) {
      std::vector<const ir::Value*> values(op.operands().begin(), op.operands().end());
      for (size_t i = 0; i < op.region_count(); ++i) {
        ir::walk(op.region(i), [&](const ir::Operation& inner) {
          values.insert(values.end(), inner.operands().begin(), inner.operands().end());
        });
      }
      readers.push_back({position, &op, std::move(values)});
      continue;
    }
    if (written_through_.contains(&op)) continue;
    bool is_root = is_contraction(op) && stored_.contains(contractions_.at(&op));
    for (size_t i = 0; i < op.result_count(); ++i) is_root |= stored_.contains(op.result(i));
    if (!is_root || op.code() == OpCode::kConstant) continue;
    Group group;
    group.members = {&op};
    group.first = position;
    auto it = sizes_.find(&op);
    group.size = it == sizes_.end() ? 1 : it->second;
    std::unordered_set<const ir::Value*> seen, again;
    for (const ir::Value* operand : op.operands()) {
      if (is_contraction(op)) {
        const auto stored = [this](const ir::Value& value) { return in_memory(value); };
        group.loads.push_back({lower::view_of(*operand, block_, stored).base, false});
      } else {
        collect_loads(*operand, keeps_elements(op, roles_.at(&op), *operand), group, seen, again);
      }
    }
    group.has_loops |= roles_.at(&op) == Role::kReduction;
    std::vector<const ir::Value*> loads;
    for (const Load& load : group.loads) loads.push_back(load.value);
    const bool may_merge =
        fuse_ && op.result_count() == 1 && op.code() != OpCode::kDynamicUpdateSlice &&
        roles_.at(&op) != Role::kSequence && !is_contraction(op) && !is_cut(op) &&
        !rows_.contains(&op) && (merge_reductions_ || !is_staged(op));
    bool merged = false;
    for (size_t back = 0; may_merge && back < std::min(kLookBack, candidates.size()); ++back) {
      Group& earlier = groups_[candidates[candidates.size() - 1 - back]];
      if (!may_join(earlier, group, position, readers)) continue;
      last_of_.erase(earlier.members.back());
      last_of_[&op] = candidates[candidates.size() - 1 - back];
      earlier.members.push_back(&op);
      earlier.size += group.size;
      earlier.has_loops |= group.has_loops;
      for (const Load& load : group.loads) {
        auto same = std::find_if(earlier.loads.begin(), earlier.loads.end(),
                                 [&](const Load& other) { return other.value == load.value; });
        if (same == earlier.loads.end()) {
          earlier.loads.push_back(load);
        } else {
          same->same = same->same && load.same;
        }
      }
      merged = true;
      break;
    }
    if (!merged) {
      last_of_[&op] = groups_.size();
      if (may_merge) candidates.push_back(groups_.size());
      groups_.push_back(std::move(group));
    }
    readers.push_back({position, &op, std::move(loads)});
  }
  drop_inner_results(readers);
}

void Fusion::drop_inner_results(const std::vector<Reader>& readers) {
  std::unordered_map<const ir::Operation*, size_t> group_of;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const ir::Operation* member : groups_[g].members) group_of[member] = g;
  }
  std::unordered_set<const ir::Value*> needed;
  for (const Reader& reader : readers) {
    const auto mine = group_of.find(reader.op);
    for (const ir::Value* value : reader.values) {
      const auto maker = group_of.find(value->defining_op());
      if (mine == group_of.end() || maker == group_of.end() || mine->second != maker->second) {
        needed.insert(value);
      }
    }
  }
  for (Group& group : groups_) {
    if (group.members.size() < 2) continue;
    const ir::Operation* last = group.members.back();
    std::erase_if(group.members, [&](const ir::Operation* member) {
      if (member == last || needed.contains(member->result())) return false;
      stored_.erase(member->result());
      return true;
    });
  }
}

bool Fusion::in_memory(const ir::Value& value) const {
  const ir::Operation* op = value.defining_op();
  if (op == nullptr) return true;
  if (op->code() == OpCode::kConstant) return !ir::is_one_number(value);
  if (op->code() == OpCode::kIota) return false;
  return op->block() != &block_ || stored_.contains(&value) || roles_.at(op) == Role::kNone;
}

void Fusion::demand(const ir::Value& value) {
  if (value.defining_op() != nullptr && value.defining_op()->block() == &block_) {
    stored_.insert(&value);
  }
}

void Fusion::demand_captured(const ir::Operation& op) {
  for (size_t i = 0; i < op.region_count(); ++i) {
    ir::walk(op.region(i), [&](const ir::Operation& inner) {
      for (const ir::Value* value : inner.operands()) demand(*value);
    });
  }
}

void Fusion::ask_contraction(const ir::Operation& op, bool has_contractions) {
  kernel::Implementations ways;
  const kernel::Refusal why = has_contractions ? lower::why_no_contraction(op, lower_options_)
                              : fuse_          ? "the device has none"
                                      : "each operation is a kernel of its own (hekla_fuse=false)";
  if (ways.ask("contraction step", why)) add_contraction(op);
  const bool has_kernel = roles_.at(&op) != Role::kNone;
  ways.ask("kernel of loops", has_kernel ? "" : lower::why_no_kernel(op));
  ways.ask("evaluator on the host", "");
  asked_[&op] = ways.take();
}

void Fusion::ask_reduce(const ir::Operation& op) {
  kernel::Implementations ways;
  const bool is_tree = ways.ask("trees of points", lower::why_no_tree_reduce(op, lower_options_));
  const bool is_in_parts =
      ways.ask("kernels of parts of lines", lower::why_no_staged_reduce(op, lower_options_));
  if (is_tree || is_in_parts) staged_.insert(&op);
  ways.ask("a point for each line", "");
  asked_[&op] = ways.take();
}

// The order in which lower_sequence asks.
void Fusion::ask_scatter(const ir::Operation& op) {
  kernel::Implementations ways;
  ways.ask("updates in order", lower::why_no_scatter_in_order(op, lower_options_));
  ways.ask("updates sorted by place", lower::why_no_large_scatter(op, lower_options_));
  ways.ask("each element looks through the updates", "");
  asked_[&op] = ways.take();
}

void Fusion::ask_scan(const ir::Operation& op) {
  kernel::Implementations ways;
  ways.ask("blocks of lines, by teams of points", lower::why_no_team_scan(op, lower_options_));
  ways.ask("blocks of lines", lower::why_no_scan(op, lower_options_));
  ways.ask("each element reads its window", "");
  asked_[&op] = ways.take();
}

void Fusion::ask_sort(const ir::Operation& op) {
  kernel::Implementations ways;
  const lower::SortRefusals why = lower::why_no_sort(op, lower_options_);
  ways.ask("first elements of parts, then merges", why.partial);
  ways.ask("digits of keys, by teams of points", why.by_digits);
  ways.ask("sorted blocks, then merges", "");
  asked_[&op] = ways.take();
}

// However the program is planned otherwise, so that its bits do not depend on it.
void Fusion::find_attentions() {
  for (const auto& op : block_.operations()) {
    if (op->code() != OpCode::kDotGeneral || roles_.at(op.get()) != Role::kReduction) continue;
    kernel::Refusal why, why_no_matrix;
    const auto found = lower::find_attention(*op, lower_options_, why, &why_no_matrix);
    if (!found && why.empty()) continue;
    if (found && (is_cut(*op) || is_unwanted(*op) ||
                  std::any_of(found->members.begin(), found->members.end(),
                              [&](const ir::Operation* member) { return is_cut(*member); }))) {
      why = "its kernel would be too long";
    }
    if (found && std::any_of(found->members.begin(), found->members.end(),
                             [&](const ir::Operation* member) { return rows_.contains(member); })) {
      why = "part of it belongs to another attention";
    }
    if (why.empty()) add_attention(*found);
    prepend(*op, "attention by teams of points", why);
    prepend(*op, "attention on matrix units", why_no_matrix.empty() ? why : why_no_matrix);
  }
}

void Fusion::prepend(const ir::Operation& op, std::string_view way, const kernel::Refusal& why) {
  const auto it = asked_.find(&op);
  if (it == asked_.end()) return;
  kernel::Implementations ways;
  ways.ask(std::string(way), why);
  for (const kernel::Implementation& other : it->second) ways.ask(other.name, other.refusal);
  it->second = ways.take();
}

void Fusion::add_attention(const lower::Attention& attention) {
  attentions_.insert(attention.product);
  rows_[attention.product] = attention.product;
  drop_contraction(*attention.product);
  for (const ir::Operation* member : attention.members) {
    rows_[member] = attention.product;
    staged_.erase(member);
    drop_contraction(*member);
    prepend(*member, "part of an attention", "");
  }
}

void Fusion::find_scores() {
  if (lower_options_.attention_points < 2) return;
  const auto is_taken = [&](const ir::Operation& op) { return rows_.contains(&op); };
  for (const auto& found : lower::find_recomputed_scores(block_, is_taken, lower_options_)) {
    kernel::Refusal why = found.why_not;
    for (const auto* ops : {&found.members, &found.roots}) {
      if (std::any_of(ops->begin(), ops->end(),
                      [&](const ir::Operation* op) { return is_cut(*op) || is_unwanted(*op); })) {
        why = "its kernel would be too long";
      }
    }
    for (const ir::Operation* op : found.roots) prepend(*op, "scores made again", why);
    for (const ir::Operation* op : found.members) prepend(*op, "made again where it is used", why);
    if (!why.empty()) continue;
    for (const ir::Operation* op : found.roots) {
      rows_[op] = op;
      attentions_.insert(op);
    }
    for (const ir::Operation* op : found.members) rows_[op] = nullptr;
    for (const auto* ops : {&found.members, &found.roots}) {
      for (const ir::Operation* op : *ops) {
        staged_.erase(op);
        drop_contraction(*op);
      }
    }
  }
}

void Fusion::drop_contraction(const ir::Operation& op) {
  const auto it = contractions_.find(&op);
  if (it == contractions_.end()) return;
  for (const ir::Value* value = it->second; value != op.result();) {
    written_through_.erase(value->defining_op());
    value = value->defining_op()->operand(0);
  }
  contractions_.erase(it);
}

void Fusion::ask_fft(const ir::Operation& op) {
  kernel::Implementations ways;
  ways.ask("whole lines", lower::why_no_transform(op, lower_options_));
  ways.ask("a kernel for each pass", "");
  asked_[&op] = ways.take();
}

void Fusion::add_contraction(const ir::Operation& op) {
  const ir::Value& output = fuse_ ? lower::output_of(op, lower_options_) : *op.result();
  contractions_[&op] = &output;
  for (const ir::Value* value = &output; value != op.result();) {
    written_through_.insert(value->defining_op());
    value = value->defining_op()->operand(0);
  }
}

void Fusion::demand_operands(const ir::Operation& contraction) {
  const auto stored = [this](const ir::Value& value) {
    return !fuse_ || stored_.contains(&value) || written_through_.contains(value.defining_op());
  };
  for (const ir::Value* operand : contraction.operands()) {
    const lower::View view = lower::view_of(*operand, block_, stored);
    views_[&contraction].insert(view.through.begin(), view.through.end());
    demand(*view.base);
  }
}

bool Fusion::looks_through(const ir::Operation& user, const ir::Value& value) const {
  if (viewed_.contains(&user)) return true;
  const auto it = views_.find(&user);
  return it != views_.end() && it->second.contains(&value);
}

void Fusion::decide(const ir::Operation& op) {
  if (is_unwanted(op)) return;
  const Role role = roles_.at(&op);
  if (role == Role::kNone) {
    for (const ir::Value* value : op.operands()) {
      if (!unwanted_.contains(value)) demand(*value);
    }
    demand_captured(op);
    return;
  }
  demand_captured(op);
  if (role == Role::kConstant) return;
  if (role == Role::kSequence) {
    // Of a scatter in order, indices and updates may be computed where they are used.
    const bool may_compute = lower::is_scatter_in_order(op, lower_options_);
    const size_t count = may_compute ? op.result_count() : op.operand_count();
    for (size_t i = 0; i < count; ++i) demand(*op.operand(i));
  }
  if (const auto row = rows_.find(&op); row != rows_.end() && row->second != &op) {
    computed_[&op] = {row->second, next_path_++, 1, 0, 0};
    ++sizes_[row->second];
    return;
  }
  bool is_stored = op.result_count() != 1 || rows_.contains(&op) || role == Role::kSequence ||
                   op.code() == OpCode::kDynamicUpdateSlice || is_cut(op) || is_staged(op);
  bool is_used = false;
  for (size_t i = 0; i < op.result_count(); ++i) {
    is_stored |= stored_.contains(op.result(i));
    is_used |= op.result(i)->has_uses();
  }
  if (!is_used) return;
  if (is_contraction(op)) {
    stored_.insert(contractions_.at(&op));
    return demand_operands(op);
  }
  if (written_through_.contains(&op)) return;
  const auto& users = op.result()->users();
  if (!is_stored && std::all_of(users.begin(), users.end(), [&](const ir::Operation* user) {
        return looks_through(*user, *op.result());
      })) {
    viewed_.insert(&op);
    return;
  }
  if (is_stored || !fuse_ || !try_inline(op)) {
    for (size_t i = 0; i < op.result_count(); ++i) {
      if (op.result(i)->has_uses()) stored_.insert(op.result(i));
    }
    computed_[&op] = {&op, 0, 1, 0, 0};
    sizes_[&op] = 1;
  }
}

// Backwards, so that the last operation of a group is its root.
void Fusion::find_rows() {
  std::vector<const ir::Operation*> ops;
  const auto dims_of = [](const ir::Operation& op) -> const Dims& {
    return op.operand(0)->type().dims();
  };
  std::vector<const ir::Operation*> reductions;
  for (const auto& op : block_.operations()) {
    if (is_staged(*op) && lower::is_row_reduce(*op, lower_options_)) reductions.push_back(op.get());
    ops.push_back(op.get());
  }
  if (reductions.empty()) return;
  for (size_t i = ops.size(); i-- > 0;) {
    const ir::Operation& op = *ops[i];
    if (roles_.at(&op) != Role::kElementwise || op.result_count() != 1 || rows_.contains(&op) ||
        is_cut(op) || is_unwanted(op) || !op.result()->has_uses()) {
      continue;
    }
    const bool has_reductions =
        std::any_of(reductions.begin(), reductions.end(), [&](const ir::Operation* reduction) {
          return !rows_.contains(reduction) && dims_of(*reduction) == op.result()->type().dims();
        });
    if (has_reductions) add_rows(op, std::span(ops).first(i));
  }
}

bool Fusion::is_row_member(const ir::Operation& op, const Dims& dims,
                           const Operations& members) const {
  if (op.result_count() != 1 || rows_.contains(&op) || is_cut(op) || !op.result()->has_uses()) {
    return false;
  }
  const auto& users = op.result()->users();
  if (!std::all_of(users.begin(), users.end(),
                   [&](const ir::Operation* user) { return members.contains(user); })) {
    return false;
  }
  // One element for each line.
  const auto is_of_lines = [&](const Dims& other) {
    const auto kept = dims.size() - 1;
    return (other.size() == kept || (other.size() == kept + 1 && other.back() == 1)) &&
           std::equal(dims.begin(), dims.end() - 1, other.begin());
  };
  const Dims& mine = op.result()->type().dims();
  switch (roles_.at(&op)) {
    case Role::kElementwise:
      return mine == dims || is_of_lines(mine);
    case Role::kReduction:
      return is_staged(op) && op.operand(0)->type().dims() == dims &&
             lower::is_row_reduce(op, lower_options_);
    case Role::kMovement: {
      if (!is_of_lines(op.operand(0)->type().dims())) return false;
      if (op.code() == OpCode::kReshape) return is_of_lines(mine);
      if (op.code() != OpCode::kBroadcastInDim || !(mine == dims || is_of_lines(mine)))
        return false;
      const std::vector<int64_t> places = ir::int_list(op, "broadcast_dimensions");
      for (size_t i = 0; i < places.size(); ++i) {
        if (places[i] != static_cast<int64_t>(i)) return false;
      }
      return true;
    }
    default:
      return false;
  }
}

bool Fusion::add_rows(const ir::Operation& root, std::span<const ir::Operation* const> before) {
  // How far back, so that the time stays linear in the program; and additions of a point.
  constexpr size_t kLookBack = 256;
  constexpr double kMostCost = 3000;
  const Dims& dims = root.result()->type().dims();
  Operations members{&root};
  double cost = cost_of(root, Role::kElementwise);
  int64_t elements = 0;
  for (size_t i = before.size(); i-- > 0 && before.size() - i <= kLookBack;) {
    const ir::Operation& op = *before[i];
    if (!is_row_member(op, dims, members)) continue;
    members.insert(&op);
    const Role role = roles_.at(&op);
    if (role == Role::kReduction) {
      elements = lower::elements_of_row_point(op, lower_options_);
      cost += 2;
    } else if (op.result()->type().dims() == dims) {
      cost += cost_of(op, role);
    }
  }
  if (elements == 0 || static_cast<double>(elements) * cost > kMostCost ||
      members.size() > kMaxOperations) {
    return false;
  }
  for (const ir::Operation* op : members) {
    rows_[op] = &root;
    staged_.erase(op);
  }
  return true;
}

bool Fusion::is_of_indices(const ir::Operation& op) const {
  constexpr int kMostOperations = 8;
  std::vector<const ir::Operation*> open{&op};
  for (int count = 0; !open.empty(); ++count) {
    const ir::Operation& one = *open.back();
    open.pop_back();
    if (count == kMostOperations || one.block() != &block_) return false;
    if (one.code() == OpCode::kIota) continue;
    if (one.code() == OpCode::kConstant) {
      if (in_memory(*one.result())) return false;
      continue;
    }
    const Role role = roles_.at(&one);
    if (role == Role::kNone || role == Role::kSequence || role == Role::kReduction ||
        cost_of(one, role) > 1 || is_cut(one)) {
      return false;
    }
    for (const ir::Value* operand : one.operands()) {
      if (operand->defining_op() == nullptr) return false;
      open.push_back(operand->defining_op());
    }
  }
  return true;
}

bool Fusion::is_of_updated(const ir::Operation& op) const {
  if (op.code() != OpCode::kDynamicSlice && op.code() != OpCode::kSlice &&
      op.code() != OpCode::kGather) {
    return false;
  }
  const ir::Value& from = *op.operand(0);
  const int64_t elements = element_count(from.type().dims());
  const int64_t least = lower_options_.small_limits ? kLeastUpdatedForTests : kLeastUpdated;
  if (elements < least || element_count(op.result()->type().dims()) > elements / kLittle) {
    return false;
  }
  return std::ranges::any_of(from.users(), [&](const ir::Operation* user) {
    return user->code() == OpCode::kDynamicUpdateSlice && user->operand(0) == &from &&
           user->block() == &block_;
  });
}

bool Fusion::try_inline(const ir::Operation& op) {
  if (is_of_updated(op)) return false;
  const ir::Value& value = *op.result();
  const Role role = roles_.at(&op);
  const double cost = cost_of(op, role);
  const bool is_small = element_count(value.type().dims()) == 1;
  // What stands above the diagonal, for one: large, and a few operations on indices.
  const bool is_mask =
      element_count(value.type().dims()) >= kLeastComputedMask && is_of_indices(op);

  std::vector<const ir::Operation*> users(value.users().begin(), value.users().end());
  std::sort(users.begin(), users.end());
  users.erase(std::unique(users.begin(), users.end()), users.end());
  Computed ours;
  bool is_first = true;
  bool is_shared = false;  // several kernels or several places in one
  for (const ir::Operation* user : users) {
    if (looks_through(*user, value)) continue;
    const auto it = computed_.find(user);
    if (it == computed_.end()) return false;  // not computed by a kernel of this block
    const Computed& theirs = it->second;
    Computed mine = theirs;
    if (!keeps_elements(*user, roles_.at(user), value)) mine.path = next_path_++;
    const double again = repeats_of(*user, roles_.at(user), value);
    mine.repeats = theirs.repeats * again;
    if (theirs.repeats <= 1) mine.spare = kRepeatedCost;
    if (mine.repeats >= kOften) mine.spare = std::min(mine.spare, kOftenRepeatedCost);
    if (is_first) {
      ours = mine;
      is_first = false;
      continue;
    }
    if (mine.root != ours.root || mine.path != ours.path) is_shared = true;
    ours.repeats = std::max(ours.repeats, mine.repeats);
    ours.copies = std::max(ours.copies, mine.copies);
    ours.spare = std::min(ours.spare, mine.spare);
  }
  if (is_first) return false;
  if (is_shared && element_count(value.type().dims()) >= least_transpose_ &&
      is_strided_transpose(op)) {
    return false;
  }
  if (role == Role::kReduction) {
    // As part of an elementwise kernel of the same points only, and not by a team's few points.
    return !is_shared && !rows_.contains(ours.root) && ours.root != nullptr && ours.path == 0 &&
           ours.repeats <= 1 && ++sizes_[ours.root] <= kMaxOperations &&
           (computed_[&op] = ours, true);
  }
  if (is_shared || ours.root == nullptr) {
    ours.root = nullptr;
    ours.path = next_path_++;
    ours.copies += 1;
    // One element, found by index arithmetic: what a kernel would do to load it anyway.
    const bool is_free = is_small && cost < 1;
    const int limit = is_small ? 4 * kMaxCopies : kMaxCopies;
    if (!is_free && !is_mask && (ours.copies > limit || (!is_small && cost > 1))) return false;
  }
  if (ours.repeats > 1 && !is_small && !is_mask) {
    ours.spare -= cost;
    if (ours.spare < 0) return false;
  }
  if (ours.root != nullptr && ++sizes_[ours.root] > kMaxOperations) return false;
  computed_[&op] = ours;
  return true;
}

}  // namespace hekla::plan
