// SPDX-License-Identifier: Apache-2.0
// The table, plugin attributes, argument sizes and errors.
#include <elf.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>

#include "plugin_api/conformance/check.h"
#include "plugin_api/conformance/programs.h"
#include "plugin_api/conformance/session.h"
#include "plugin_api/pjrt_extensions.h"

namespace hekla::conformance {
namespace {

struct SlotInfo {
  const char* name;
  size_t offset;
  int since;         // minor version in which the slot appeared
  bool may_be_null;  // clients look before they call
};

// Written with the table in pjrt_c_api.h; tests/abi compares both with the interface's description.
#define HEKLA_SLOT_INFO(name, since, null) {#name, offsetof(PJRT_Api, name), since, null},
constexpr SlotInfo kSlots[] = {
#include "plugin_api/conformance/slots.inc"
};
#undef HEKLA_SLOT_INFO

void check_table_stable(Session& s) {
  // The constructor has already looked the symbol up.
  auto again =
      std::make_unique<Session>(s.library(), std::vector<std::pair<std::string, std::string>>{});
  require(again->api() == s.api(), "GetPjrtApi returned another pointer at the second call");
}

void check_version(Session& s) {
  const PJRT_Api_Version& version = s.api()->pjrt_api_version;
  size_t known = 0;
  size_t wanted = PJRT_STRUCT_SIZE(PJRT_Api, pjrt_api_version);
  for (const SlotInfo& slot : kSlots) {
    if (slot.since <= s.minor()) wanted = std::max(wanted, slot.offset + sizeof(void*));
    if (slot.offset + sizeof(void*) <= s.api()->struct_size) ++known;
  }
  require(s.api()->struct_size >= wanted,
          "API 0." + std::to_string(s.minor()) + " has a table of " + std::to_string(wanted) +
              " bytes, struct_size is " + std::to_string(s.api()->struct_size));
  if (version.struct_size == 0) s.remark("struct_size of the version is 0");
  s.remark("API 0." + std::to_string(s.minor()) + ", " + std::to_string(known) + " slots");
}

void check_slots(Session& s) {
  std::vector<std::string> missing;
  std::vector<std::string> tolerated;
  for (const SlotInfo& slot : kSlots) {
    if (slot.offset + sizeof(void*) > s.api()->struct_size) continue;
    const void* function = nullptr;
    std::memcpy(&function, reinterpret_cast<const char*>(s.api()) + slot.offset, sizeof(function));
    if (function == nullptr) (slot.may_be_null ? tolerated : missing).push_back(slot.name);
  }
  require(missing.empty(), "null slots that clients call without looking: " + join(missing));
  if (!tolerated.empty()) s.remark("null, which clients tolerate: " + join(tolerated));
}

// The defined global symbols of a 64-bit ELF file's dynamic table.
std::vector<std::string> exported_symbols(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const auto read = [&](uint64_t offset, void* target, size_t size) {
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(static_cast<char*>(target), static_cast<std::streamsize>(size));
    return static_cast<bool>(file);
  };
  Elf64_Ehdr header;
  if (!read(0, &header, sizeof(header)) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64) {
    throw NotOffered{"the library is no 64-bit ELF file"};
  }
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  if (!read(header.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr))) {
    throw NotOffered{"the library has no section table"};
  }
  std::vector<std::string> names;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_DYNSYM || section.sh_link >= sections.size()) continue;
    std::vector<Elf64_Sym> symbols(section.sh_size / sizeof(Elf64_Sym));
    std::string text(sections[section.sh_link].sh_size, '\0');
    require(read(section.sh_offset, symbols.data(), symbols.size() * sizeof(Elf64_Sym)) &&
                read(sections[section.sh_link].sh_offset, text.data(), text.size()),
            "the library's symbols cannot be read");
    for (const Elf64_Sym& symbol : symbols) {
      const int visibility = ELF64_ST_VISIBILITY(symbol.st_other);
      // Absolute symbols are the names of versions.
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS ||
          ELF64_ST_BIND(symbol.st_info) == STB_LOCAL || symbol.st_name >= text.size() ||
          (visibility != STV_DEFAULT && visibility != STV_PROTECTED)) {
        continue;
      }
      names.emplace_back(text.c_str() + symbol.st_name);
    }
  }
  return names;
}

void check_one_symbol(Session& s) {
  std::vector<std::string> names = exported_symbols(s.library());
  // Bounds of sections come from the linker and are bound inside each library.
  std::erase_if(names, [](const std::string& name) {
    return name == "GetPjrtApi" || name.starts_with("__start_") || name.starts_with("__stop_");
  });
  require(names.empty(), std::to_string(names.size()) +
                             " symbols beside GetPjrtApi are exported: " + join(names, 4));
}

void check_initialize(Session& s) { s.initialize(); }

void check_attributes(Session& s) {
  s.initialize();
  auto args = make_args<PJRT_Plugin_Attributes_Args>();
  s.call(HEKLA_SLOT(PJRT_Plugin_Attributes), &args);
  std::map<std::string, const PJRT_NamedValue*> values;
  for (size_t i = 0; i < args.num_attributes; ++i) {
    const PJRT_NamedValue& value = args.attributes[i];
    require(value.name != nullptr && value.name_size > 0, "an attribute without a name");
    const std::string name(value.name, value.name_size);
    require(value.name[value.name_size] == '\0', name + " does not end in a NUL");
    require(values.emplace(name, &value).second, name + " appears twice");
    require(value.type >= PJRT_NamedValue_kString && value.type <= PJRT_NamedValue_kBool,
            name + " has type " + std::to_string(value.type));
  }
  for (const char* name : {"stablehlo_current_version", "stablehlo_minimum_version"}) {
    auto found = values.find(name);
    require(found != values.end(), std::string(name) + " is missing");
    require(found->second->type == PJRT_NamedValue_kInt64List && found->second->value_size == 3,
            std::string(name) + " is not a list of three int64");
  }
  const int64_t* current = values["stablehlo_current_version"]->int64_array_value;
  const int64_t* minimum = values["stablehlo_minimum_version"]->int64_array_value;
  require(!std::lexicographical_compare(current, current + 3, minimum, minimum + 3),
          "stablehlo_current_version is below stablehlo_minimum_version");
  require(values.count("xla_version") == 1, "xla_version is missing");
  require(values["xla_version"]->type == PJRT_NamedValue_kInt64, "xla_version is not an int64");
  s.remark("StableHLO " + std::to_string(current[0]) + "." + std::to_string(current[1]) + "." +
           std::to_string(current[2]));
}

void check_attributes_lifetime(Session& s) {
  s.initialize();
  auto before = make_args<PJRT_Plugin_Attributes_Args>();
  s.call(HEKLA_SLOT(PJRT_Plugin_Attributes), &before);
  std::vector<std::string> names;
  for (size_t i = 0; i < before.num_attributes; ++i) names.emplace_back(before.attributes[i].name);
  s.destroy_client(s.create_client());
  auto after = make_args<PJRT_Plugin_Attributes_Args>();
  s.call(HEKLA_SLOT(PJRT_Plugin_Attributes), &after);
  require_equal(after.num_attributes, names.size(), "number of attributes at the second call");
  for (size_t i = 0; i < names.size(); ++i) {
    require(names[i] == before.attributes[i].name, "an attribute's name changed with a client");
  }
}

// ---- Struct sizes.

bool is_size_refusal(const ErrorInfo& error) {
  return error.code == PJRT_Error_Code_INVALID_ARGUMENT;
}

[[noreturn]] void refused_size(const std::string& what, const ErrorInfo& error) {
  throw NotOffered{"refuses " + what + ": " + error.text()};
}

void check_old_attributes_size(Session& s) {
  s.initialize();
  auto args = make_args<PJRT_Plugin_Attributes_Args>();
  args.struct_size = PJRT_STRUCT_SIZE(PJRT_Plugin_Attributes_Args, attributes);
  args.num_attributes = 12345;
  auto error = s.try_call(HEKLA_SLOT(PJRT_Plugin_Attributes), &args);
  if (error && is_size_refusal(*error)) refused_size("the 24 bytes of jaxlib up to 0.6.2", *error);
  if (error) fail("PJRT_Plugin_Attributes: " + error->text());
  require(args.num_attributes != 12345, "num_attributes was not written for struct_size 24");
}

void check_old_create_size(Session& s) {
  s.initialize();
  auto args = make_args<PJRT_Client_Create_Args>();
  args.struct_size = PJRT_STRUCT_SIZE(PJRT_Client_Create_Args, client);
  auto error = s.try_create_client(&args);
  if (error && is_size_refusal(*error)) refused_size("the 72 bytes of jaxlib 0.4.38", *error);
  if (error) fail("PJRT_Client_Create: " + error->text());
  require(args.client != nullptr, "PJRT_Client_Create returned a null client");
}

void check_old_execute_sizes(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kAddOne);
  PJRT_Buffer* input = s.upload_f32({1, 2, 3, 4}, {4});
  std::vector<std::string> refused;
  ErrorInfo last;
  // jaxlib 0.4.38, 0.5 and 0.6, 0.7, 0.8 and 0.9.0, 0.9.2, 0.10.1, 0.10.2 and 0.11.
  for (size_t size : {72, 80, 88, 112, 120, 121, 144}) {
    LaunchOptions options;
    options.options_size = size;
    Launch launch;
    if (auto error = s.try_execute(executable, {input}, options, &launch)) {
      require(is_size_refusal(*error),
              "Execute with options of " + std::to_string(size) + " bytes: " + error->text());
      refused.push_back(std::to_string(size));
      last = *error;
      continue;
    }
    if (auto error = s.finish_event(launch.done)) fail(error->text());
    require(s.download_f32(launch.outputs[0], 4) == std::vector<float>({2, 3, 4, 5}),
            "wrong result with options of " + std::to_string(size) + " bytes");
  }
  if (!refused.empty()) refused_size("ExecuteOptions of " + join(refused) + " bytes", last);
}

void check_short_outputs(Session& s) {
  // What lies behind struct_size belongs to the caller.
  constexpr uint8_t kGuard = 0xb7;
  std::vector<std::string> refused;
  {
    PJRT_Device_MemoryStats_Args args;
    std::memset(static_cast<void*>(&args), kGuard, sizeof(args));
    args.struct_size = PJRT_STRUCT_SIZE(PJRT_Device_MemoryStats_Args, peak_pool_bytes_is_set);
    args.extension_start = nullptr;
    args.device = s.device();
    const size_t size = args.struct_size;
    auto error = s.try_call(HEKLA_SLOT(PJRT_Device_MemoryStats), &args);
    if (error && is_size_refusal(*error)) refused.push_back("Device_MemoryStats 185");
    const auto* bytes = reinterpret_cast<const uint8_t*>(&args);
    for (size_t i = size; i < sizeof(args); ++i) {
      require(bytes[i] == kGuard, "Device_MemoryStats wrote behind struct_size 185");
    }
  }
  PJRT_Executable* executable = s.executable_of(s.compile(kAdd));
  for (size_t size : {56, 96, 104, 112}) {
    PJRT_Executable_GetCompiledMemoryStats_Args args;
    std::memset(static_cast<void*>(&args), kGuard, sizeof(args));
    args.struct_size = size;
    args.extension_start = nullptr;
    args.executable = executable;
    auto error = s.try_call(HEKLA_SLOT(PJRT_Executable_GetCompiledMemoryStats), &args);
    if (error && is_size_refusal(*error)) {
      refused.push_back("GetCompiledMemoryStats " + std::to_string(size));
    }
    const auto* bytes = reinterpret_cast<const uint8_t*>(&args);
    for (size_t i = size; i < sizeof(args); ++i) {
      require(bytes[i] == kGuard,
              "GetCompiledMemoryStats wrote behind struct_size " + std::to_string(size));
    }
  }
  if (!refused.empty()) throw NotOffered{"refuses the sizes of older clients: " + join(refused)};
}

template <class Args>
struct Longer {
  Args args;
  std::array<uint64_t, 16> more{};
};

void check_long_structs(Session& s) {
  {
    Longer<PJRT_Client_PlatformName_Args> longer{make_args<PJRT_Client_PlatformName_Args>()};
    longer.args.struct_size = sizeof(longer);
    longer.args.client = s.client();
    s.call(HEKLA_SLOT(PJRT_Client_PlatformName), &longer.args);
  }
  const std::vector<float> values = {1, 2, 3, 4};
  HostData host;
  host.dims = {4};
  host.data = values.data();
  Longer<PJRT_Client_BufferFromHostBuffer_Args> upload{s.upload_args(host)};
  upload.args.struct_size = sizeof(upload);
  s.call(HEKLA_SLOT(PJRT_Client_BufferFromHostBuffer), &upload.args);
  s.own(upload.args.buffer);
  if (auto error = s.finish_event(upload.args.done_with_host_buffer)) fail(error->text());

  // jaxlib 0.12 sends options of 160 bytes.
  PJRT_LoadedExecutable* executable = s.compile(kAddOne);
  Longer<PJRT_ExecuteOptions> options{make_args<PJRT_ExecuteOptions>()};
  options.args.struct_size = 160;
  auto args = make_args<PJRT_LoadedExecutable_Execute_Args>();
  args.executable = executable;
  args.options = &options.args;
  PJRT_Buffer* const inputs[] = {upload.args.buffer};
  PJRT_Buffer* const* input_list = inputs;
  args.argument_lists = &input_list;
  args.num_devices = 1;
  args.num_args = 1;
  PJRT_Buffer* output = nullptr;
  PJRT_Buffer** output_list = &output;
  args.output_lists = &output_list;
  s.call(HEKLA_SLOT(PJRT_LoadedExecutable_Execute), &args);
  require(output != nullptr, "Execute left an output null");
  s.own(output);
  require(s.download_f32(output, 4) == std::vector<float>({2, 3, 4, 5}), "wrong result");
}

// ---- Errors.

PJRT_Error* make_error(Session& s) {
  auto program = make_args<PJRT_Program>();
  constexpr std::string_view kFormat = "invalid";
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  auto args = make_args<PJRT_Client_Compile_Args>();
  args.client = s.client();
  args.program = &program;
  const std::string options = compile_options({});
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  PJRT_Error* error = s.api()->PJRT_Client_Compile(&args);
  require(error != nullptr, "PJRT_Client_Compile accepted the format \"invalid\"");
  return error;
}

void check_error_null(Session& s) {
  auto args = make_args<PJRT_Error_Destroy_Args>();
  s.api()->PJRT_Error_Destroy(&args);
}

void check_error_message(Session& s) {
  PJRT_Error* error = make_error(s);
  std::string first;
  for (int i = 0; i < 2; ++i) {
    auto message = make_args<PJRT_Error_Message_Args>();
    message.error = error;
    s.api()->PJRT_Error_Message(&message);
    require(message.message != nullptr && message.message_size > 0, "an error without a message");
    const std::string text(message.message, message.message_size);
    if (i == 0) first = text;
    require(text == first, "the message changed at the second look");
    auto code = make_args<PJRT_Error_GetCode_Args>();
    code.error = error;
    s.call(HEKLA_SLOT(PJRT_Error_GetCode), &code);
    require(code.code > 0 && code.code <= PJRT_Error_Code_UNAUTHENTICATED,
            "the error has code " + std::to_string(code.code));
  }
  s.take(error);
}

void check_error_payload(Session& s) {
  PJRT_Error* error = make_error(s);
  auto args = make_args<PJRT_Error_ForEachPayload_Args>();
  args.error = error;
  int visits = 0;
  args.user_arg = &visits;
  args.visitor = [](const char* key, size_t, const char* value, size_t, void* user_arg) {
    if (key != nullptr && value != nullptr) ++*static_cast<int*>(user_arg);
  };
  s.call(HEKLA_SLOT(PJRT_Error_ForEachPayload), &args);
  s.take(error);
}

void check_error_table(Session& s) {
  if (s.minor() < 107) throw NotOffered{"error objects have a function table since API 0.107"};
  PJRT_Error* error = make_error(s);
  const PJRT_Error_FunctionTable* table = error->vtable;
  require(table != nullptr, "the error's function table is null");
  require(table->struct_size >= PJRT_STRUCT_SIZE(PJRT_Error_FunctionTable, for_each_payload),
          "the error's function table has " + std::to_string(table->struct_size) + " bytes");
  require(table->destroy != nullptr && table->message != nullptr && table->get_code != nullptr &&
              table->for_each_payload != nullptr,
          "the error's function table has null members");
  const char* message = nullptr;
  size_t size = 0;
  table->message(error, &message, &size);
  auto args = make_args<PJRT_Error_Message_Args>();
  args.error = error;
  s.api()->PJRT_Error_Message(&args);
  require(std::string_view(message, size) == std::string_view(args.message, args.message_size),
          "the function table and PJRT_Error_Message give different messages");
  auto code = make_args<PJRT_Error_GetCode_Args>();
  code.error = error;
  s.call(HEKLA_SLOT(PJRT_Error_GetCode), &code);
  require_equal(table->get_code(error), code.code, "code from the function table");
  table->for_each_payload(
      error, [](const char*, size_t, const char*, size_t, void*) {}, nullptr);
  table->destroy(error);
}

constexpr Check kTableChecks[] = {
    {"table-stable", "GetPjrtApi returns the same table at every call.", check_table_stable},
    {"version-struct",
     "The major version is 0, the minor at least 29, and the table covers every slot of that "
     "minor.",
     check_version},
    {"every-slot-filled", "No slot is null that clients call without looking.", check_slots},
    {"one-symbol",
     "GetPjrtApi is the only exported symbol, so that libraries inside do not meet those of the "
     "host.",
     check_one_symbol},
    {"plugin-initialize", "PJRT_Plugin_Initialize succeeds.", check_initialize},
    {"plugin-attributes",
     "Attributes have unique NUL-terminated names and legal types; xla_version is an int64 and "
     "both "
     "StableHLO versions are lists of three.",
     check_attributes},
    {"plugin-attributes-lifetime", "Attributes live as long as the process, not as a client.",
     check_attributes_lifetime},
};

constexpr Check kSizeChecks[] = {
    {"old-attributes-size",
     "Plugin_Attributes writes both outputs for the struct_size 24 of jaxlib up to 0.6.2.",
     check_old_attributes_size},
    {"old-create-size", "A client is created from the 72-byte arguments of jaxlib 0.4.38.",
     check_old_create_size},
    {"old-execute-options", "Execute takes the options of every jaxlib since 0.4.38 (72 bytes up).",
     check_old_execute_sizes},
    {"short-outputs", "An output behind the caller's struct_size is not written.",
     check_short_outputs},
    {"long-struct-accepted", "Argument structs of a newer, longer kind are accepted.",
     check_long_structs},
};

constexpr Check kErrorChecks[] = {
    {"error-destroy-null", "Destroying a null error does nothing.", check_error_null},
    {"error-message-borrowed",
     "Message and code of an error stay the same until it is destroyed, and the message has words.",
     check_error_message},
    {"error-payload", "Visiting the payloads of an error succeeds.", check_error_payload},
    {"error-function-table",
     "Since 0.107 an error begins with a complete function table that agrees with the API.",
     check_error_table},
};

}  // namespace

std::span<const Check> table_checks() { return kTableChecks; }
std::span<const Check> size_checks() { return kSizeChecks; }
std::span<const Check> error_checks() { return kErrorChecks; }

}  // namespace hekla::conformance
