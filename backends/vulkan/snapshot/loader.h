// SPDX-License-Identifier: Apache-2.0
// VulkanLoader: the system's Vulkan loader, opened at run time.
//
// Nothing links against libvulkan, so programs start on machines without it and can say what is
// missing. One loader is opened per process and never closed (drivers keep threads). open() is
// thread-safe; the table it returns is immutable.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"

// From vulkan_core.h, which only the .cc files include.
typedef struct VkInstance_T* VkInstance;

namespace hekla::vulkan {

class VulkanLoader {
 public:
  // UNAVAILABLE with the reason and the remedy when there is no loader.
  static Result<const VulkanLoader*> open();

  // The file that was opened, as the dynamic linker names it.
  const std::string& path() const { return path_; }
  // What vkEnumerateInstanceVersion says; 1.0 when the loader is that old. VK_MAKE_API_VERSION
  // form.
  uint32_t instance_version() const { return instance_version_; }
  // vkGetInstanceProcAddr; null when the function is not there. `instance` may be null.
  void* function(VkInstance instance, const char* name) const;

 private:
  VulkanLoader() = default;
  std::string path_;
  uint32_t instance_version_ = 0;
  void* get_instance_proc_addr_ = nullptr;
};

// An instance layer, or an instance extension (layers empty).
struct LayerInfo {
  std::string name;
  std::string description;
  std::string version;
};
Result<std::vector<LayerInfo>> list_layers();

// "1.3.239".
std::string version_string(uint32_t api_version);

// Owns a VkInstance; movable.
class QueryInstance {
 public:
  // UNAVAILABLE: no loader; INTERNAL: the loader refused, with the VkResult and the usual causes.
  // `layers` and `extensions` are enabled as they are; `next` heads the create info's pNext chain.
  static Result<QueryInstance> create(const std::vector<const char*>& layers = {},
                                      const std::vector<const char*>& extensions = {},
                                      const void* next = nullptr);
  QueryInstance(QueryInstance&& other) noexcept;
  QueryInstance& operator=(QueryInstance&& other) = delete;
  ~QueryInstance();

  VkInstance get() const { return instance_; }
  const VulkanLoader& loader() const { return *loader_; }
  uint32_t api_version() const { return api_version_; }

 private:
  QueryInstance() = default;
  const VulkanLoader* loader_ = nullptr;
  VkInstance instance_ = nullptr;
  uint32_t api_version_ = 0;
};

// "VK_ERROR_DEVICE_LOST" and so on; the number for codes that we do not know.
std::string result_name(int vk_result);

}  // namespace hekla::vulkan
