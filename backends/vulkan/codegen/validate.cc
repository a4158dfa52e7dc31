// SPDX-License-Identifier: Apache-2.0
#include <spirv-tools/libspirv.hpp>

#include "backends/vulkan/codegen/generate.h"

namespace hekla::vulkan {
namespace {

constexpr spv_target_env kEnvironment = SPV_ENV_VULKAN_1_2;

spvtools::MessageConsumer collect(std::string* messages) {
  return [messages](spv_message_level_t, const char*, const spv_position_t& position,
                    const char* message) {
    *messages +=
        fmt::format("{}instruction {}: {}", messages->empty() ? "" : "; ", position.index, message);
  };
}

}  // namespace

Status validate(std::span<const uint32_t> words) {
  spvtools::SpirvTools tools(kEnvironment);
  std::string messages;
  tools.SetMessageConsumer(collect(&messages));
  spvtools::ValidatorOptions options;
  options.SetScalarBlockLayout(true);
  if (tools.Validate(words.data(), words.size(), options)) return Status();
  return internal_error("the generated SPIR-V is not valid: {}", messages);
}

std::string disassemble(std::span<const uint32_t> words) {
  spvtools::SpirvTools tools(kEnvironment);
  std::string messages;
  tools.SetMessageConsumer(collect(&messages));
  std::string text;
  constexpr uint32_t kOptions = SPV_BINARY_TO_TEXT_OPTION_INDENT |
                                SPV_BINARY_TO_TEXT_OPTION_FRIENDLY_NAMES |
                                SPV_BINARY_TO_TEXT_OPTION_NO_HEADER;
  if (tools.Disassemble(words.data(), words.size(), &text, kOptions)) return text;
  return fmt::format("; this is no SPIR-V module: {}\n", messages);
}

}  // namespace hekla::vulkan
