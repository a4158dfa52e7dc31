// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "runtime/checkpoint/c_api/handles.h"
#include "runtime/checkpoint/manager/checkpoint_manager.h"

using namespace hekla;              // NOLINT: the C functions stand in no namespace
using namespace hekla::checkpoint;  // NOLINT
using Json = nlohmann::json;

struct hekla_checkpoint_manager {
  std::unique_ptr<CheckpointManager> manager;
};
struct hekla_checkpoint_save_handle {
  std::shared_ptr<SaveHandle> handle;
};
struct hekla_checkpoint_restored {
  Restored restored;
};

namespace {

// Takes known members out of a JSON object; what is left at the end is a mistake of the caller.
class Fields {
 public:
  Fields(Json json, std::string what) : json_(std::move(json)), what_(std::move(what)) {}

  template <typename T>
  void take(const char* name, T* value) {
    const auto found = json_.find(name);
    if (found == json_.end()) return;
    if (!found->is_null()) *value = found->get<T>();
    json_.erase(found);
  }
  template <typename Duration>
  void take_seconds(const char* name, Duration* value) {
    std::optional<double> seconds;
    take_optional(name, &seconds);
    if (seconds) {
      *value = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
    }
  }
  template <typename T>
  void take_optional(const char* name, std::optional<T>* value) {
    const auto found = json_.find(name);
    if (found == json_.end()) return;
    if (!found->is_null()) *value = found->get<T>();
    json_.erase(found);
  }
  std::optional<Json> take_json(const char* name) {
    const auto found = json_.find(name);
    if (found == json_.end()) return std::nullopt;
    std::optional<Json> value;
    if (!found->is_null()) value = *found;
    json_.erase(found);
    return value;
  }
  Status finish() const {
    if (json_.empty()) return ok_status();
    return invalid_argument("{} has no \"{}\"", what_, json_.begin().key());
  }

 private:
  Json json_;
  std::string what_;
};

Result<Json> parse_object(const char* text, const char* what) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return invalid_argument("{}: this is no JSON object: {}", what, text);
  return json;
}

Result<BusyPolicy> busy_policy(std::string_view text) {
  if (text == "skip") return BusyPolicy::kSkip;
  if (text == "wait") return BusyPolicy::kWait;
  if (text == "replace") return BusyPolicy::kReplace;
  return invalid_argument("on_busy is wait, skip or replace, not {}", text);
}

Status take_how_much(Fields& fields, const char* name, HowMuch* how_much) {
  std::string text = "none";
  fields.take(name, &text);
  if (text != "none" && text != "sample" && text != "all") {
    return invalid_argument("{} is none, sample or all, not {}", name, text);
  }
  *how_much = text == "none" ? HowMuch::kNone : text == "sample" ? HowMuch::kSample : HowMuch::kAll;
  return ok_status();
}

Status take_retention(Fields& fields, Retention* retention) {
  fields.take_optional("max_to_keep", &retention->last);
  fields.take("keep_period", &retention->every_steps);
  fields.take_seconds("keep_seconds", &retention->every_time);
  fields.take_seconds("keep_newer_than_seconds", &retention->newer_than);
  fields.take("keep_steps", &retention->steps);
  fields.take("min_valid", &retention->min_valid);
  const std::optional<Json> best = fields.take_json("keep_best");
  if (!best) return ok_status();
  Fields of_best(*best, "keep_best");
  retention->best.emplace();
  std::string mode = "max";
  of_best.take("metric", &retention->best->metric);
  of_best.take("count", &retention->best->count);
  of_best.take("mode", &mode);
  of_best.take("keep_without_metric", &retention->best->keep_without_metric);
  if (mode != "max" && mode != "min") {
    return invalid_argument("keep_best: the mode is max or min, not {}", mode);
  }
  retention->best->is_lowest_best = mode == "min";
  return of_best.finish();
}

Status take_options(Fields& fields, ManagerOptions* options) {
  fields.take("save_interval", &options->save.every_steps);
  fields.take("save_steps", &options->save.steps);
  fields.take_seconds("save_seconds", &options->save.every_time);
  fields.take("continuous", &options->save.continuous);
  fields.take_seconds("min_interval_seconds", &options->save.min_interval);
  HEKLA_RETURN_IF_ERROR(take_retention(fields, &options->retention));
  fields.take("async_queue_size", &options->saver.max_in_flight);
  std::string busy = "wait";
  fields.take("on_busy", &busy);
  HEKLA_ASSIGN_OR_RETURN(options->busy_policy, busy_policy(busy));
  fields.take("overwrite", &options->overwrite);
  fields.take("preemption_signals", &options->preemption_signals);
  fields.take_seconds("preemption_grace_seconds", &options->preemption_grace);
  fields.take_seconds("preemption_reuse_seconds", &options->preemption_reuse);
  fields.take("continue_on_error", &options->continue_on_error);
  fields.take("max_failures", &options->max_failures);
  fields.take("metadata", &options->metadata);
  std::string priority = "background";
  fields.take("save_priority", &priority);
  if (priority != "background" && priority != "normal") {
    return invalid_argument("save_priority is background or normal, not {}", priority);
  }
  options->saver.writer.background = priority == "background";
  fields.take("staging_bytes", &options->saver.writer.staging_bytes);
  fields.take("bandwidth_limit", &options->saver.writer.bandwidth_limit);
  fields.take("background_bandwidth", &options->saver.writer.background_bandwidth);
  fields.take_seconds("group_deadline_seconds", &options->group_deadline);
  HEKLA_RETURN_IF_ERROR(
      take_how_much(fields, "verify_after_write", &options->saver.checks.verify_after_write));
  HEKLA_RETURN_IF_ERROR(
      take_how_much(fields, "check_replicas", &options->saver.checks.check_replicas));
  fields.take("frozen", &options->saver.plan.frozen);
  if (const auto hints = fields.take_json("compress")) {
    for (const Json& hint : *hints) {
      const std::string how = hint.at(1).get<std::string>();
      if (how != "none" && how != "zstd" && how != "auto") {
        return invalid_argument("compress: \"{}\" is none, zstd or auto, not {}",
                                hint.at(0).get<std::string>(), how);
      }
      options->saver.plan.compress.push_back(
          {hint.at(0).get<std::string>(), how == "none"   ? Compression::kNone
                                          : how == "zstd" ? Compression::kZstd
                                                          : Compression::kAuto});
    }
  }
  if (const auto hints = fields.take_json("tile_hints")) {
    for (const Json& hint : *hints) {
      options->saver.plan.tile_hints.push_back(
          {hint.at(0).get<std::string>(), hint.at(1).get<Dims>()});
    }
  }
  return fields.finish();
}

Result<RestoreRequest> request_of(const char* text) {
  HEKLA_ASSIGN_OR_RETURN(Json json, parse_object(text, "a request to restore"));
  Fields fields(std::move(json), "a request to restore");
  RestoreRequest request;
  fields.take("only", &request.only);
  fields.take("strict", &request.strict);
  if (const auto renames = fields.take_json("renames")) {
    for (const Json& rename : *renames) {
      request.renames.push_back({rename.at(0).get<std::string>(), rename.at(1).get<std::string>()});
    }
  }
  if (const auto targets = fields.take_json("targets")) {
    for (const Json& each : *targets) {
      Fields of_target(each, "a target");
      RestoreTarget target;
      of_target.take("name", &target.name);
      std::optional<std::string> dtype;
      of_target.take_optional("dtype", &dtype);
      if (dtype) {
        target.dtype = dtype_from_name(*dtype);
        if (!target.dtype) {
          return invalid_argument("\"{}\": there is no dtype {}", target.name, *dtype);
        }
      }
      of_target.take_optional("shape", &target.shape);
      if (const auto boxes = of_target.take_json("boxes")) {
        for (const Json& box : *boxes) {
          target.boxes.push_back({{box.at(0).get<Dims>(), box.at(1).get<Dims>()}, {}});
        }
        target.nothing_here = boxes->empty();
      }
      HEKLA_RETURN_IF_ERROR(of_target.finish());
      request.targets.push_back(std::move(target));
    }
  }
  HEKLA_RETURN_IF_ERROR(fields.finish());
  return request;
}

std::string describe(const Restored& restored) {
  const RestoreReport& report = restored.tensors;
  Json json = {{"step", restored.step},           {"tensors", Json::array()},
               {"missing", report.missing},       {"unexpected", report.unexpected},
               {"mismatched", report.mismatched}, {"bytes_wanted", report.bytes_wanted},
               {"bytes_read", report.bytes_read}, {"items", items_text(restored.items)}};
  for (const RestoredTensor& tensor : report.tensors) {
    Json boxes = Json::array();
    for (size_t i = 0; i < tensor.arrays.size(); ++i) {
      const Dims start =
          i < tensor.boxes.size() ? tensor.boxes[i].start : Dims(tensor.arrays[i].dims().size(), 0);
      boxes.push_back({{"start", start},
                       {"dims", tensor.arrays[i].dims()},
                       {"dtype", dtype_name(tensor.arrays[i].dtype())}});
    }
    json["tensors"].push_back({{"name", tensor.name}, {"boxes", std::move(boxes)}});
  }
  return json.dump();
}

// For calls whose JSON may hold anything.
template <typename Body>
int run_json(const Body& body) noexcept {
  return c_api::run([&]() -> Status {
    try {
      return body();
    } catch (const Json::exception& error) {
      return invalid_argument("{}", error.what());
    }
  });
}

Deadline deadline_of(double seconds) {
  if (seconds < 0) return Deadline::never();
  return Deadline::in(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds)));
}

}  // namespace

int hekla_checkpoint_manager_open(const char* root, const char* options_json, int32_t rank,
                                  int32_t world_size, const char* store,
                                  hekla_checkpoint_manager** opened) {
  return run_json([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(Json json, parse_object(options_json, "options"));
    Fields fields(std::move(json), "CheckpointManager");
    ManagerOptions options;
    options.saver.writer_version = "hekla 0.1.0, Python";
    HEKLA_RETURN_IF_ERROR(take_options(fields, &options));
    const Deadline deadline = Deadline::in(options.group_deadline);
    std::unique_ptr<rendezvous::Group> group;
    if (world_size < 0) {
      HEKLA_ASSIGN_OR_RETURN(group, rendezvous::Group::from_environment(deadline));
    } else if (world_size == 1) {
      group = rendezvous::Group::alone();
    } else {
      HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<rendezvous::Store> opened_store,
                             rendezvous::open_store(store));
      HEKLA_ASSIGN_OR_RETURN(
          group, rendezvous::Group::form(std::move(opened_store), rank, world_size, deadline));
    }
    HEKLA_ASSIGN_OR_RETURN(auto manager,
                           CheckpointManager::open(posix_io(), std::move(group), root, options));
    *opened = new hekla_checkpoint_manager{std::move(manager)};
    return ok_status();
  });
}

void hekla_checkpoint_manager_destroy(hekla_checkpoint_manager* manager) { delete manager; }

int hekla_checkpoint_manager_should_save(hekla_checkpoint_manager* manager, int64_t step,
                                         int32_t* should) {
  return c_api::run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const bool answer, manager->manager->should_save(step));
    *should = answer ? 1 : 0;
    return ok_status();
  });
}

int hekla_checkpoint_manager_save(hekla_checkpoint_manager* manager, int64_t step,
                                  hekla_checkpoint_state* state, const char* metrics_json,
                                  hekla_checkpoint_save_handle** save) {
  return run_json([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const Json json, parse_object(metrics_json, "metrics"));
    const auto metrics = json.get<std::map<std::string, double>>();
    HEKLA_ASSIGN_OR_RETURN(
        auto handle, manager->manager->save_async(step, std::exchange(state->state, {}), metrics));
    *save = new hekla_checkpoint_save_handle{std::move(handle)};
    return ok_status();
  });
}

int hekla_checkpoint_manager_save_now(hekla_checkpoint_manager* manager, int64_t step,
                                      hekla_checkpoint_state* state, const char* metrics_json) {
  return run_json([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const Json json, parse_object(metrics_json, "metrics"));
    const auto metrics = json.get<std::map<std::string, double>>();
    return manager->manager->save(step, std::exchange(state->state, {}), metrics);
  });
}

int hekla_checkpoint_manager_exchange(hekla_checkpoint_manager* manager, const char* text,
                                      char** json) {
  return c_api::run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const std::vector<std::string> texts, manager->manager->exchange(text));
    *json = c_api::give(Json(texts).dump());
    return ok_status();
  });
}

int hekla_checkpoint_manager_steps(hekla_checkpoint_manager* manager, char** json) {
  return c_api::run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, manager->manager->all_steps());
    *json = c_api::give(Json(steps).dump());
    return ok_status();
  });
}

int hekla_checkpoint_manager_pin(hekla_checkpoint_manager* manager, int64_t step, int32_t pinned) {
  return c_api::run(
      [&] { return pinned != 0 ? manager->manager->pin(step) : manager->manager->unpin(step); });
}

int hekla_checkpoint_manager_reached_preemption(hekla_checkpoint_manager* manager, int64_t step,
                                                int32_t* reached) {
  return c_api::run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const bool answer, manager->manager->reached_preemption(step));
    *reached = answer ? 1 : 0;
    return ok_status();
  });
}

void hekla_checkpoint_manager_request_preemption(hekla_checkpoint_manager* manager) {
  manager->manager->request_preemption();
}

int hekla_checkpoint_manager_save_for_preemption(hekla_checkpoint_manager* manager, int64_t step,
                                                 hekla_checkpoint_state* state,
                                                 int32_t* exit_code) {
  return c_api::run([&] {
    *exit_code = manager->manager->save_for_preemption(step, std::exchange(state->state, {}));
    return ok_status();
  });
}

int hekla_checkpoint_manager_wait(hekla_checkpoint_manager* manager, double seconds) {
  return c_api::run([&] { return manager->manager->wait(deadline_of(seconds)); });
}

int hekla_checkpoint_manager_close(hekla_checkpoint_manager* manager) {
  return c_api::run([&] { return manager->manager->close(); });
}

int hekla_checkpoint_manager_restore(hekla_checkpoint_manager* manager, int64_t step,
                                     const char* request_json,
                                     hekla_checkpoint_restored** restored) {
  return run_json([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const RestoreRequest request, request_of(request_json));
    const std::optional<int64_t> which = step < 0 ? std::nullopt : std::optional(step);
    HEKLA_ASSIGN_OR_RETURN(Restored result, manager->manager->restore(request, which));
    *restored = new hekla_checkpoint_restored{std::move(result)};
    return ok_status();
  });
}

void hekla_checkpoint_restored_destroy(hekla_checkpoint_restored* restored) { delete restored; }

int hekla_checkpoint_restored_info(hekla_checkpoint_restored* restored, char** json) {
  return c_api::run([&] {
    *json = c_api::give(describe(restored->restored));
    return ok_status();
  });
}

int hekla_checkpoint_restored_data(hekla_checkpoint_restored* restored, int64_t tensor, int64_t box,
                                   void** data, int64_t* bytes) {
  return c_api::run([&] {
    HostArray& array = restored->restored.tensors.tensors.at(static_cast<size_t>(tensor))
                           .arrays.at(static_cast<size_t>(box));
    *data = array.mutable_data();
    *bytes = array.size_bytes();
    return ok_status();
  });
}

void hekla_checkpoint_save_destroy(hekla_checkpoint_save_handle* save) { delete save; }

const char* hekla_checkpoint_save_stage(hekla_checkpoint_save_handle* save) {
  return save_stage_name(save->handle->stage()).data();
}

void hekla_checkpoint_save_progress(hekla_checkpoint_save_handle* save, int64_t* done,
                                    int64_t* total, double* blocked_seconds,
                                    double* total_seconds) {
  const SaveProgress progress = save->handle->progress();
  const SaveTimes times = save->handle->times();
  *done = progress.bytes_done;
  *total = progress.bytes_total;
  *blocked_seconds = times.blocked_seconds;
  *total_seconds = times.total_seconds;
}

int hekla_checkpoint_save_wait(hekla_checkpoint_save_handle* save, double seconds,
                               int32_t staged_only) {
  return c_api::run([&] {
    const Deadline deadline = deadline_of(seconds);
    return staged_only != 0 ? save->handle->wait_staged(deadline) : save->handle->wait(deadline);
  });
}

int hekla_checkpoint_save_error(hekla_checkpoint_save_handle* save) {
  return c_api::run([&] { return save->handle->error(); });
}
