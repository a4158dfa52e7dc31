// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/snapshot/loader.h"

#include <dlfcn.h>
#include <link.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include <algorithm>

namespace hekla::vulkan {
namespace {

// The newest version whose behaviour we know.
constexpr uint32_t kNewestKnown = VK_API_VERSION_1_3;

}  // namespace

std::string version_string(uint32_t v) {
  return fmt::format("{}.{}.{}", VK_API_VERSION_MAJOR(v), VK_API_VERSION_MINOR(v),
                     VK_API_VERSION_PATCH(v));
}

std::string result_name(int vk_result) {
  switch (vk_result) {
    case VK_SUCCESS:
      return "VK_SUCCESS";
    case VK_NOT_READY:
      return "VK_NOT_READY";
    case VK_TIMEOUT:
      return "VK_TIMEOUT";
    case VK_INCOMPLETE:
      return "VK_INCOMPLETE";
    case VK_ERROR_OUT_OF_HOST_MEMORY:
      return "VK_ERROR_OUT_OF_HOST_MEMORY";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
      return "VK_ERROR_OUT_OF_DEVICE_MEMORY";
    case VK_ERROR_INITIALIZATION_FAILED:
      return "VK_ERROR_INITIALIZATION_FAILED";
    case VK_ERROR_DEVICE_LOST:
      return "VK_ERROR_DEVICE_LOST";
    case VK_ERROR_MEMORY_MAP_FAILED:
      return "VK_ERROR_MEMORY_MAP_FAILED";
    case VK_ERROR_LAYER_NOT_PRESENT:
      return "VK_ERROR_LAYER_NOT_PRESENT";
    case VK_ERROR_EXTENSION_NOT_PRESENT:
      return "VK_ERROR_EXTENSION_NOT_PRESENT";
    case VK_ERROR_FEATURE_NOT_PRESENT:
      return "VK_ERROR_FEATURE_NOT_PRESENT";
    case VK_ERROR_INCOMPATIBLE_DRIVER:
      return "VK_ERROR_INCOMPATIBLE_DRIVER";
    case VK_ERROR_TOO_MANY_OBJECTS:
      return "VK_ERROR_TOO_MANY_OBJECTS";
    case VK_ERROR_FRAGMENTED_POOL:
      return "VK_ERROR_FRAGMENTED_POOL";
    case VK_ERROR_OUT_OF_POOL_MEMORY:
      return "VK_ERROR_OUT_OF_POOL_MEMORY";
    default:
      return fmt::format("VkResult {}", vk_result);
  }
}

Result<const VulkanLoader*> VulkanLoader::open() {
  static const Result<const VulkanLoader*> kLoader = []() -> Result<const VulkanLoader*> {
    void* library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* reason = dlerror();
      return unavailable(
          "there is no Vulkan loader: {}; install it (Debian: libvulkan1, and mesa-vulkan-drivers "
          "or the vendor's driver)",
          reason == nullptr ? "unknown error" : reason);
    }
    static VulkanLoader loader;
    loader.get_instance_proc_addr_ = dlsym(library, "vkGetInstanceProcAddr");
    link_map* map = nullptr;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) loader.path_ = map->l_name;
    if (loader.get_instance_proc_addr_ == nullptr) {
      return unavailable("{} has no vkGetInstanceProcAddr, so it is no Vulkan loader",
                         loader.path_);
    }
    loader.instance_version_ = VK_API_VERSION_1_0;
    auto enumerate = reinterpret_cast<PFN_vkEnumerateInstanceVersion>(
        loader.function(nullptr, "vkEnumerateInstanceVersion"));
    if (enumerate != nullptr) enumerate(&loader.instance_version_);
    return &loader;
  }();
  return kLoader;
}

void* VulkanLoader::function(VkInstance instance, const char* name) const {
  auto get = reinterpret_cast<PFN_vkGetInstanceProcAddr>(get_instance_proc_addr_);
  return reinterpret_cast<void*>(get(instance, name));
}

Result<std::vector<LayerInfo>> list_layers() {
  HEKLA_ASSIGN_OR_RETURN(const VulkanLoader* loader, VulkanLoader::open());
  auto enumerate = reinterpret_cast<PFN_vkEnumerateInstanceLayerProperties>(
      loader->function(nullptr, "vkEnumerateInstanceLayerProperties"));
  std::vector<LayerInfo> layers;
  if (enumerate == nullptr) return layers;
  uint32_t count = 0;
  enumerate(&count, nullptr);
  std::vector<VkLayerProperties> properties(count);
  if (const VkResult result = enumerate(&count, properties.data()); result < 0) {
    return internal_error("vkEnumerateInstanceLayerProperties: {}", result_name(result));
  }
  for (uint32_t i = 0; i < count; ++i) {
    layers.push_back({properties[i].layerName, properties[i].description,
                      version_string(properties[i].specVersion)});
  }
  return layers;
}

Result<QueryInstance> QueryInstance::create(const std::vector<const char*>& layers,
                                            const std::vector<const char*>& extensions,
                                            const void* next) {
  HEKLA_ASSIGN_OR_RETURN(const VulkanLoader* loader, VulkanLoader::open());
  auto create =
      reinterpret_cast<PFN_vkCreateInstance>(loader->function(nullptr, "vkCreateInstance"));
  if (create == nullptr) return unavailable("{} has no vkCreateInstance", loader->path());
  QueryInstance instance;
  instance.loader_ = loader;
  instance.api_version_ = std::min(loader->instance_version(), kNewestKnown);
  VkApplicationInfo application = {VK_STRUCTURE_TYPE_APPLICATION_INFO};
  application.pApplicationName = "hekla";
  application.pEngineName = "hekla";
  application.apiVersion = instance.api_version_;
  VkInstanceCreateInfo info = {VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
  info.pNext = next;
  info.pApplicationInfo = &application;
  info.enabledLayerCount = static_cast<uint32_t>(layers.size());
  info.ppEnabledLayerNames = layers.data();
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  const VkResult result = create(&info, nullptr, &instance.instance_);
  if (result == VK_ERROR_INCOMPATIBLE_DRIVER) {
    return unavailable(
        "the Vulkan loader {} found no usable driver ({}); install one (Debian: "
        "mesa-vulkan-drivers) or point VK_DRIVER_FILES at its manifest",
        loader->path(), result_name(result));
  }
  if (result != VK_SUCCESS) {
    return internal_error("vkCreateInstance through {}: {}", loader->path(), result_name(result));
  }
  return instance;
}

QueryInstance::QueryInstance(QueryInstance&& other) noexcept
    : loader_(other.loader_), instance_(other.instance_), api_version_(other.api_version_) {
  other.instance_ = nullptr;
}

QueryInstance::~QueryInstance() {
  if (instance_ == nullptr) return;
  auto destroy =
      reinterpret_cast<PFN_vkDestroyInstance>(loader_->function(instance_, "vkDestroyInstance"));
  if (destroy != nullptr) destroy(instance_, nullptr);
}

}  // namespace hekla::vulkan
