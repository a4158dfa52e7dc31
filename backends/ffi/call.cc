// SPDX-License-Identifier: Apache-2.0
#include "backends/ffi/call.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/ffi/api.h"
#include "backends/ffi/attributes.h"
#include "backends/ffi/registry.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::ffi {

struct UntypedStatus {
  std::optional<std::string> error;
};

enum class CallVersion { kOriginal, kStatusReturning, kUnified, kTyped };

namespace {

using Version = CallVersion;

const ir::DictionaryValue* dictionary_of(const ir::Operation& op) {
  for (const char* name : {"mhlo.backend_config", "backend_config"}) {
    if (const auto* found = op.attribute(name).get<ir::DictionaryValue>()) return found;
  }
  return nullptr;
}

// JAX marks calls of typed handlers by the dictionary alone.
Version version_of(const ir::Operation& op) {
  if (dictionary_of(op) != nullptr) return Version::kTyped;
  const std::string version = ir::text_value(op, "api_version");
  if (version == "API_VERSION_TYPED_FFI") return Version::kTyped;
  if (version == "API_VERSION_STATUS_RETURNING") return Version::kStatusReturning;
  if (version == "API_VERSION_STATUS_RETURNING_UNIFIED") return Version::kUnified;
  return Version::kOriginal;
}

// A call that does not say otherwise goes to the handler that is there: an empty dictionary is left
// out of some forms of a program.
bool is_typed(const Target& target, Version version) {
  if (version == Version::kTyped) return true;
  return version == Version::kOriginal && target.untyped == nullptr;
}

Status no_target(const std::string& name) {
  const std::string platform = Registry::of_process().platform();
  return unimplemented(
      "no function is registered for the custom call target {} on the platform {}; "
      "jax.ffi.register_ffi_target(\"{}\", function, platform=\"{}\") registers one, before the "
      "program is compiled",
      name, platform, name, platform);
}

std::vector<CallArray> arrays_of(const std::vector<ir::Type>& types) {
  std::vector<CallArray> arrays;
  for (const ir::Type& type : types) {
    if (type.is_token()) {
      arrays.emplace_back();
    } else {
      arrays.push_back({type.dtype(), type.dims(), nullptr});
    }
  }
  return arrays;
}

std::vector<ir::Type> operand_leaves(const ir::Operation& op) {
  std::vector<ir::Type> types;
  for (const ir::Value* operand : op.operands()) types.push_back(operand->type());
  return ir::flat_types(types);
}

// The operands or results of a frame.
template <typename Kind>
struct Buffers {
  explicit Buffers(std::span<const CallArray> arrays) {
    types.assign(arrays.size(), static_cast<Kind>(1));
    buffers.reserve(arrays.size());
    for (const CallArray& array : arrays) {
      buffers.push_back({sizeof(XLA_FFI_Buffer), nullptr, to_data_type(array.dtype), array.data,
                         static_cast<int64_t>(array.dims.size()),
                         const_cast<int64_t*>(array.dims.data())});
      pointers.push_back(&buffers.back());
    }
  }
  int64_t size() const { return static_cast<int64_t>(types.size()); }

  std::vector<XLA_FFI_Buffer> buffers;
  std::vector<Kind> types;
  std::vector<void*> pointers;
};

Status await(XLA_FFI_Future* future) {
  const std::unique_ptr<XLA_FFI_Future> owned(future);
  std::unique_lock lock(owned->shared->mutex);
  owned->shared->changed.wait(lock, [&] { return owned->shared->result.has_value(); });
  return *owned->shared->result;
}

}  // namespace

class CallSite {
 public:
  static Result<std::unique_ptr<const CallSite>> make(const ir::Operation& op) {
    auto site = std::unique_ptr<CallSite>(new CallSite);
    site->name_ = ir::text_value(op, "call_target_name");
    const std::optional<Target> target = Registry::of_process().find(site->name_);
    if (!target) return no_target(site->name_);
    site->target_ = *target;
    site->version_ = version_of(op);
    if (is_typed(*target, site->version_)) site->version_ = Version::kTyped;
    site->opaque_ = ir::text_value(op, "backend_config");
    if (const ir::DictionaryValue* dictionary = dictionary_of(op)) {
      Result<Attributes> attributes = Attributes::make(*dictionary);
      if (!attributes.ok()) return site->named(attributes.status());
      site->attributes_ = *std::move(attributes);
    }
    HEKLA_RETURN_IF_ERROR(site->named(site->check(op)));
    return std::unique_ptr<const CallSite>(std::move(site));
  }

  Status instantiate(const ir::Operation& op) const {
    if (version_ != Version::kTyped) return ok_status();
    const std::vector<ir::Type> operands = operand_leaves(op);
    const std::vector<ir::Type> results = ir::flat_types(op.result_types());
    XLA_FFI_ExecutionContext context;
    context.states[XLA_FFI_ExecutionStage_INSTANTIATE] = &state_;
    return run_stage(XLA_FFI_ExecutionStage_INSTANTIATE, target_.handler.instantiate, context,
                     arrays_of(operands), arrays_of(results));
  }

  Status run_stage(XLA_FFI_ExecutionStage stage, XLA_FFI_Handler* handler,
                   XLA_FFI_ExecutionContext& context, std::span<const CallArray> operands,
                   std::span<const CallArray> results) const {
    if (handler == nullptr) return ok_status();
    Buffers<XLA_FFI_ArgType> in(operands);
    Buffers<XLA_FFI_RetType> out(results);
    XLA_FFI_CallFrame frame = empty_frame();
    frame.ctx = &context;
    frame.stage = stage;
    frame.attrs = attributes_.view();
    frame.args.size = in.size();
    frame.args.types = in.types.data();
    frame.args.args = in.pointers.data();
    frame.rets.size = out.size();
    frame.rets.types = out.types.data();
    frame.rets.rets = out.pointers.data();
    Status status = take_error(handler(&frame));
    if (frame.future != nullptr) {
      const Status later = await(frame.future);
      if (status.ok()) status = later;
    }
    return named(status);
  }

  Status run_untyped(std::span<const CallArray> operands,
                     std::span<const CallArray> results) const {
    std::vector<const void*> in;
    std::vector<void*> out;
    for (const CallArray& operand : operands) in.push_back(operand.data);
    for (const CallArray& result : results) out.push_back(result.data);
    void* const to = out.size() == 1 ? out.front() : out.data();
    UntypedStatus status;
    switch (version_) {
      case Version::kStatusReturning:
        reinterpret_cast<UntypedCall::StatusReturning*>(target_.untyped)(to, in.data(), &status);
        break;
      case Version::kUnified:
        reinterpret_cast<UntypedCall::Unified*>(target_.untyped)(to, in.data(), opaque_.data(),
                                                                 opaque_.size(), &status);
        break;
      default:
        reinterpret_cast<UntypedCall::Original*>(target_.untyped)(to, in.data());
    }
    if (!status.error) return ok_status();
    return named(Status(StatusCode::kInternal, *status.error));
  }

  bool is_typed_call() const { return version_ == Version::kTyped; }
  const XLA_FFI_Handler_Bundle& handler() const { return target_.handler; }
  State* state() const { return &state_; }

 private:
  CallSite() = default;

  Status check(const ir::Operation& op) const {
    const bool is_there = version_ == Version::kTyped ? target_.handler.execute != nullptr
                                                      : target_.untyped != nullptr;
    if (!is_there) {
      return invalid_argument("the call is {}, the function that is registered is not",
                              version_ == Version::kTyped ? "typed (API version 4)" : "untyped");
    }
    for (const std::vector<ir::Type>& types :
         {operand_leaves(op), ir::flat_types(op.result_types())}) {
      for (const ir::Type& type : types) {
        const bool is_array = type.is_static_tensor() && type.quantization() == nullptr &&
                              to_data_type(type.dtype()) != XLA_FFI_DataType_INVALID;
        if (!is_array && !type.is_token()) {
          return unimplemented("functions take no {}", type.to_string());
        }
      }
    }
    return ok_status();
  }

  Status named(const Status& status) const {
    return status.with_context(fmt::format("custom call target {}", name_));
  }

  std::string name_;
  Target target_;
  Version version_ = Version::kTyped;
  std::string opaque_;  // of untyped calls
  Attributes attributes_;
  mutable State state_;  // written by instantiate() alone
};

Status check_call(const ir::Operation& op) { return CallSite::make(op).status(); }

Calls::~Calls() = default;

Result<std::shared_ptr<const Calls>> Calls::create(
    std::span<const ir::Module* const> modules,
    const std::function<bool(const ir::Operation&)>& is_call) {
  const std::shared_ptr<Calls> calls(new Calls);
  Status status;
  const auto add = [&](const ir::Operation& op) {
    if (!status.ok() || op.code() != ir::OpCode::kCustomCall || !is_call(op)) return;
    if (calls->sites_.contains(&op)) return;
    Result<std::unique_ptr<const CallSite>> site = CallSite::make(op);
    status = site.status();
    if (status.ok()) status = (*site)->instantiate(op);
    if (status.ok()) calls->sites_[&op] = *std::move(site);
  };
  for (const ir::Module* module : modules) {
    for (const auto& function : module->functions) ir::walk(function->body(), add);
  }
  HEKLA_RETURN_IF_ERROR(status);
  return calls->sites_.empty() ? nullptr : std::shared_ptr<const Calls>(calls);
}

struct LaunchCalls::SiteStates {
  std::once_flag once;
  State prepared, initialized;
  Status status;  // of the two stages
};

LaunchCalls::LaunchCalls(CallsRef calls, LaunchInfo info)
    : calls_(std::move(calls)), info_(std::move(info)) {}
LaunchCalls::~LaunchCalls() = default;

LaunchCalls::SiteStates& LaunchCalls::states_of(const CallSite& site) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<SiteStates>& states = states_[&site];
  if (states == nullptr) states = std::make_unique<SiteStates>();
  return *states;
}

Status LaunchCalls::run(const ir::Operation& op, std::span<const CallArray> operands,
                        std::span<const CallArray> results) {
  const auto it = calls_->sites_.find(&op);
  if (it == calls_->sites_.end()) {
    return internal_error("a custom call that the executable did not instantiate");
  }
  const CallSite& site = *it->second;
  if (!site.is_typed_call()) return site.run_untyped(operands, results);
  SiteStates& states = states_of(site);
  XLA_FFI_ExecutionContext context;
  context.launch = &info_;
  context.states = {site.state(), &states.prepared, &states.initialized};
  std::call_once(states.once, [&] {
    const XLA_FFI_Handler_Bundle& handler = site.handler();
    states.status =
        site.run_stage(XLA_FFI_ExecutionStage_PREPARE, handler.prepare, context, operands, results);
    if (!states.status.ok()) return;
    states.status = site.run_stage(XLA_FFI_ExecutionStage_INITIALIZE, handler.initialize, context,
                                   operands, results);
  });
  HEKLA_RETURN_IF_ERROR(states.status);
  return site.run_stage(XLA_FFI_ExecutionStage_EXECUTE, site.handler().execute, context, operands,
                        results);
}

}  // namespace hekla::ffi
