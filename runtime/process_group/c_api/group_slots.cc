// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <utility>
#include <vector>

#include "runtime/process_group/c_api/handles.h"
#include "runtime/process_group/init.h"

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

// Hands out what `call` makes of two arrays, one of which may be null. `collective`: its name, of
// which the others hear when it is refused here; null: messages.
template <typename Make>
int start(hekla_group* group, const char* collective, const hekla_group_array* out,
          const hekla_group_array* in, uint64_t keep, hekla_group_work** work, const Make& make) {
  return run([&]() -> Status {
    const std::shared_ptr<const void> owner = owner_of(keep);
    HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<ProcessGroup> own, group->get());
    const hekla_group_array* const some = in != nullptr ? in : out;
    const auto dtype = some == nullptr || some->dtype <= 0 || some->dtype >= kDTypeCount
                           ? DType::kInvalid
                           : static_cast<DType>(some->dtype);
    const Result<Work> made = [&]() -> Result<Work> {
      HEKLA_ASSIGN_OR_RETURN(const Elements to, elements_of(out, owner, dtype));
      HEKLA_ASSIGN_OR_RETURN(const Elements from, elements_of(in, owner, dtype));
      return make(*own, to, from);
    }();
    if (!made.ok() && collective != nullptr) own->refuse(collective, made.status());
    HEKLA_RETURN_IF_ERROR(made.status());
    *work = new hekla_group_work{*made};
    return ok_status();
  });
}

// The same with a reduction.
template <typename Make>
int start_reduction(hekla_group* group, const char* collective, const hekla_group_array* out,
                    const hekla_group_array* in, int32_t op, double factor, uint64_t keep,
                    hekla_group_work** work, const Make& make) {
  return start(group, collective, out, in, keep, work,
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

int hekla_group_init(const char* method, const char* name, const char* engine, int64_t timeout_ms,
                     hekla_group** group) {
  return run([&]() -> Status {
    Options options;
    if (name != nullptr) options.name = name;
    if (engine != nullptr) options.engine = engine;
    options.timeout = timeout_of(timeout_ms).value_or(options.timeout);
    HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<ProcessGroup> made,
                           init_process_group(method == nullptr ? "env://" : method, options));
    *group = new hekla_group;
    (*group)->group = std::move(made);
    return ok_status();
  });
}

int32_t hekla_group_rank(hekla_group* group) {
  const auto own = group->get();
  return own.ok() ? (*own)->rank() : -1;
}

int32_t hekla_group_size(hekla_group* group) {
  const auto own = group->get();
  return own.ok() ? (*own)->size() : -1;
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

int hekla_group_refuse(hekla_group* group, const char* call, const char* reason) {
  return run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<ProcessGroup> own, group->get());
    own->refuse(call, invalid_argument("{}", reason));
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
  return start(group, "broadcast", x, x, keep, work,
               [&](ProcessGroup& own, const Elements& to, const Elements&) -> Result<Work> {
                 return own.broadcast(to, root, timeout_of(timeout_ms));
               });
}

int hekla_group_all_reduce(hekla_group* group, const hekla_group_array* out,
                           const hekla_group_array* in, int32_t op, double factor,
                           int64_t timeout_ms, uint64_t keep, hekla_group_work** work) {
  return start_reduction(
      group, "all_reduce", out, in, op, factor, keep, work,
      [&](ProcessGroup& own, const Elements& to, const Elements& from, const Reduction& by) {
        return own.all_reduce(to, from, by, timeout_of(timeout_ms));
      });
}

int hekla_group_reduce(hekla_group* group, const hekla_group_array* x, int32_t root, int32_t op,
                       double factor, int64_t timeout_ms, uint64_t keep, hekla_group_work** work) {
  return start_reduction(
      group, "reduce", x, x, op, factor, keep, work,
      [&](ProcessGroup& own, const Elements& to, const Elements&, const Reduction& by) {
        return own.reduce(to, root, by, timeout_of(timeout_ms));
      });
}

int hekla_group_all_gather(hekla_group* group, const hekla_group_array* out,
                           const hekla_group_array* in, int64_t timeout_ms, uint64_t keep,
                           hekla_group_work** work) {
  return start(group, "all_gather", out, in, keep, work,
               [&](ProcessGroup& own, const Elements& to, const Elements& from) -> Result<Work> {
                 return own.all_gather(to, from, timeout_of(timeout_ms));
               });
}

int hekla_group_gather(hekla_group* group, const hekla_group_array* out,
                       const hekla_group_array* in, int32_t root, int64_t timeout_ms, uint64_t keep,
                       hekla_group_work** work) {
  return start(group, "gather", out, in, keep, work,
               [&](ProcessGroup& own, const Elements& to, const Elements& from) -> Result<Work> {
                 return own.gather(to, from, root, timeout_of(timeout_ms));
               });
}

int hekla_group_scatter(hekla_group* group, const hekla_group_array* out,
                        const hekla_group_array* in, int32_t root, int64_t timeout_ms,
                        uint64_t keep, hekla_group_work** work) {
  return start(group, "scatter", out, in, keep, work,
               [&](ProcessGroup& own, const Elements& to, const Elements& from) -> Result<Work> {
                 return own.scatter(to, from, root, timeout_of(timeout_ms));
               });
}

int hekla_group_reduce_scatter(hekla_group* group, const hekla_group_array* out,
                               const hekla_group_array* in, int32_t op, double factor,
                               int64_t timeout_ms, uint64_t keep, hekla_group_work** work) {
  return start_reduction(
      group, "reduce_scatter", out, in, op, factor, keep, work,
      [&](ProcessGroup& own, const Elements& to, const Elements& from, const Reduction& by) {
        return own.reduce_scatter(to, from, by, timeout_of(timeout_ms));
      });
}

int hekla_group_all_to_all(hekla_group* group, const hekla_group_array* out,
                           const hekla_group_array* in, const int64_t* out_splits,
                           const int64_t* in_splits, int64_t timeout_ms, uint64_t keep,
                           hekla_group_work** work) {
  return start(group, "all_to_all", out, in, keep, work,
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
  return start(group, "barrier", nullptr, nullptr, 0, work,
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
  return start(group, nullptr, x, x, keep, work,
               [&](ProcessGroup& own, const Elements&, const Elements& from) -> Result<Work> {
                 return own.send(from, to, tag, timeout_of(timeout_ms));
               });
}

int hekla_group_receive(hekla_group* group, const hekla_group_array* x, int32_t from, uint64_t tag,
                        int64_t timeout_ms, uint64_t keep, hekla_group_work** work) {
  return start(group, nullptr, x, x, keep, work,
               [&](ProcessGroup& own, const Elements& to, const Elements&) -> Result<Work> {
                 return own.receive(to, from, tag, timeout_of(timeout_ms));
               });
}

int hekla_group_coalesce_begin(hekla_group* group) {
  return run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<ProcessGroup> own, group->get());
    return own->begin_coalescing();
  });
}

int hekla_group_coalesce_end(hekla_group* group, int64_t timeout_ms, hekla_group_work** work) {
  return run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<ProcessGroup> own, group->get());
    *work = new hekla_group_work{own->end_coalescing(timeout_of(timeout_ms))};
    return ok_status();
  });
}

}  // extern "C"
