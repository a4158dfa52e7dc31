// SPDX-License-Identifier: Apache-2.0
// Functions of the client's for custom calls: the FFI extension with types and user data of
// launches, and the one that takes functions of all stages. Functions stay registered for good, so
// each check has names of its own.
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "plugin_api/conformance/check.h"
#include "plugin_api/conformance/programs.h"
#include "plugin_api/conformance/session.h"
#include "plugin_api/pjrt_extensions.h"
#include "plugin_api/xla_ffi.h"

namespace hekla::conformance {
namespace {

using Floats = std::vector<float>;

// a f32[4] -> what `target` makes of it. `config`: the dictionary of a typed call.
std::string program_of(const std::string& target, const std::string& config = "") {
  const std::string attributes =
      config.empty() ? "" : " {api_version = 4 : i32, backend_config = {" + config + "}}";
  return "module @calls {\n"
         "  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
         "    %0 = stablehlo.custom_call @" +
         target + "(%a)" + attributes +
         " : (tensor<4xf32>) -> tensor<4xf32>\n"
         "    return %0 : tensor<4xf32>\n"
         "  }\n"
         "}\n";
}

// What functions saw and are told, for the one check of the process. The functions run on threads
// of the plugin.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::string wrong;                // the first thing that a function found wrong
  bool has_stream = false;          // functions get a stream, so their arrays are not the host's
  int64_t type = 0;                 // of the user data to look for
  std::vector<int64_t> run_ids;     // of calls
  std::vector<int32_t> ordinals;    // of calls
  std::vector<std::string> stages;  // of calls
  std::thread::id caller;           // of Execute
  bool may_look = true;             // a function that runs on another thread waits for this
};
Shared& shared() {
  static Shared& one = *new Shared;  // functions may outlive the check
  return one;
}

void note_wrong(const std::string& what) {
  const std::lock_guard lock(shared().mutex);
  if (shared().wrong.empty()) shared().wrong = what;
}

template <typename Args>
Args ffi_args() {
  Args args;
  std::memset(static_cast<void*>(&args), 0, sizeof(args));
  args.struct_size = sizeof(Args);
  return args;
}

XLA_FFI_Error* ffi_error(const XLA_FFI_CallFrame& frame, XLA_FFI_Error_Code code,
                         const char* message) {
  auto args = ffi_args<XLA_FFI_Error_Create_Args>();
  args.errc = code;
  args.message = message;
  return frame.api->XLA_FFI_Error_Create(&args);
}

// Whether a call of the runtime's table went well; its error is let go of.
bool is_ok(const XLA_FFI_CallFrame& frame, XLA_FFI_Error* error) {
  if (error == nullptr) return true;
  auto args = ffi_args<XLA_FFI_Error_Destroy_Args>();
  args.error = error;
  frame.api->XLA_FFI_Error_Destroy(&args);
  return false;
}

// Whether the frame only asks which version the function speaks.
bool answers_version(XLA_FFI_CallFrame& frame) {
  for (XLA_FFI_Extension_Base* node = frame.extension_start; node != nullptr; node = node->next) {
    if (node->type != XLA_FFI_Extension_Metadata) continue;
    XLA_FFI_Metadata& metadata = *reinterpret_cast<XLA_FFI_Metadata_Extension*>(node)->metadata;
    metadata.api_version.major_version = XLA_FFI_API_MAJOR;
    metadata.api_version.minor_version = 3;  // which had all that is called here
    metadata.traits = 0;
    return true;
  }
  return false;
}

bool has_stream(const XLA_FFI_CallFrame& frame) {
  auto args = ffi_args<XLA_FFI_Stream_Get_Args>();
  args.ctx = frame.ctx;
  if (!is_ok(frame, frame.api->XLA_FFI_Stream_Get(&args))) return false;
  const std::lock_guard lock(shared().mutex);
  shared().has_stream = true;
  return true;
}

// The f32[4] of an operand or a result; null after a remark.
float* four_floats(int64_t count, void** buffers, const char* what) {
  const auto* buffer = count == 1 ? static_cast<XLA_FFI_Buffer*>(buffers[0]) : nullptr;
  const bool is_right = buffer != nullptr && buffer->dtype == XLA_FFI_DataType_F32 &&
                        buffer->rank == 1 && buffer->dims[0] == 4 && buffer->data != nullptr;
  if (!is_right) note_wrong(std::string(what) + " is not one f32[4]");
  return is_right ? static_cast<float*>(buffer->data) : nullptr;
}

// result = factor * operand + added.
void compute(const XLA_FFI_CallFrame& frame, float factor, float added) {
  const float* from = four_floats(frame.args.size, frame.args.args, "the operand");
  float* to = four_floats(frame.rets.size, frame.rets.rets, "the result");
  if (from == nullptr || to == nullptr) return;
  for (int i = 0; i < 4; ++i) to[i] = factor * from[i] + added;
}

// By the attribute "factor".
XLA_FFI_Error* scale(XLA_FFI_CallFrame* frame) {
  if (answers_version(*frame) || has_stream(*frame)) return nullptr;
  const XLA_FFI_Attrs& attributes = frame->attrs;
  const bool is_named = attributes.size == 1 && attributes.types[0] == XLA_FFI_AttrType_SCALAR &&
                        std::string(attributes.names[0]->ptr, attributes.names[0]->len) == "factor";
  if (!is_named || frame->stage != XLA_FFI_ExecutionStage_EXECUTE) {
    note_wrong("the function did not get the one attribute \"factor\" in the stage execute");
    return nullptr;
  }
  const auto& factor = *static_cast<XLA_FFI_Scalar*>(attributes.attrs[0]);
  if (factor.dtype != XLA_FFI_DataType_F32) note_wrong("the attribute is no f32");
  compute(*frame, *static_cast<float*>(factor.value), 0);
  return nullptr;
}

XLA_FFI_Error* negate(XLA_FFI_CallFrame* frame) {
  if (answers_version(*frame) || has_stream(*frame)) return nullptr;
  compute(*frame, -1, 0);
  return nullptr;
}

XLA_FFI_Error* refuse(XLA_FFI_CallFrame* frame) {
  if (answers_version(*frame)) return nullptr;
  return ffi_error(*frame, XLA_FFI_Error_Code_DATA_LOSS, "the function's own words");
}

// Adds the user data of the type that is looked for (0: none), a float; 100 without it. Notes the
// launch.
XLA_FFI_Error* add_user_data(XLA_FFI_CallFrame* frame) {
  if (answers_version(*frame) || has_stream(*frame)) return nullptr;
  Shared& own = shared();
  int64_t type = 0;
  {
    std::unique_lock lock(own.mutex);
    type = own.type;
    // Not for ever: Execute may wait for the launch.
    if (std::this_thread::get_id() != own.caller) {
      own.changed.wait_for(lock, std::chrono::seconds(5), [&] { return own.may_look; });
    }
  }
  XLA_FFI_TypeId id = {type};
  auto get = ffi_args<XLA_FFI_ExecutionContext_Get_Args>();
  get.ctx = frame->ctx;
  get.type_id = &id;
  float added = 100;
  if (type != 0 && is_ok(*frame, frame->api->XLA_FFI_ExecutionContext_Get(&get))) {
    added = *static_cast<float*>(get.data);
  }
  auto run = ffi_args<XLA_FFI_RunId_Get_Args>();
  run.ctx = frame->ctx;
  auto ordinal = ffi_args<XLA_FFI_DeviceOrdinal_Get_Args>();
  ordinal.ctx = frame->ctx;
  if (!is_ok(*frame, frame->api->XLA_FFI_RunId_Get(&run)) ||
      !is_ok(*frame, frame->api->XLA_FFI_DeviceOrdinal_Get(&ordinal))) {
    note_wrong("the number of the launch or of the device is not known");
  }
  {
    const std::lock_guard lock(own.mutex);
    own.run_ids.push_back(run.run_id);
    own.ordinals.push_back(ordinal.device_ordinal);
  }
  compute(*frame, 1, added);
  return nullptr;
}

template <XLA_FFI_ExecutionStage kStage>
XLA_FFI_Error* note_stage(XLA_FFI_CallFrame* frame) {
  if (answers_version(*frame)) return nullptr;
  if (frame->stage != kStage) note_wrong("a function got the frame of another stage");
  constexpr const char* kNames[] = {"instantiate", "prepare", "initialize", "execute"};
  {
    const std::lock_guard lock(shared().mutex);
    shared().stages.emplace_back(kNames[kStage]);
  }
  if (kStage == XLA_FFI_ExecutionStage_EXECUTE) compute(*frame, 3, 0);
  return nullptr;
}

void untyped_square(void* out, const void** in) {
  const auto* from = static_cast<const float*>(in[0]);
  auto* to = static_cast<float*>(out);
  for (int i = 0; i < 4; ++i) to[i] = from[i] * from[i];
}

// The first node of a type, or NotOffered.
template <class Node>
const Node& node_of(Session& s, PJRT_Extension_Type type, const char* name) {
  s.client();
  const PJRT_Extension_Base* node = s.api()->extension_start;
  for (int i = 0; node != nullptr && i < 256; ++i, node = node->next) {
    if (node->type == type) return *reinterpret_cast<const Node*>(node);
  }
  throw NotOffered{std::string("no ") + name + " extension"};
}

const PJRT_FFI_Extension& ffi_of(Session& s) {
  return node_of<PJRT_FFI_Extension>(s, PJRT_Extension_Type_FFI, "FFI");
}

std::optional<ErrorInfo> try_register(Session& s, const std::string& target,
                                      XLA_FFI_Handler* handler) {
  const std::string platform = s.platform_name(s.client());
  auto args = make_args<PJRT_FFI_Register_Handler_Args>();
  args.target_name = target.data();
  args.target_name_size = target.size();
  args.handler = reinterpret_cast<void*>(handler);
  args.platform_name = platform.data();
  args.platform_name_size = platform.size();
  return s.take(ffi_of(s).register_handler(&args));
}

void register_handler(Session& s, const std::string& target, XLA_FFI_Handler* handler) {
  if (auto error = try_register(s, target, handler)) {
    s.refuse_unless_unimplemented("register_handler", *error);
  }
}

std::optional<ErrorInfo> try_type(Session& s, const std::string& name, int64_t& number) {
  PJRT_FFI_Type_Info info = {};
  auto args = make_args<PJRT_FFI_Type_Register_Args>();
  args.type_name = name.data();
  args.type_name_size = name.size();
  args.type_id = number;
  args.type_info = &info;
  auto error = s.take(ffi_of(s).type_register(&args));
  if (!error) number = args.type_id;
  return error;
}

int64_t new_type(Session& s, const std::string& name) {
  int64_t number = 0;
  if (auto error = try_type(s, name, number)) {
    s.refuse_unless_unimplemented("type_register", *error);
  }
  require(number != 0, "the type has the number 0");
  return number;
}

// An execute context, destroyed with this object if not before.
class Context {
 public:
  explicit Context(Session& s) : s_(s) {
    auto args = make_args<PJRT_ExecuteContext_Create_Args>();
    s_.call(HEKLA_SLOT(PJRT_ExecuteContext_Create), &args);
    context_ = args.context;
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() {
    if (context_ == nullptr) return;
    auto args = make_args<PJRT_ExecuteContext_Destroy_Args>();
    args.context = context_;
    static_cast<void>(s_.try_call(HEKLA_SLOT(PJRT_ExecuteContext_Destroy), &args));
  }
  void destroy() {
    auto args = make_args<PJRT_ExecuteContext_Destroy_Args>();
    args.context = std::exchange(context_, nullptr);
    s_.call(HEKLA_SLOT(PJRT_ExecuteContext_Destroy), &args);
  }
  std::optional<ErrorInfo> try_add(int64_t type, void* data) {
    auto args = make_args<PJRT_FFI_UserData_Add_Args>();
    args.context = context_;
    args.user_data = {type, data};
    return s_.take(ffi_of(s_).user_data_add(&args));
  }
  void add(int64_t type, float& value) {
    if (auto error = try_add(type, &value)) s_.refuse_unless_unimplemented("user_data_add", *error);
  }
  LaunchOptions options() const {
    LaunchOptions options;
    options.context = context_;
    return options;
  }

 private:
  Session& s_;
  PJRT_ExecuteContext* context_ = nullptr;
};

PJRT_Buffer* operand_on(Session& s, size_t device) {
  return s.upload_f32({1, 2, 3, 4}, {4}, s.device(device));
}

// What functions found; NotOffered where their arrays are not the host's.
void require_nothing_wrong() {
  const std::lock_guard lock(shared().mutex);
  if (shared().has_stream) {
    throw NotOffered{"functions get a stream: their arrays are the device's"};
  }
  require(shared().wrong.empty(), shared().wrong);
}

void require_result(Session& s, PJRT_Buffer* output, const Floats& wanted) {
  const Floats got = s.download_f32(output, 4);
  require_nothing_wrong();
  require(got == wanted, "wrong result, or the function did not run");
}

void check_ffi_node(Session& s) {
  const PJRT_FFI_Extension& node = ffi_of(s);
  require(node.base.struct_size >= sizeof(PJRT_FFI_Extension),
          "the node has " + std::to_string(node.base.struct_size) + " bytes");
  require(node.type_register != nullptr && node.user_data_add != nullptr &&
              node.register_handler != nullptr,
          "a member of the node is null");
}

void check_ffi_handler(Session& s) {
  register_handler(s, "hekla_check_scale", scale);
  PJRT_LoadedExecutable* twice = s.compile(program_of("hekla_check_scale", "factor = 2.0 : f32"));
  PJRT_LoadedExecutable* half = s.compile(program_of("hekla_check_scale", "factor = 0.5 : f32"));
  for (int i = 0; i < 3; ++i) {
    require_result(s, s.run(twice, {operand_on(s, 0)})[0], {2, 4, 6, 8});
    require_result(s, s.run(half, {operand_on(s, 0)})[0], {0.5, 1, 1.5, 2});
  }
}

void check_ffi_handler_error(Session& s) {
  register_handler(s, "hekla_check_refuse", refuse);
  register_handler(s, "hekla_check_negate", negate);
  PJRT_LoadedExecutable* refused = s.compile(program_of("hekla_check_refuse", "a = 1 : i32"));
  const auto error = s.execute_error(refused, {operand_on(s, 0)});
  require(error.has_value(), "the launch ended well");
  require(error->message.find("the function's own words") != std::string::npos,
          "another error: " + error->text());
  require_equal(error->code, PJRT_Error_Code_DATA_LOSS, "the error's code");
  PJRT_LoadedExecutable* negated = s.compile(program_of("hekla_check_negate", "a = 1 : i32"));
  require_result(s, s.run(negated, {operand_on(s, 0)})[0], {-1, -2, -3, -4});
}

void check_ffi_handler_again(Session& s) {
  register_handler(s, "hekla_check_again", negate);
  register_handler(s, "hekla_check_again", negate);
  PJRT_LoadedExecutable* executable =
      s.compile(program_of("hekla_check_again", "factor = 2.0 : f32"));
  require_result(s, s.run(executable, {operand_on(s, 0)})[0], {-1, -2, -3, -4});
  if (const auto error = try_register(s, "hekla_check_again", scale)) {
    require(!error->message.empty(), "refused without words");
    s.remark("another one under its name is refused: " + code_name(error->code));
  } else {
    s.remark("another one under its name is taken");
  }
  require_result(s, s.run(executable, {operand_on(s, 0)})[0], {-1, -2, -3, -4});
}

void check_ffi_types(Session& s) {
  const int64_t first = new_type(s, "hekla_check_first");
  const int64_t second = new_type(s, "hekla_check_second");
  require(first != second, "two types have one number");
  int64_t known = first;
  if (auto error = try_type(s, "hekla_check_first", known)) {
    fail("a type with the number that it has: " + error->text());
  }
  require_equal(known, first, "the number of a type that is known");
  int64_t other = second;
  require(try_type(s, "hekla_check_first", other).has_value(),
          "a type took the number of another one");
}

void check_user_data(Session& s) {
  register_handler(s, "hekla_check_user_data", add_user_data);
  shared().type = new_type(s, "hekla_check_float");
  const int64_t unused = new_type(s, "hekla_check_unused");
  PJRT_LoadedExecutable* executable = s.compile(program_of("hekla_check_user_data", "a = 1 : i32"));
  float ten = 10, twenty = 20;
  for (int round = 0; round < 2; ++round) {
    Context first(s), second(s), other(s);
    first.add(shared().type, ten);
    second.add(shared().type, twenty);
    second.add(unused, ten);
    other.add(unused, ten);
    require_result(s, s.run(executable, {operand_on(s, 0)}, first.options())[0], {11, 12, 13, 14});
    require_result(s, s.run(executable, {operand_on(s, 0)}, second.options())[0], {21, 22, 23, 24});
    // Without a context, and with one that has no value of the type.
    require_result(s, s.run(executable, {operand_on(s, 0)})[0], {101, 102, 103, 104});
    require_result(s, s.run(executable, {operand_on(s, 0)}, other.options())[0],
                   {101, 102, 103, 104});
  }
}

void check_user_data_twice(Session& s) {
  register_handler(s, "hekla_check_twice", add_user_data);
  shared().type = new_type(s, "hekla_check_float");
  float ten = 10, twenty = 20;
  Context context(s);
  context.add(shared().type, ten);
  const auto error = context.try_add(shared().type, &twenty);
  require(error.has_value(), "a second value of one type was taken");
  require(!error->message.empty(), "refused without words");
  PJRT_LoadedExecutable* executable = s.compile(program_of("hekla_check_twice", "a = 1 : i32"));
  require_result(s, s.run(executable, {operand_on(s, 0)}, context.options())[0], {11, 12, 13, 14});
}

void check_user_data_outlives_context(Session& s) {
  register_handler(s, "hekla_check_outlives", add_user_data);
  shared().type = new_type(s, "hekla_check_float");
  PJRT_LoadedExecutable* executable = s.compile(program_of("hekla_check_outlives", "a = 1 : i32"));
  float ten = 10;
  for (int round = 0; round < 3; ++round) {
    Context context(s);
    context.add(shared().type, ten);
    {
      const std::lock_guard lock(shared().mutex);
      shared().caller = std::this_thread::get_id();
      shared().may_look = false;
    }
    const Launch launch = s.execute(executable, {operand_on(s, 0)}, context.options());
    context.destroy();
    {
      const std::lock_guard lock(shared().mutex);
      shared().may_look = true;
    }
    shared().changed.notify_all();
    if (auto error = s.finish_event(launch.done)) fail("the launch: " + error->text());
    require_result(s, launch.outputs[0], {11, 12, 13, 14});
  }
}

void check_launch_info(Session& s) {
  register_handler(s, "hekla_check_launch_info", add_user_data);
  PJRT_LoadedExecutable* executable =
      s.compile(program_of("hekla_check_launch_info", "a = 1 : i32"));
  for (int i = 0; i < 4; ++i) {
    require_result(s, s.run(executable, {operand_on(s, 0)})[0], {101, 102, 103, 104});
  }
  const std::lock_guard lock(shared().mutex);
  const std::set<int64_t> ids(shared().run_ids.begin(), shared().run_ids.end());
  require_equal(ids.size(), 4, "numbers of four launches");
  require(shared().ordinals == std::vector<int32_t>(4, 0), "the first device is not number 0");
}

void check_gang_user_data(Session& s) {
  s.device(1);  // needs two
  register_handler(s, "hekla_check_gang", add_user_data);
  shared().type = new_type(s, "hekla_check_float");
  CompileSettings settings;
  settings.replicas = 2;
  settings.device_ids = {s.device_id(s.device(0)), s.device_id(s.device(1))};
  PJRT_LoadedExecutable* executable =
      s.compile(program_of("hekla_check_gang", "a = 1 : i32"), compile_options(settings));
  float ten = 10;
  Context context(s);
  context.add(shared().type, ten);
  PJRT_Buffer* const first[] = {operand_on(s, 0)};
  PJRT_Buffer* const second[] = {operand_on(s, 1)};
  PJRT_Buffer* const* lists[] = {first, second};
  PJRT_Buffer* outputs[2] = {};
  PJRT_Buffer** output_lists[] = {&outputs[0], &outputs[1]};
  PJRT_Event* events[2] = {};
  auto options = make_args<PJRT_ExecuteOptions>();
  options.context = context.options().context;
  auto args = make_args<PJRT_LoadedExecutable_Execute_Args>();
  args.executable = executable;
  args.options = &options;
  args.argument_lists = lists;
  args.num_devices = 2;
  args.num_args = 1;
  args.output_lists = output_lists;
  args.device_complete_events = events;
  s.call(HEKLA_SLOT(PJRT_LoadedExecutable_Execute), &args);
  for (int d = 0; d < 2; ++d) {
    s.own(outputs[d]);
    if (auto error = s.finish_event(events[d])) fail("the launch: " + error->text());
    require_result(s, outputs[d], {11, 12, 13, 14});
  }
  const std::lock_guard lock(shared().mutex);
  require_equal(shared().run_ids.size(), 2, "calls");
  require(shared().run_ids[0] == shared().run_ids[1], "the devices differ in the launch's number");
  std::sort(shared().ordinals.begin(), shared().ordinals.end());
  require(shared().ordinals == std::vector<int32_t>({0, 1}),
          "the devices' numbers are not 0 and 1");
}

// Only where functions run on the host, which the typed form tells.
const PJRT_Gpu_Custom_Call& custom_calls_of(Session& s) {
  const auto& node =
      node_of<PJRT_Gpu_Custom_Call>(s, PJRT_Extension_Type_Gpu_Custom_Call, "custom call");
  register_handler(s, "hekla_check_host", negate);
  PJRT_LoadedExecutable* executable = s.compile(program_of("hekla_check_host", "a = 1 : i32"));
  require_result(s, s.run(executable, {operand_on(s, 0)})[0], {-1, -2, -3, -4});
  return node;
}

void register_custom_call(Session& s, const std::string& name, int version,
                          const std::array<void*, 4>& functions) {
  const PJRT_Gpu_Custom_Call& node = custom_calls_of(s);
  require(node.custom_call != nullptr, "the node's member is null");
  auto args = make_args<PJRT_Gpu_Register_Custom_Call_Args>();
  args.function_name = name.data();
  args.function_name_size = name.size();
  args.api_version = version;
  args.handler_instantiate = functions[0];
  args.handler_prepare = functions[1];
  args.handler_initialize = functions[2];
  args.handler_execute = functions[3];
  if (auto error = s.take(node.custom_call(&args))) {
    s.refuse_unless_unimplemented("custom_call", *error);
  }
}

void check_custom_call_stages(Session& s) {
  const auto address = [](XLA_FFI_Handler* handler) { return reinterpret_cast<void*>(handler); };
  register_custom_call(s, "hekla_check_stages", 1,
                       {address(note_stage<XLA_FFI_ExecutionStage_INSTANTIATE>),
                        address(note_stage<XLA_FFI_ExecutionStage_PREPARE>),
                        address(note_stage<XLA_FFI_ExecutionStage_INITIALIZE>),
                        address(note_stage<XLA_FFI_ExecutionStage_EXECUTE>)});
  PJRT_LoadedExecutable* executable = s.compile(program_of("hekla_check_stages", "a = 1 : i32"));
  for (int i = 0; i < 2; ++i) {
    require_result(s, s.run(executable, {operand_on(s, 0)})[0], {3, 6, 9, 12});
  }
  // The first once for the executable (loaders may do it for each device), the others each launch.
  std::vector<std::string> stages = shared().stages;
  require(!stages.empty() && stages[0] == "instantiate", "the first stage is not instantiate");
  std::erase(stages, "instantiate");
  require(stages == std::vector<std::string>(
                        {"prepare", "initialize", "execute", "prepare", "initialize", "execute"}),
          "the stages of two launches: " + join(stages));
}

void check_custom_call_untyped(Session& s) {
  register_custom_call(s, "hekla_check_square", 0,
                       {nullptr, nullptr, nullptr, reinterpret_cast<void*>(untyped_square)});
  PJRT_LoadedExecutable* executable = s.compile(program_of("hekla_check_square"));
  require_result(s, s.run(executable, {operand_on(s, 0)})[0], {1, 4, 9, 16});
}

constexpr Check kFfiChecks[] = {
    {"ffi-node", "The FFI node is whole and has all its members.", check_ffi_node},
    {"ffi-handler", "A function that was registered runs with its operand, result and attribute.",
     check_ffi_handler},
    {"ffi-handler-error", "An error of a function ends the launch, with its code and words.",
     check_ffi_handler_error},
    {"ffi-handler-again", "A function may be registered twice; what is compiled keeps its own.",
     check_ffi_handler_again},
    {"ffi-types", "Types get numbers of their own, and keep them.", check_ffi_types},
    {"ffi-user-data", "A function sees the user data of its launch, and of no other.",
     check_user_data},
    {"ffi-user-data-twice", "A second value of one type is refused, and the first stays.",
     check_user_data_twice},
    {"ffi-user-data-outlives-context", "A context may be destroyed when Execute has returned.",
     check_user_data_outlives_context},
    {"ffi-launch-info", "Each launch has a number of its own, and the device has its.",
     check_launch_info},
    {"gang-user-data", "The devices of a launch share user data and the launch's number.",
     check_gang_user_data},
    {"custom-call-stages", "Functions of all stages run in their order, instantiate first.",
     check_custom_call_stages},
    {"custom-call-untyped", "An untyped function runs.", check_custom_call_untyped},
};

}  // namespace

std::span<const Check> ffi_checks() { return kFfiChecks; }

}  // namespace hekla::conformance
