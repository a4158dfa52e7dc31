// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <utility>
#include <vector>

#include "runtime/process_group/c_api/handles.h"

using namespace hekla;                        // NOLINT: the C functions stand in no namespace
using namespace hekla::process_group;         // NOLINT
using namespace hekla::process_group::c_api;  // NOLINT

namespace {

// The caller's store; its errors are what it has said on the thread that it was called on.
class CallerStore final : public rendezvous::KeyValueStore {
 public:
  explicit CallerStore(const hekla_group_store& store) : store_(store) {}
  ~CallerStore() override {
    if (store_.release != nullptr) store_.release(store_.context);
  }
  CallerStore(const CallerStore&) = delete;
  CallerStore& operator=(const CallerStore&) = delete;

  Result<std::string> get(std::string_view key, std::chrono::milliseconds timeout) override {
    return fetch(key, std::max<int64_t>(1, timeout.count()));
  }
  Result<std::string> try_get(std::string_view key) override { return fetch(key, 0); }
  Status put(std::string_view key, std::string_view value) override {
    return said(store_.put(store_.context, std::string(key).c_str(), value.data(),
                           static_cast<int64_t>(value.size())),
                key);
  }

 private:
  Result<std::string> fetch(std::string_view key, int64_t timeout_ms) {
    hekla_group_value value;
    HEKLA_RETURN_IF_ERROR(
        said(store_.get(store_.context, std::string(key).c_str(), timeout_ms, &value), key));
    return std::move(value.bytes);
  }
  static Status said(int code, std::string_view key) {
    if (code == 0) return ok_status();
    const bool is_known = code > 0 && code <= static_cast<int>(StatusCode::kUnauthenticated);
    const StatusCode known = is_known ? static_cast<StatusCode>(code) : StatusCode::kUnknown;
    return Status(known, fmt::format("the store, of key {}: {}", key, last_error()));
  }

  const hekla_group_store store_;
};

Timeout timeout_of(int64_t timeout_ms) {
  if (timeout_ms < 0) return std::nullopt;
  // What does not fit into nanoseconds waits for a hundred years.
  constexpr int64_t kLongest = int64_t{1000} * 60 * 60 * 24 * 36500;
  return std::chrono::milliseconds(std::min(timeout_ms, kLongest));
}

// Empty for null.
Result<Elements> elements_of(const hekla_group_array* array,
                             const std::shared_ptr<const void>& owner, DType dtype) {
  if (array == nullptr) return Elements{nullptr, dtype, 0, owner};
  if (array->dtype <= 0 || array->dtype >= kDTypeCount) {
    return invalid_argument("dtype {} of an array of {}", array->dtype, array->count);
  }
  if (array->count < 0 || (array->count > 0 && array->data == nullptr)) {
    return invalid_argument("an array of {} elements{}", array->count,
                            array->data == nullptr ? " at no address" : "");
  }
  return Elements{array->data, static_cast<DType>(array->dtype), array->count, owner};
}

Result<Reduction> reduction_of(int32_t op, double factor) {
  if (op < 0 || op >= kReduceOpCount) return invalid_argument("there is no reduction {}", op);
  const auto known = static_cast<ReduceOp>(op);
  return known == ReduceOp::kPremulSum ? Reduction::premul_sum(factor) : Reduction(known);
}

// Hands out what `call` makes of two arrays, one of which may be null.
template <typename Make>
int start(hekla_group* group, const hekla_group_array* out, const hekla_group_array* in,
          uint64_t keep, hekla_group_work** work, const Make& make) {
  return run([&]() -> Status {
    const std::shared_ptr<const void> owner = owner_of(keep);
    HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<ProcessGroup> own, group->get());
    const hekla_group_array* const some = in != nullptr ? in : out;
    const auto dtype = some == nullptr || some->dtype <= 0 || some->dtype >= kDTypeCount
                           ? DType::kInvalid
                           : static_cast<DType>(some->dtype);
    HEKLA_ASSIGN_OR_RETURN(const Elements to, elements_of(out, owner, dtype));
    HEKLA_ASSIGN_OR_RETURN(const Elements from, elements_of(in, owner, dtype));
    Result<Work> made = make(*own, to, from);
    HEKLA_RETURN_IF_ERROR(made.status());
    *work = new hekla_group_work{*std::move(made)};
    return ok_status();
  });
}

// The same with a reduction.
template <typename Make>
int start_reduction(hekla_group* group, const hekla_group_array* out, const hekla_group_array* in,
                    int32_t op, double factor, uint64_t keep, hekla_group_work** work,
                    const Make& make) {
  return start(group, out, in, keep, work,
               [&](ProcessGroup& own, const Elements& to, const Elements& from) -> Result<Work> {
                 HEKLA_ASSIGN_OR_RETURN(const Reduction by, reduction_of(op, factor));
                 return make(own, to, from, by);
               });
}

}  // namespace

extern "C" {

int32_t hekla_group_dtype(const char* name) {
  return static_cast<int32_t>(dtype_from_name(name).value_or(DType::kInvalid));
}

int32_t hekla_group_reduce_op(const char* name) {
  const std::optional<ReduceOp> op = reduce_op_from_name(name);
  return op ? static_cast<int32_t>(*op) : -1;
}

void hekla_group_value_set(hekla_group_value* value, const void* data, int64_t bytes) {
  value->bytes.assign(static_cast<const char*>(data), static_cast<size_t>(bytes));
}

int hekla_group_create(const hekla_group_store* store, int32_t rank, int32_t size, const char* name,
                       const char* engine, int64_t timeout_ms, hekla_group** group) {
  return run([&]() -> Status {
    auto values = std::make_shared<CallerStore>(*store);
    Options options;
    if (name != nullptr) options.name = name;
    if (engine != nullptr) options.engine = engine;
    options.timeout = timeout_of(timeout_ms).value_or(options.timeout);
    HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<ProcessGroup> made,
                           ProcessGroup::create(std::move(values), rank, size, options));
    *group = new hekla_group;
    (*group)->group = std::move(made);
    return ok_status();
  });
}

int hekla_group_subgroup(hekla_group* parent, const char* name, const int32_t* ranks, int32_t count,
                         int64_t timeout_ms, hekla_group** group) {
  return run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<ProcessGroup> own, parent->get());
    if (count < 0) return invalid_argument("a group of {} ranks", count);
    if (name == nullptr) return invalid_argument("a group of {} ranks without a name", count);
    const std::vector<int> members(ranks, ranks + count);
    HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<ProcessGroup> made,
                           own->subgroup(name, members, timeout_of(timeout_ms)));
    *group = new hekla_group;
    (*group)->group = std::move(made);
    return ok_status();
  });
}

void hekla_group_destroy(hekla_group* group) {
  if (group != nullptr) hekla_group_close(group);
  delete group;
}

void hekla_group_close(hekla_group* group) {
  std::shared_ptr<ProcessGroup> own;
  {
    const std::lock_guard lock(group->mutex);
    own.swap(group->group);
  }
  if (own != nullptr) own->shutdown();
}

int hekla_group_abort(hekla_group* group, const char* reason) {
  return run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<ProcessGroup> own, group->get());
    own->abort(reason);
    return ok_status();
  });
}

int hekla_group_status(hekla_group* group) {
  return run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<ProcessGroup> own, group->get());
    return own->status();
  });
}

int hekla_group_sequence(hekla_group* group, int64_t* sequence) {
  return run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<ProcessGroup> own, group->get());
    *sequence = static_cast<int64_t>(own->sequence());
    return ok_status();
  });
}

int hekla_group_broadcast(hekla_group* group, const hekla_group_array* x, int32_t root,
                          int64_t timeout_ms, uint64_t keep, hekla_group_work** work) {
  return start(group, x, x, keep, work,
               [&](ProcessGroup& own, const Elements& to, const Elements&) -> Result<Work> {
                 return own.broadcast(to, root, timeout_of(timeout_ms));
               });
}

int hekla_group_all_reduce(hekla_group* group, const hekla_group_array* out,
                           const hekla_group_array* in, int32_t op, double factor,
                           int64_t timeout_ms, uint64_t keep, hekla_group_work** work) {
  return start_reduction(
      group, out, in, op, factor, keep, work,
      [&](ProcessGroup& own, const Elements& to, const Elements& from, const Reduction& by) {
        return own.all_reduce(to, from, by, timeout_of(timeout_ms));
      });
}

int hekla_group_reduce(hekla_group* group, const hekla_group_array* x, int32_t root, int32_t op,
                       double factor, int64_t timeout_ms, uint64_t keep, hekla_group_work** work) {
  return start_reduction(
      group, x, x, op, factor, keep, work,
      [&](ProcessGroup& own, const Elements& to, const Elements&, const Reduction& by) {
        return own.reduce(to, root, by, timeout_of(timeout_ms));
      });
}

int hekla_group_all_gather(hekla_group* group, const hekla_group_array* out,
                           const hekla_group_array* in, int64_t timeout_ms, uint64_t keep,
                           hekla_group_work** work) {
  return start(group, out, in, keep, work,
               [&](ProcessGroup& own, const Elements& to, const Elements& from) -> Result<Work> {
                 return own.all_gather(to, from, timeout_of(timeout_ms));
               });
}

int hekla_group_gather(hekla_group* group, const hekla_group_array* out,
                       const hekla_group_array* in, int32_t root, int64_t timeout_ms, uint64_t keep,
                       hekla_group_work** work) {
  return start(group, out, in, keep, work,
               [&](ProcessGroup& own, const Elements& to, const Elements& from) -> Result<Work> {
                 return own.gather(to, from, root, timeout_of(timeout_ms));
               });
}

int hekla_group_scatter(hekla_group* group, const hekla_group_array* out,
                        const hekla_group_array* in, int32_t root, int64_t timeout_ms,
                        uint64_t keep, hekla_group_work** work) {
  return start(group, out, in, keep, work,
               [&](ProcessGroup& own, const Elements& to, const Elements& from) -> Result<Work> {
                 return own.scatter(to, from, root, timeout_of(timeout_ms));
               });
}

int hekla_group_reduce_scatter(hekla_group* group, const hekla_group_array* out,
                               const hekla_group_array* in, int32_t op, double factor,
                               int64_t timeout_ms, uint64_t keep, hekla_group_work** work) {
  return start_reduction(
      group, out, in, op, factor, keep, work,
      [&](ProcessGroup& own, const Elements& to, const Elements& from, const Reduction& by) {
        return own.reduce_scatter(to, from, by, timeout_of(timeout_ms));
      });
}

int hekla_group_all_to_all(hekla_group* group, const hekla_group_array* out,
                           const hekla_group_array* in, const int64_t* out_splits,
                           const int64_t* in_splits, int64_t timeout_ms, uint64_t keep,
                           hekla_group_work** work) {
  return start(group, out, in, keep, work,
               [&](ProcessGroup& own, const Elements& to, const Elements& from) -> Result<Work> {
                 if (out_splits == nullptr && in_splits == nullptr) {
                   return own.all_to_all(to, from, timeout_of(timeout_ms));
                 }
                 if (out_splits == nullptr || in_splits == nullptr) {
                   return invalid_argument("all_to_all with the splits of one side alone");
                 }
                 const int size = own.size();
                 return own.all_to_all(to, from, {out_splits, out_splits + size},
                                       {in_splits, in_splits + size}, timeout_of(timeout_ms));
               });
}

int hekla_group_barrier(hekla_group* group, int64_t timeout_ms, hekla_group_work** work) {
  return start(group, nullptr, nullptr, 0, work,
               [&](ProcessGroup& own, const Elements&, const Elements&) -> Result<Work> {
                 return own.barrier(timeout_of(timeout_ms));
               });
}

int hekla_group_monitored_barrier(hekla_group* group, int64_t timeout_ms) {
  return run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<ProcessGroup> own, group->get());
    return own->monitored_barrier(timeout_of(timeout_ms));
  });
}

int hekla_group_send(hekla_group* group, const hekla_group_array* x, int32_t to, uint64_t tag,
                     int64_t timeout_ms, uint64_t keep, hekla_group_work** work) {
  return start(group, x, x, keep, work,
               [&](ProcessGroup& own, const Elements&, const Elements& from) -> Result<Work> {
                 return own.send(from, to, tag, timeout_of(timeout_ms));
               });
}

int hekla_group_receive(hekla_group* group, const hekla_group_array* x, int32_t from, uint64_t tag,
                        int64_t timeout_ms, uint64_t keep, hekla_group_work** work) {
  return start(group, x, x, keep, work,
               [&](ProcessGroup& own, const Elements& to, const Elements&) -> Result<Work> {
                 return own.receive(to, from, tag, timeout_of(timeout_ms));
               });
}

}  // extern "C"
