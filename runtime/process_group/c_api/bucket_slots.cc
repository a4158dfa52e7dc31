// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/copy_bytes.h"
#include "runtime/process_group/c_api/handles.h"
#include "runtime/process_group/data_parallel/gradient_buckets.h"
#include "runtime/process_group/data_parallel/sharded_optimizer.h"

using namespace hekla;                        // NOLINT: the C functions stand in no namespace
using namespace hekla::process_group;         // NOLINT
using namespace hekla::process_group::c_api;  // NOLINT

// One of the two.
struct hekla_group_buckets {
  size_t parameters = 0;
  std::unique_ptr<GradientBuckets> buckets;
  std::unique_ptr<ShardedOptimizer> optimizer;
};

namespace {

hekla_group_array array_of(const Elements& x) {
  return {x.data, x.count, static_cast<int32_t>(x.dtype)};
}

hekla_group_array array_of(const ConstElements& x) {
  return {const_cast<void*>(x.data), x.count, static_cast<int32_t>(x.dtype)};
}

Result<ShardedOptimizer*> optimizer_of(const hekla_group_buckets* buckets) {
  if (buckets->optimizer != nullptr) return buckets->optimizer.get();
  return invalid_argument("buckets of gradients have no shards of parameters");
}

Result<DType> dtype_of(int32_t number) {
  if (number >= 0 && number < kDTypeCount) return static_cast<DType>(number);
  return invalid_argument("there is no dtype {}", number);
}

Result<std::vector<Parameter>> parameters_of(const hekla_group_parameter* given, int32_t count) {
  std::vector<Parameter> all;
  for (int32_t i = 0; i < count; ++i) {
    HEKLA_ASSIGN_OR_RETURN(const DType dtype, dtype_of(given[i].dtype));
    all.push_back({given[i].name, dtype, given[i].count});
  }
  return all;
}

Status make(const std::shared_ptr<ProcessGroup>& group, std::vector<Parameter> parameters,
            const hekla_group_bucket_options& given, const Reduction& by,
            hekla_group_buckets& made) {
  made.parameters = parameters.size();
  const BucketSizes sizes = {given.first_bytes, given.other_bytes};
  const Timeout timeout = timeout_of(given.timeout_ms);
  const bool missing_is_zero = given.missing_is_zero != 0;
  if (given.is_sharded == 0) {
    GradientOptions options = {sizes, by, timeout, missing_is_zero};
    HEKLA_ASSIGN_OR_RETURN(made.buckets,
                           GradientBuckets::create(group, std::move(parameters), options));
    return ok_status();
  }
  ShardOptions options = {sizes, by, timeout, missing_is_zero, {}};
  for (int32_t i = 0; i < given.state_count; ++i) {
    options.states.push_back(static_cast<DType>(given.states[i]));
  }
  HEKLA_ASSIGN_OR_RETURN(made.optimizer,
                         ShardedOptimizer::create(group, std::move(parameters), options));
  return ok_status();
}

}  // namespace

extern "C" {

int hekla_group_buckets_create(hekla_group* group, const hekla_group_parameter* parameters,
                               int32_t count, const hekla_group_bucket_options* options,
                               hekla_group_buckets** buckets) {
  return run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<ProcessGroup> own, group->get());
    const auto checked = [&]() -> Result<std::pair<std::vector<Parameter>, Reduction>> {
      HEKLA_ASSIGN_OR_RETURN(const Reduction by, reduction_of(options->op, options->factor));
      for (int32_t i = 0; i < options->state_count; ++i) {
        HEKLA_RETURN_IF_ERROR(dtype_of(options->states[i]).status());
      }
      HEKLA_ASSIGN_OR_RETURN(std::vector<Parameter> all, parameters_of(parameters, count));
      return std::pair(std::move(all), by);
    }();
    if (!checked.ok()) own->refuse("buckets of parameters", checked.status());
    HEKLA_RETURN_IF_ERROR(checked.status());
    auto made = std::make_unique<hekla_group_buckets>();
    HEKLA_RETURN_IF_ERROR(make(own, checked->first, *options, checked->second, *made));
    *buckets = made.release();
    return ok_status();
  });
}

void hekla_group_buckets_destroy(hekla_group_buckets* buckets) { delete buckets; }

int hekla_group_buckets_gradient(hekla_group_buckets* buckets, int32_t i,
                                 hekla_group_array* array) {
  return run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const Elements x, buckets->optimizer != nullptr
                                                 ? buckets->optimizer->gradient(i)
                                                 : buckets->buckets->gradient(i));
    *array = array_of(x);
    return ok_status();
  });
}

int hekla_group_buckets_parameter(hekla_group_buckets* buckets, int32_t i,
                                  hekla_group_array* array) {
  return run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const ShardedOptimizer* const optimizer, optimizer_of(buckets));
    HEKLA_ASSIGN_OR_RETURN(const Elements x, optimizer->parameter(i));
    *array = array_of(x);
    return ok_status();
  });
}

int hekla_group_buckets_ready(hekla_group_buckets* buckets, int32_t i) {
  return run([&] {
    return buckets->optimizer != nullptr ? buckets->optimizer->ready(i)
                                         : buckets->buckets->ready(i);
  });
}

int hekla_group_buckets_claim(hekla_group_buckets* buckets, int32_t i) {
  return run([&] {
    return buckets->optimizer != nullptr ? buckets->optimizer->claim(i)
                                         : buckets->buckets->claim(i);
  });
}

int hekla_group_buckets_abandon(hekla_group_buckets* buckets, const char* reason) {
  return run([&]() -> Status {
    const Status why = invalid_argument("{}", reason);
    if (buckets->optimizer != nullptr) buckets->optimizer->abandon(why);
    if (buckets->buckets != nullptr) buckets->buckets->abandon(why);
    return ok_status();
  });
}

int hekla_group_buckets_finish(hekla_group_buckets* buckets) {
  return run([&]() -> Status {
    if (buckets->buckets != nullptr) return buckets->buckets->finish();
    return invalid_argument("shards of parameters are finished by a step");
  });
}

int hekla_group_buckets_step(hekla_group_buckets* buckets,
                             int (*update)(void* context, const hekla_group_shard* shard),
                             void* context) {
  return run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(ShardedOptimizer* const optimizer, optimizer_of(buckets));
    return optimizer->step([&](const ShardedOptimizer::Shard& given) -> Status {
      std::vector<hekla_group_array> states;
      for (const Elements& state : given.states) states.push_back(array_of(state));
      const hekla_group_shard shard = {given.step, array_of(given.parameters),
                                       array_of(given.gradients), states.data(),
                                       static_cast<int32_t>(states.size())};
      if (update(context, &shard) == 0) return ok_status();
      return Status(StatusCode::kUnknown, fmt::format("the update: {}", last_error()));
    });
  });
}

int hekla_group_buckets_broadcast_parameters(hekla_group_buckets* buckets, int32_t root) {
  return run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(ShardedOptimizer* const optimizer, optimizer_of(buckets));
    return optimizer->broadcast_parameters(root);
  });
}

int hekla_group_buckets_gather_state(hekla_group_buckets* buckets, int32_t which,
                                     const hekla_group_array* into) {
  return run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(ShardedOptimizer* const optimizer, optimizer_of(buckets));
    // A number below 0 becomes one that there is not.
    HEKLA_ASSIGN_OR_RETURN(const std::vector<HostArray> all,
                           optimizer->gather_state(static_cast<size_t>(which)));
    for (size_t i = 0; i < all.size(); ++i) {
      HEKLA_ASSIGN_OR_RETURN(const Elements to, elements_of(&into[i], nullptr, all[i].dtype()));
      if (to.dtype != all[i].dtype() || to.count != all[i].size()) {
        return invalid_argument("state {} of parameter {}: an array of {}[{}] for {}", which, i,
                                dtype_name(to.dtype), to.count, all[i].shape());
      }
      copy_bytes(to.data, all[i].data(), to.size_bytes());
    }
    return ok_status();
  });
}

int hekla_group_buckets_set_state(hekla_group_buckets* buckets, int32_t which,
                                  const hekla_group_array* from) {
  return run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(ShardedOptimizer* const optimizer, optimizer_of(buckets));
    std::vector<HostArray> all;
    for (size_t i = 0; i < buckets->parameters; ++i) {
      HEKLA_ASSIGN_OR_RETURN(const Elements x, elements_of(&from[i], nullptr, DType::kInvalid));
      all.push_back(HostArray::wrap(x.dtype, {x.count}, nullptr, x.data));
    }
    return optimizer->set_state(static_cast<size_t>(which), all);
  });
}

int64_t hekla_group_buckets_steps(hekla_group_buckets* buckets) {
  return buckets->optimizer == nullptr ? 0 : buckets->optimizer->steps();
}

void hekla_group_buckets_set_steps(hekla_group_buckets* buckets, int64_t steps) {
  if (buckets->optimizer != nullptr) buckets->optimizer->set_steps(steps);
}

int64_t hekla_group_buckets_state_bytes(hekla_group_buckets* buckets) {
  return buckets->optimizer == nullptr ? 0 : buckets->optimizer->state_bytes();
}

int64_t hekla_group_buckets_count(hekla_group_buckets* buckets) {
  return static_cast<int64_t>(buckets->optimizer != nullptr ? buckets->optimizer->bucket_count()
                                                            : buckets->buckets->bucket_count());
}

}  // extern "C"
