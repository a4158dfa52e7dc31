// SPDX-License-Identifier: Apache-2.0
// Compilation and executables.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "plugin_api/conformance/check.h"
#include "plugin_api/conformance/programs.h"
#include "plugin_api/conformance/session.h"

namespace hekla::conformance {
namespace {

void require_adds(Session& s, PJRT_LoadedExecutable* executable) {
  PJRT_Buffer* a = s.upload_f32({1, 2, 3, 4}, {4});
  PJRT_Buffer* b = s.upload_f32({10, 20, 30, 40}, {4});
  const auto outputs = s.run(executable, {a, b});
  require_equal(outputs.size(), 1, "outputs");
  require(s.download_f32(outputs[0], 4) == std::vector<float>({11, 22, 33, 44}), "wrong result");
}

// The compile must fail with words and leave no executable.
ErrorInfo require_refused(Session& s, std::string_view code, std::string_view format,
                          std::string_view options, const std::string& what) {
  PJRT_LoadedExecutable* executable = nullptr;
  auto error = s.try_compile(code, format, options, &executable);
  require(error.has_value(), what + " was compiled");
  require(!error->message.empty(), what + " was refused without words");
  require(executable == nullptr, "a failed compile wrote an executable");
  return *error;
}

void check_text(Session& s) { require_adds(s, s.compile(kAdd)); }
void check_bytecode(Session& s) { require_adds(s, s.compile(add_bytecode_new())); }
void check_old_bytecode(Session& s) { require_adds(s, s.compile(add_bytecode_old())); }

void check_mhlo(Session& s) {
  PJRT_LoadedExecutable* executable = nullptr;
  if (auto error = s.try_compile(kMhlo, "mlir", compile_options({}), &executable)) {
    require(!error->message.empty(), "refused without words");
    throw NotOffered{error->text()};
  }
  const auto outputs = s.run(executable, {s.upload_f32({1}, {})});
  require(s.download_f32(outputs[0], 1) == std::vector<float>({3}), "wrong result");
}

void check_hlo(Session& s) {
  PJRT_LoadedExecutable* executable = nullptr;
  if (auto error = s.try_compile(add_hlo_proto(), "hlo", compile_options({}), &executable)) {
    require(error->code == PJRT_Error_Code_INVALID_ARGUMENT ||
                error->code == PJRT_Error_Code_UNIMPLEMENTED,
            error->text());
    require(!error->message.empty(), "refused without words");
    throw NotOffered{error->text()};
  }
  require_adds(s, executable);
}

void check_unknown_format(Session& s) {
  const auto error =
      require_refused(s, {}, "invalid", compile_options({}), "the format \"invalid\"");
  require_equal(error.code, PJRT_Error_Code_INVALID_ARGUMENT, "code");
}

void check_bad_options(Session& s) {
  const auto error =
      require_refused(s, kAdd, "mlir", "invalid compile options", "a program with broken options");
  require_equal(error.code, PJRT_Error_Code_INVALID_ARGUMENT, "code");
}

void check_no_assignment(Session& s) {
  CompileSettings settings;
  settings.device_ids.clear();
  require_adds(s, s.compile(kAdd, compile_options(settings)));
}

void check_unknown_device(Session& s) {
  CompileSettings settings;
  settings.device_ids = {100000};
  require_refused(s, kAdd, "mlir", compile_options(settings), "a program for an unknown device");
}

void check_many_devices(Session& s) {
  CompileSettings settings;
  settings.device_ids.clear();
  settings.replicas = settings.partitions = 1 << 20;
  require_refused(s, kAdd, "mlir", compile_options(settings), "a program for 2^40 devices");
}

void check_syntax_error(Session& s) {
  require_refused(s, kSyntaxError, "mlir", compile_options({}), "a syntax error");
}
void check_type_error(Session& s) {
  require_refused(s, kTypeError, "mlir", compile_options({}), "a type error");
}
void check_empty_program(Session& s) {
  require_refused(s, "", "mlir", compile_options({}), "an empty program");
}

void check_garbage(Session& s) {
  std::string bytes = "ML\xefR";
  uint32_t state = 12345;
  for (int i = 0; i < 2000; ++i) {
    state = state * 1664525u + 1013904223u;
    bytes.push_back(static_cast<char>(state >> 24));
  }
  require_refused(s, bytes, "mlir", compile_options({}), "garbage behind the magic number");
  require_refused(s, bytes.substr(4), "mlir", compile_options({}), "garbage");
}

void check_truncated(Session& s) {
  const std::string_view whole = add_bytecode_new();
  for (size_t size = 0; size < whole.size(); size += size < 16 ? 1 : 9) {
    require_refused(s, whole.substr(0, size), "mlir", compile_options({}),
                    "the first " + std::to_string(size) + " bytes of an artifact");
  }
  const std::string_view text = kAdd;
  require_refused(s, text.substr(0, text.size() / 2), "mlir", compile_options({}), "half a text");
}

void check_corrupted(Session& s) {
  const std::string whole(add_bytecode_new());
  int refused = 0;
  int accepted = 0;
  // Every change may be refused or happen to be harmless; none may end the process.
  for (size_t at = 4; at < whole.size(); at += 3) {
    for (const unsigned char flip : {0x01, 0x80, 0xff}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      PJRT_LoadedExecutable* executable = nullptr;
      if (s.try_compile(bytes, "mlir", compile_options({}), &executable)) {
        ++refused;
      } else {
        ++accepted;
        s.destroy_executable(executable);
      }
    }
  }
  s.remark(std::to_string(refused) + " refused, " + std::to_string(accepted) + " accepted");
}

void check_unknown_target(Session& s) {
  // Some plugins notice at compile time, some at the launch.
  PJRT_LoadedExecutable* executable = nullptr;
  if (auto error = s.try_compile(kUnknownTarget, "mlir", compile_options({}), &executable)) {
    require(error->message.find("a_target_that_nobody_registered") != std::string::npos,
            "the error does not name the target: " + error->text());
    return;
  }
  const auto error = s.execute_error(executable, {s.upload_f32({1, 2, 3, 4}, {4})});
  require(error.has_value(), "a call of an unknown target ran");
}

void check_program_untouched(Session& s) {
  const std::string original(add_bytecode_new());
  std::string copy = original;
  auto program = make_args<PJRT_Program>();
  program.code = copy.data();
  program.code_size = copy.size();
  program.format = "mlir";
  program.format_size = 4;
  const std::string options = compile_options({});
  auto args = make_args<PJRT_Client_Compile_Args>();
  args.client = s.client();
  args.program = &program;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  s.call(HEKLA_SLOT(PJRT_Client_Compile), &args);
  s.own(args.executable);
  require(copy == original, "the compile changed the caller's program");
  std::fill(copy.begin(), copy.end(), 'x');
  require_adds(s, args.executable);
}

void check_parallel_compile(Session& s) {
  s.client();
  std::atomic<int> wrong{0};
  std::mutex mutex;
  std::string reason;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      try {
        for (int i = 0; i < 3; ++i) require_adds(s, s.compile(t % 2 ? kAdd : add_bytecode_new()));
      } catch (const Failure& failure) {
        ++wrong;
        std::lock_guard lock(mutex);
        reason = failure.reason;
      } catch (const NotOffered& refusal) {
        ++wrong;
        std::lock_guard lock(mutex);
        reason = refusal.reason;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  require(wrong == 0, std::to_string(wrong) + " of four threads failed: " + reason);
}

// ---- Executables.

void check_executable_queries(Session& s) {
  PJRT_LoadedExecutable* loaded = s.compile(kTwoOutputs);
  PJRT_Executable* executable = s.executable_of(loaded);
  auto name = make_args<PJRT_Executable_Name_Args>();
  name.executable = executable;
  s.call(HEKLA_SLOT(PJRT_Executable_Name), &name);
  const std::string text(name.executable_name, name.executable_name_size);
  require(text.find("several") != std::string::npos, "the executable is called \"" + text + "\"");
  auto replicas = make_args<PJRT_Executable_NumReplicas_Args>();
  replicas.executable = executable;
  s.call(HEKLA_SLOT(PJRT_Executable_NumReplicas), &replicas);
  require_equal(replicas.num_replicas, 1, "replicas");
  auto partitions = make_args<PJRT_Executable_NumPartitions_Args>();
  partitions.executable = executable;
  s.call(HEKLA_SLOT(PJRT_Executable_NumPartitions), &partitions);
  require_equal(partitions.num_partitions, 1, "partitions");
  require_equal(s.num_outputs(loaded), 3, "outputs");
  auto size = make_args<PJRT_Executable_SizeOfGeneratedCodeInBytes_Args>();
  size.executable = executable;
  s.call(HEKLA_SLOT(PJRT_Executable_SizeOfGeneratedCodeInBytes), &size);
  require(size.size_in_bytes >= -1, "code size " + std::to_string(size.size_in_bytes));
}

void check_output_shapes(Session& s) {
  PJRT_Executable* executable = s.executable_of(s.compile(kTwoOutputs));
  auto types = make_args<PJRT_Executable_OutputElementTypes_Args>();
  types.executable = executable;
  s.call(HEKLA_SLOT(PJRT_Executable_OutputElementTypes), &types);
  require_equal(types.num_output_types, 3, "number of types");
  require(types.output_types[0] == PJRT_Buffer_Type_F32 &&
              types.output_types[1] == PJRT_Buffer_Type_F32 &&
              types.output_types[2] == PJRT_Buffer_Type_PRED,
          "wrong element types");
  auto dims = make_args<PJRT_Executable_OutputDimensions_Args>();
  dims.executable = executable;
  s.call(HEKLA_SLOT(PJRT_Executable_OutputDimensions), &dims);
  require_equal(dims.num_outputs, 3, "number of shapes");
  require(dims.dim_sizes[0] == 0 && dims.dim_sizes[1] == 1 && dims.dim_sizes[2] == 1,
          "wrong ranks");
  require(dims.dims[0] == 4 && dims.dims[1] == 4, "wrong dimensions");
}

void check_output_kinds(Session& s) {
  PJRT_LoadedExecutable* loaded = s.compile(kTwoOutputs);
  auto args = make_args<PJRT_Executable_OutputMemoryKinds_Args>();
  args.executable = s.executable_of(loaded);
  s.call_optional(HEKLA_SLOT(PJRT_Executable_OutputMemoryKinds), &args);
  require_equal(args.num_outputs, 3, "number of kinds");
  const auto outputs = s.run(loaded, {s.upload_f32({1, -2, 3, -4}, {4})});
  for (size_t i = 0; i < 3; ++i) {
    const std::string kind(args.memory_kinds[i], args.memory_kind_sizes[i]);
    require(!kind.empty(), "an output's memory kind is empty");
    auto memory = make_args<PJRT_Buffer_Memory_Args>();
    memory.buffer = outputs[i];
    s.call(HEKLA_SLOT(PJRT_Buffer_Memory), &memory);
    require(s.memory_kind(memory.memory) == kind, "output " + std::to_string(i) + " is in " +
                                                      s.memory_kind(memory.memory) +
                                                      ", the executable says " + kind);
  }
}

void check_parameter_kinds(Session& s) {
  auto args = make_args<PJRT_Executable_ParameterMemoryKinds_Args>();
  args.executable = s.executable_of(s.compile(kAdd));
  s.call_optional(HEKLA_SLOT(PJRT_Executable_ParameterMemoryKinds), &args);
  require_equal(args.num_parameters, 2, "number of kinds");
  for (size_t i = 0; i < 2; ++i) {
    require(args.memory_kind_sizes[i] > 0, "a parameter's memory kind is empty");
  }
}

// Of f32[2,3]: a -> a + a, with attributes of the parameter and of the result.
std::string doubling(const std::string& parameter, const std::string& result) {
  return "module @doubling {\n  func.func @main(%a: tensor<2x3xf32> {" + parameter +
         "}) -> (tensor<2x3xf32> {" + result +
         "}) {\n    %0 = stablehlo.add %a, %a : tensor<2x3xf32>\n"
         "    return %0 : tensor<2x3xf32>\n  }\n}";
}

// Compiles a program that asks for something which not every plugin has.
PJRT_LoadedExecutable* compile_asking(Session& s, const std::string& code) {
  PJRT_LoadedExecutable* loaded = nullptr;
  if (auto error = s.try_compile(code, "mlir", compile_options({}), &loaded)) {
    s.refuse_unless_unimplemented("PJRT_Client_Compile", *error);
  }
  return loaded;
}

void check_asked_kinds(Session& s) {
  for (PJRT_Memory* memory : s.memories(s.device())) {
    const std::string kind = s.memory_kind(memory);
    const std::string attribute = "mhlo.memory_kind = \"" + kind + "\"";
    PJRT_LoadedExecutable* loaded = compile_asking(s, doubling(attribute, attribute));
    auto args = make_args<PJRT_Executable_OutputMemoryKinds_Args>();
    args.executable = s.executable_of(loaded);
    s.call_optional(HEKLA_SLOT(PJRT_Executable_OutputMemoryKinds), &args);
    require(std::string(args.memory_kinds[0], args.memory_kind_sizes[0]) == kind,
            "the executable does not say the kind that its result asks for, " + kind);
    const std::vector<float> values = counted(6);
    HostData host;
    host.dims = {2, 3};
    host.data = values.data();
    host.memory = memory;
    const auto outputs = s.run(loaded, {s.upload(host)});
    auto where = make_args<PJRT_Buffer_Memory_Args>();
    where.buffer = outputs[0];
    s.call(HEKLA_SLOT(PJRT_Buffer_Memory), &where);
    require(where.memory == memory, "a result that asks for " + kind + " is elsewhere");
    require(s.download_f32(outputs[0], 6) == std::vector<float>({2, 4, 6, 8, 10, 12}),
            "wrong values in memory " + kind);
  }
}

void check_asked_layouts(Session& s) {
  const std::string attribute = "mhlo.layout_mode = \"{0,1}\"";
  PJRT_LoadedExecutable* loaded = compile_asking(s, doubling(attribute, attribute));
  const std::vector<float> values = counted(6);
  TiledLayout column_major({0, 1});
  HostData host;
  host.dims = {2, 3};
  host.data = values.data();
  host.device_layout = &column_major.layout;
  const auto outputs = s.run(loaded, {s.upload(host)});
  for (const bool is_column_major : {false, true}) {
    TiledLayout layout(is_column_major ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{1, 0});
    const auto bytes = s.download(outputs[0], 6 * sizeof(float), &layout.layout);
    const std::vector<float> want = is_column_major ? std::vector<float>{2, 8, 4, 10, 6, 12}
                                                    : std::vector<float>{2, 4, 6, 8, 10, 12};
    require(std::memcmp(bytes.data(), want.data(), bytes.size()) == 0,
            std::string("wrong values, read ") + (is_column_major ? "by columns" : "by rows"));
  }
  auto layout = make_args<PJRT_Buffer_GetMemoryLayout_Args>();
  layout.buffer = outputs[0];
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_GetMemoryLayout), &layout);
  require(layout.layout.type != PJRT_Buffer_MemoryLayout_Type_Tiled ||
              (layout.layout.tiled.minor_to_major_size == 2 &&
               layout.layout.tiled.minor_to_major[0] == 0),
          "a column-major result says another layout");
}

std::string fingerprint(Session& s, std::string_view code) {
  auto args = make_args<PJRT_Executable_Fingerprint_Args>();
  args.executable = s.executable_of(s.compile(code));
  s.call_optional(HEKLA_SLOT(PJRT_Executable_Fingerprint), &args);
  return {args.executable_fingerprint, args.executable_fingerprint_size};
}

void check_fingerprint(Session& s) {
  const std::string first = fingerprint(s, kAdd);
  require(!first.empty(), "the fingerprint is empty");
  require(fingerprint(s, kAdd) == first, "two compiles of one program have two fingerprints");
  require(fingerprint(s, kAddOne) != first, "two programs have one fingerprint");
}

void check_cost(Session& s) {
  auto args = make_args<PJRT_Executable_GetCostAnalysis_Args>();
  args.executable = s.executable_of(s.compile(kMatmul));
  s.call_optional(HEKLA_SLOT(PJRT_Executable_GetCostAnalysis), &args);
  std::set<std::string> names;
  for (size_t i = 0; i < args.num_properties; ++i) {
    const PJRT_NamedValue& value = args.properties[i];
    const std::string name(value.name, value.name_size);
    require(names.insert(name).second, name + " appears twice");
    require(value.type == PJRT_NamedValue_kFloat, name + " is not a float");
  }
}

void check_compiled_memory(Session& s) {
  auto args = make_args<PJRT_Executable_GetCompiledMemoryStats_Args>();
  args.executable = s.executable_of(s.compile(kAdd));
  s.call_optional(HEKLA_SLOT(PJRT_Executable_GetCompiledMemoryStats), &args);
  require(args.argument_size_in_bytes >= 32,
          "argument size " + std::to_string(args.argument_size_in_bytes));
  require(args.output_size_in_bytes >= 16,
          "output size " + std::to_string(args.output_size_in_bytes));
  require(args.temp_size_in_bytes >= 0, "temporary size is negative");
}

void check_optimized_program(Session& s) {
  PJRT_Executable* executable = s.executable_of(s.compile(kAdd));
  auto program = make_args<PJRT_Program>();
  auto args = make_args<PJRT_Executable_OptimizedProgram_Args>();
  args.executable = executable;
  args.program = &program;
  s.call_optional(HEKLA_SLOT(PJRT_Executable_OptimizedProgram), &args);
  const std::string format(program.format, program.format_size);
  require(format == "mlir" || format == "hlo_with_config", "the format is \"" + format + "\"");
  require(program.code_size > 0, "the program is empty");
  std::string code(program.code_size + 8, '\x2b');
  program.code = code.data();
  s.call(HEKLA_SLOT(PJRT_Executable_OptimizedProgram), &args);
  require(code.substr(program.code_size) == std::string(8, '\x2b'),
          "the second call wrote more than the first announced");
  require(code.substr(0, program.code_size) != std::string(program.code_size, '\x2b'),
          "the second call wrote nothing");
  s.remark(format);
}

std::string serialize(Session& s, PJRT_LoadedExecutable* loaded) {
  auto args = make_args<PJRT_Executable_Serialize_Args>();
  args.executable = s.executable_of(loaded);
  s.call_optional(HEKLA_SLOT(PJRT_Executable_Serialize), &args);
  require(args.serialized_executable_deleter != nullptr, "the deleter is null");
  std::string bytes(args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_executable_deleter(args.serialized_executable);
  return bytes;
}

std::optional<ErrorInfo> deserialize(Session& s, std::string_view bytes,
                                     PJRT_LoadedExecutable** loaded, std::string_view options = {},
                                     size_t struct_size = 0) {
  auto args = make_args<PJRT_Executable_DeserializeAndLoad_Args>();
  if (struct_size != 0) args.struct_size = struct_size;
  args.client = s.client();
  args.serialized_executable = bytes.data();
  args.serialized_executable_size = bytes.size();
  args.overridden_serialized_compile_options = options.empty() ? nullptr : options.data();
  args.overridden_serialized_compile_options_size = options.size();
  auto error = s.try_call(HEKLA_SLOT(PJRT_Executable_DeserializeAndLoad), &args);
  if (!error) {
    require(args.loaded_executable != nullptr, "deserializing returned null");
    s.own(args.loaded_executable);
  }
  *loaded = args.loaded_executable;
  return error;
}

void check_serialize(Session& s) {
  PJRT_LoadedExecutable* original = s.compile(kAdd);
  const std::string bytes = serialize(s, original);
  require(!bytes.empty(), "the executable has no bytes");
  s.destroy_executable(original);
  PJRT_LoadedExecutable* loaded = nullptr;
  if (auto error = deserialize(s, bytes, &loaded)) fail(error->text());
  require_adds(s, loaded);
}

constexpr char kBytesVariable[] = "HEKLA_CONFORMANCE_BYTES";

// A file that is gone with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view bytes)
      : path_(std::filesystem::temp_directory_path() / "hekla-conformance-XXXXXX") {
    const int fd = mkstemp(path_.data());
    require(fd >= 0, "no temporary file can be made");
    const bool written =
        write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
    close(fd);
    if (!written) unlink(path_.c_str());
    require(written, "the temporary file cannot be written");
  }
  ~TemporaryFile() { unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void check_serialize_elsewhere(Session& s) {
  const TemporaryFile file(serialize(s, s.compile(kAdd)));
  run_in_another_process(s, "load-serialized-file", kBytesVariable, file.path());
}

// The other process's part.
void load_serialized_file(Session& s) {
  const char* path = std::getenv(kBytesVariable);
  require(path != nullptr, "no file is named");
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  PJRT_LoadedExecutable* loaded = nullptr;
  if (auto error = deserialize(s, bytes, &loaded)) fail(error->text());
  require_adds(s, loaded);
}

void check_serialize_override(Session& s) {
  PJRT_Device* other = s.device(1);
  const std::string bytes = serialize(s, s.compile(kAdd));
  CompileSettings settings;
  settings.device_ids = {s.device_id(other)};
  PJRT_LoadedExecutable* loaded = nullptr;
  if (auto error = deserialize(s, bytes, &loaded, compile_options(settings))) fail(error->text());
  const auto outputs = s.run(
      loaded, {s.upload_f32({1, 2, 3, 4}, {4}, other), s.upload_f32({1, 1, 1, 1}, {4}, other)});
  auto where = make_args<PJRT_Buffer_Device_Args>();
  where.buffer = outputs[0];
  s.call(HEKLA_SLOT(PJRT_Buffer_Device), &where);
  require(where.device == other, "overridden options did not move the executable");
}

void check_deserialize_garbage(Session& s) {
  const std::string bytes = serialize(s, s.compile(kAdd));
  PJRT_LoadedExecutable* loaded = nullptr;
  for (const std::string& bad : {std::string(), std::string("garbage"), bytes.substr(0, 1),
                                 bytes.substr(0, bytes.size() / 2), std::string(300, '\xff')}) {
    const auto error = deserialize(s, bad, &loaded);
    require(error.has_value(), std::to_string(bad.size()) + " foreign bytes were loaded");
    require(!error->message.empty(), "refused without words");
  }
}

void check_deserialize_old_sizes(Session& s) {
  const std::string bytes = serialize(s, s.compile(kAdd));
  std::vector<std::string> refused;
  for (size_t size : {48, 64}) {
    PJRT_LoadedExecutable* loaded = nullptr;
    auto error = deserialize(s, bytes, &loaded, {}, size);
    if (error) {
      require_equal(error->code, PJRT_Error_Code_INVALID_ARGUMENT, "code for an old size");
      refused.push_back(std::to_string(size));
      continue;
    }
    require_adds(s, loaded);
  }
  if (!refused.empty()) throw NotOffered{"refuses the sizes of older clients: " + join(refused)};
}

void check_get_options(Session& s) {
  auto args = make_args<PJRT_Executable_GetCompileOptions_Args>();
  args.executable = s.executable_of(s.compile(kAdd));
  s.call_optional(HEKLA_SLOT(PJRT_Executable_GetCompileOptions), &args);
  require(args.serialized_compile_options_deleter != nullptr, "the deleter is null");
  const std::string bytes(args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_compile_options_deleter(args.serialized_compile_options);
  std::vector<wire::Field> fields;
  require(parse_proto(bytes, &fields), "the options are no message");
  require_adds(s, s.compile(kAdd, bytes));
}

void check_device_assignment(Session& s) {
  auto args = make_args<PJRT_LoadedExecutable_GetDeviceAssignment_Args>();
  args.executable = s.compile(kAdd);
  s.call(HEKLA_SLOT(PJRT_LoadedExecutable_GetDeviceAssignment), &args);
  require(args.serialized_device_assignment_deleter != nullptr,
          "the deleter is null, which clients call");
  const std::string bytes(args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_device_assignment_deleter(args.serialized_device_assignment);
  std::vector<wire::Field> fields;
  require(parse_proto(bytes, &fields), "the assignment is no message");
  for (const wire::Field& field : fields) {
    if (field.number == 1) require_equal(field.value, 1, "replicas");
    if (field.number == 2) require_equal(field.value, 1, "computations");
  }
  if (bytes.empty()) s.remark("no assignment: portable");
}

void check_logical_ids(Session& s) {
  auto args = make_args<PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args>();
  args.executable = s.compile(kAdd);
  s.call(HEKLA_SLOT(PJRT_LoadedExecutable_AddressableDeviceLogicalIds), &args);
  if (args.num_addressable_device_logical_ids == 0) {
    s.remark("none");
    return;
  }
  require_equal(args.num_addressable_device_logical_ids, 1, "logical ids");
  require(args.addressable_device_logical_ids[0].replica == 0 &&
              args.addressable_device_logical_ids[0].partition == 0,
          "the only device is not replica 0, partition 0");
}

void check_executable_devices(Session& s) {
  for (PJRT_Device* device : s.addressable_devices()) {
    CompileSettings settings;
    settings.device_ids = {s.device_id(device)};
    auto args = make_args<PJRT_LoadedExecutable_AddressableDevices_Args>();
    args.executable = s.compile(kAdd, compile_options(settings));
    s.call(HEKLA_SLOT(PJRT_LoadedExecutable_AddressableDevices), &args);
    require_equal(args.num_addressable_devices, 1, "devices of the executable");
    require(args.addressable_devices[0] == device, "the executable is on another device");
  }
}

void check_executable_delete(Session& s) {
  PJRT_LoadedExecutable* loaded = s.compile(kAddOne);
  auto deleted = make_args<PJRT_LoadedExecutable_IsDeleted_Args>();
  deleted.executable = loaded;
  s.call(HEKLA_SLOT(PJRT_LoadedExecutable_IsDeleted), &deleted);
  require(!deleted.is_deleted, "a new executable is deleted");
  auto args = make_args<PJRT_LoadedExecutable_Delete_Args>();
  args.executable = loaded;
  s.call(HEKLA_SLOT(PJRT_LoadedExecutable_Delete), &args);
  s.call(HEKLA_SLOT(PJRT_LoadedExecutable_Delete), &args);
  s.call(HEKLA_SLOT(PJRT_LoadedExecutable_IsDeleted), &deleted);
  require(deleted.is_deleted, "the executable is not deleted");
}

void check_deleted_launch(Session& s) {
  PJRT_LoadedExecutable* loaded = s.compile(kAddOne);
  auto args = make_args<PJRT_LoadedExecutable_Delete_Args>();
  args.executable = loaded;
  s.call(HEKLA_SLOT(PJRT_LoadedExecutable_Delete), &args);
  LaunchOptions options;
  options.num_outputs = 1;
  Launch launch;
  auto error = s.try_execute(loaded, {s.upload_f32({1, 2, 3, 4}, {4})}, options, &launch);
  if (!error) error = s.finish_event(launch.done);
  if (error) {
    require(!error->message.empty(), "refused without words");
    return;
  }
  require(s.download_f32(launch.outputs[0], 4) == std::vector<float>({2, 3, 4, 5}),
          "a deleted executable gave a wrong result");
  s.remark("it still runs");
}

void check_outlives(Session& s) {
  PJRT_LoadedExecutable* loaded = s.compile(kTwoOutputs);
  PJRT_Executable* first = s.executable_of(loaded);
  PJRT_Executable* second = s.executable_of(loaded);
  s.destroy_executable(loaded);
  for (PJRT_Executable* executable : {first, second}) {
    auto args = make_args<PJRT_Executable_NumOutputs_Args>();
    args.executable = executable;
    s.call(HEKLA_SLOT(PJRT_Executable_NumOutputs), &args);
    require_equal(args.num_outputs, 3, "outputs after the loaded executable died");
    s.destroy_executable(executable);
  }
}

void check_executable_destroy_null(Session& s) {
  s.client();
  auto loaded = make_args<PJRT_LoadedExecutable_Destroy_Args>();
  s.call(HEKLA_SLOT(PJRT_LoadedExecutable_Destroy), &loaded);
}

constexpr Check kCompileChecks[] = {
    {"compile-text", "StableHLO text compiles and runs.", check_text},
    {"compile-bytecode", "A portable artifact of StableHLO 1.13 compiles and runs.",
     check_bytecode},
    {"compile-old-bytecode", "A portable artifact of StableHLO 0.9 compiles and runs.",
     check_old_bytecode},
    {"compile-mhlo-text", "Text with mhlo ops, as the upstream test sends it, compiles.",
     check_mhlo},
    {"compile-hlo-proto", "A serialized HloModuleProto, PyTorch/XLA's default, compiles.",
     check_hlo},
    {"compile-unknown-format", "An unknown format is INVALID_ARGUMENT.", check_unknown_format},
    {"compile-bad-options", "Options that are no CompileOptionsProto are INVALID_ARGUMENT.",
     check_bad_options},
    {"compile-no-assignment", "Without a device assignment the default one is taken.",
     check_no_assignment},
    {"compile-unknown-device", "An assignment to an unknown device is an error.",
     check_unknown_device},
    {"compile-many-devices",
     "More replicas and partitions than memory could count are refused without an assignment.",
     check_many_devices},
    {"compile-syntax-error", "Text with a syntax error is an error.", check_syntax_error},
    {"compile-type-error", "A program that does not type-check is an error.", check_type_error},
    {"compile-empty", "An empty program is an error.", check_empty_program},
    {"compile-garbage", "Garbage is an error, with and without the magic number.", check_garbage},
    {"compile-truncated", "Every truncated artifact is an error.", check_truncated},
    {"compile-corrupted", "An artifact with changed bytes never ends the process.",
     check_corrupted},
    {"compile-unknown-target", "A custom call that nobody knows is an error with its name.",
     check_unknown_target},
    {"compile-program-untouched", "A compile neither changes nor keeps the caller's program.",
     check_program_untouched},
    {"compile-parallel", "Several threads compile and run at the same time.",
     check_parallel_compile},
};

constexpr Check kExecutableChecks[] = {
    {"executable-queries", "An executable knows its name, counts and code size.",
     check_executable_queries},
    {"executable-output-shapes", "Types and dimensions of the outputs are reported flat.",
     check_output_shapes},
    {"executable-output-kinds",
     "Memory kinds of outputs are spelled out and are those of the real buffers.",
     check_output_kinds},
    {"executable-parameter-kinds", "Memory kinds of parameters are spelled out.",
     check_parameter_kinds},
    {"executable-asked-kinds",
     "A result that asks for a memory kind lies there, from a parameter that does.",
     check_asked_kinds},
    {"executable-asked-layouts",
     "A column-major parameter and result keep values in their places, or are UNIMPLEMENTED.",
     check_asked_layouts},
    {"executable-fingerprint", "Fingerprints are equal for equal programs and differ for others.",
     check_fingerprint},
    {"cost-analysis", "The cost analysis is a list of named floats.", check_cost},
    {"compiled-memory-stats", "Compiled memory statistics cover arguments and outputs.",
     check_compiled_memory},
    {"optimized-program", "The optimized program is given in two calls as mlir or hlo_with_config.",
     check_optimized_program},
    {"serialize-roundtrip", "A serialized executable loads and runs.", check_serialize},
    {"serialize-other-process", "A serialized executable loads and runs in another process.",
     check_serialize_elsewhere},
    {"serialize-override", "Overridden compile options move a loaded executable to another device.",
     check_serialize_override},
    {"deserialize-garbage", "Foreign or cut bytes are refused with words.",
     check_deserialize_garbage},
    {"deserialize-old-sizes", "The shorter arguments of older clients are accepted.",
     check_deserialize_old_sizes},
    {"get-compile-options", "The compile options come back as a message that compiles again.",
     check_get_options},
    {"device-assignment", "The device assignment is a message or empty; its deleter is callable.",
     check_device_assignment},
    {"logical-ids", "Logical ids are one per addressable device, or none.", check_logical_ids},
    {"executable-devices", "An executable is on the device that its options name.",
     check_executable_devices},
    {"executable-delete", "A deleted executable says so; deleting may be repeated.",
     check_executable_delete},
    {"executable-deleted-launch",
     "Launching a deleted executable is an error or gives the right result.", check_deleted_launch},
    {"executable-outlives-loaded", "The plain executable outlives the loaded one.", check_outlives},
    {"executable-destroy-null", "Destroying a null loaded executable does nothing.",
     check_executable_destroy_null},
};

constexpr Check kHiddenChecks[] = {
    {"load-serialized-file", "", load_serialized_file},
};

}  // namespace

std::span<const Check> compile_checks() { return kCompileChecks; }
std::span<const Check> executable_checks() { return kExecutableChecks; }
std::span<const Check> hidden_checks() { return kHiddenChecks; }

}  // namespace hekla::conformance
