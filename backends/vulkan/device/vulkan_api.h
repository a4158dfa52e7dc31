// SPDX-License-Identifier: Apache-2.0
// Vulkan's types without its prototypes: nothing links against the loader.
#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>
