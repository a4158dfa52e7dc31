// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/device/device.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "runtime/base/log.h"

namespace hekla::vulkan {
namespace {

constexpr const char* kValidationLayer = "VK_LAYER_KHRONOS_validation";

std::atomic<int64_t> the_validation_messages{0};

VKAPI_ATTR VkBool32 VKAPI_CALL report_message(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                              VkDebugUtilsMessageTypeFlagsEXT,
                                              const VkDebugUtilsMessengerCallbackDataEXT* data,
                                              void*) {
  ++the_validation_messages;
  log_message(LogLevel::kError, "Vulkan validation: {}",
              data != nullptr && data->pMessage != nullptr ? data->pMessage : "(no text)");
  return VK_FALSE;
}

VkDebugUtilsMessengerCreateInfoEXT messenger_info() {
  VkDebugUtilsMessengerCreateInfoEXT info = {
      VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT};
  info.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
                         VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  info.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
  info.pfnUserCallback = report_message;
  return info;
}

Result<QueryInstance> open_instance(bool validation) {
  if (!validation) return QueryInstance::create();
  HEKLA_ASSIGN_OR_RETURN(std::vector<LayerInfo> layers, list_layers());
  if (std::none_of(layers.begin(), layers.end(),
                   [](const LayerInfo& layer) { return layer.name == kValidationLayer; })) {
    return failed_precondition(
        "Vulkan validation is asked for but {} is not installed (Debian: "
        "vulkan-validationlayers)",
        kValidationLayer);
  }
  const VkDebugUtilsMessengerCreateInfoEXT messenger = messenger_info();
  const VkValidationFeatureEnableEXT enabled[] = {
      VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
  VkValidationFeaturesEXT features = {VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT};
  features.pNext = &messenger;
  features.enabledValidationFeatureCount = 1;
  features.pEnabledValidationFeatures = enabled;
  return QueryInstance::create({kValidationLayer}, {VK_EXT_DEBUG_UTILS_EXTENSION_NAME}, &features);
}

// The two structures that this project's headers may lack; numbers from the Vulkan registry.
struct CooperativeMatrixFeatures {
  VkStructureType sType = static_cast<VkStructureType>(1000506000);
  void* pNext = nullptr;
  VkBool32 cooperative_matrix = VK_TRUE;
  VkBool32 robust_buffer_access = VK_FALSE;
};
struct Bfloat16Features {
  VkStructureType sType = static_cast<VkStructureType>(1000141000);
  void* pNext = nullptr;
  VkBool32 type = VK_TRUE;
  VkBool32 dot_product = VK_FALSE;
  VkBool32 cooperative_matrix = VK_FALSE;
};

// For a device that may still be at work: nothing is waited for, submitted or freed.
void stop_calls(DeviceFunctions& f) {
  f.QueueSubmit = [](VkQueue, uint32_t, const VkSubmitInfo*, VkFence) {
    return VK_ERROR_DEVICE_LOST;
  };
  f.DeviceWaitIdle = [](VkDevice) { return VK_ERROR_DEVICE_LOST; };
  f.WaitSemaphores = [](VkDevice, const VkSemaphoreWaitInfo*, uint64_t) {
    return VK_ERROR_DEVICE_LOST;
  };
  f.DestroyDevice = [](VkDevice, const VkAllocationCallbacks*) {};
  f.FreeMemory = [](VkDevice, VkDeviceMemory, const VkAllocationCallbacks*) {};
  f.UnmapMemory = [](VkDevice, VkDeviceMemory) {};
  f.DestroyBuffer = [](VkDevice, VkBuffer, const VkAllocationCallbacks*) {};
  f.DestroySemaphore = [](VkDevice, VkSemaphore, const VkAllocationCallbacks*) {};
  f.DestroyCommandPool = [](VkDevice, VkCommandPool, const VkAllocationCallbacks*) {};
  f.DestroyPipelineLayout = [](VkDevice, VkPipelineLayout, const VkAllocationCallbacks*) {};
  f.DestroyPipeline = [](VkDevice, VkPipeline, const VkAllocationCallbacks*) {};
  f.DestroyPipelineCache = [](VkDevice, VkPipelineCache, const VkAllocationCallbacks*) {};
  f.DestroyQueryPool = [](VkDevice, VkQueryPool, const VkAllocationCallbacks*) {};
}

bool speaks_1_3(const DeviceSnapshot& snapshot) {
  int major = 0;
  int minor = 0;
  std::sscanf(snapshot.api_version.c_str(), "%d.%d", &major, &minor);
  return major > 1 || minor >= 3;
}

}  // namespace

int64_t validation_message_count() { return the_validation_messages; }

Result<std::shared_ptr<Device>> Device::open(std::string_view wanted,
                                             const DeviceOptions& options) {
  HEKLA_ASSIGN_OR_RETURN(QueryInstance instance, open_instance(options.validation));
  HEKLA_ASSIGN_OR_RETURN(std::vector<DeviceSnapshot> snapshots, query_devices(instance));
  HEKLA_ASSIGN_OR_RETURN(const size_t chosen, choose_device(snapshots, wanted));
  HEKLA_ASSIGN_OR_RETURN(DevicePlan plan, plan_device(snapshots[chosen], options));

  std::shared_ptr<Device> device(new Device(std::move(instance)));
  device->snapshot_ = std::move(snapshots[chosen]);
  device->plan_ = std::move(plan);
  if (device->snapshot_.type == DeviceType::kCpu) {
    log_message(LogLevel::kVerbose, "the Vulkan device {} is a CPU in software",
                device->snapshot_.name);
  }
  for (const std::string& reason : device->plan_.reasons) {
    log_message(LogLevel::kVerbose, "{}: {}", device->snapshot_.name, reason);
  }
  if (options.validation) device->add_messenger();

  auto enumerate = reinterpret_cast<PFN_vkEnumeratePhysicalDevices>(
      device->instance_.loader().function(device->instance_.get(), "vkEnumeratePhysicalDevices"));
  auto count = static_cast<uint32_t>(snapshots.size());
  std::vector<VkPhysicalDevice> physical(count);
  const VkResult result = enumerate(device->instance_.get(), &count, physical.data());
  HEKLA_RETURN_IF_ERROR(device->check(result, "vkEnumeratePhysicalDevices"));
  if (chosen >= count) return unavailable("the Vulkan device {} has gone", chosen);
  HEKLA_RETURN_IF_ERROR(device->create(physical[chosen]));
  return device;
}

void Device::add_messenger() {
  auto create = reinterpret_cast<PFN_vkCreateDebugUtilsMessengerEXT>(
      instance_.loader().function(instance_.get(), "vkCreateDebugUtilsMessengerEXT"));
  const VkDebugUtilsMessengerCreateInfoEXT info = messenger_info();
  if (create != nullptr) create(instance_.get(), &info, nullptr, &messenger_);
}

Status Device::create(VkPhysicalDevice physical) {
  physical_ = physical;
  const Features& wanted = plan_.features;
  VkPhysicalDeviceFeatures2 features = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
  VkPhysicalDeviceVulkan11Features v11 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES};
  VkPhysicalDeviceVulkan12Features v12 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  VkPhysicalDeviceVulkan13Features v13 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES};
  VkPhysicalDeviceShaderAtomicFloatFeaturesEXT atomics = {
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_ATOMIC_FLOAT_FEATURES_EXT};
  CooperativeMatrixFeatures cooperative;
  Bfloat16Features bfloat16;
  VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR statistics = {
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR};
  features.features.shaderFloat64 = wanted.f64;
  features.features.shaderInt64 = wanted.i64;
  features.features.shaderInt16 = wanted.i16;
  v11.storageBuffer16BitAccess = wanted.storage_16;
  v12.shaderFloat16 = wanted.f16;
  v12.shaderInt8 = wanted.i8;
  v12.storageBuffer8BitAccess = wanted.storage_8;
  v12.shaderBufferInt64Atomics = wanted.i64_atomics;
  v12.timelineSemaphore = VK_TRUE;
  v12.bufferDeviceAddress = VK_TRUE;
  v12.scalarBlockLayout = wanted.scalar_block_layout;
  // The model forbids atomics of the device's scope unless that is asked for, too.
  v12.vulkanMemoryModel = v12.vulkanMemoryModelDeviceScope = wanted.vulkan_memory_model;
  v13.subgroupSizeControl = wanted.subgroup_size_control;
  v13.computeFullSubgroups = wanted.compute_full_subgroups;
  v13.shaderIntegerDotProduct = wanted.integer_dot_product;
  v13.synchronization2 = wanted.synchronization2;
  atomics.shaderBufferFloat32AtomicAdd = VK_TRUE;
  bfloat16.cooperative_matrix = wanted.cooperative_matrix && wanted.bf16_cooperative_matrix;
  statistics.pipelineExecutableInfo = VK_TRUE;
  void** tail = &features.pNext;
  const auto chain = [&tail](auto& structure) {
    *tail = &structure;
    tail = &structure.pNext;
  };
  chain(v11);
  chain(v12);
  if (speaks_1_3(snapshot_)) chain(v13);
  if (wanted.f32_atomic_add) chain(atomics);
  if (wanted.cooperative_matrix) chain(cooperative);
  if (wanted.bf16) chain(bfloat16);
  if (wanted.pipeline_statistics) chain(statistics);

  const float priorities[] = {1.0F, 1.0F};
  std::vector<VkDeviceQueueCreateInfo> queues;
  const auto add_family = [&](const QueueIndex& queue) {
    for (VkDeviceQueueCreateInfo& info : queues) {
      if (info.queueFamilyIndex == queue.family) {
        info.queueCount = std::max(info.queueCount, queue.index + 1);
        return;
      }
    }
    VkDeviceQueueCreateInfo info = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
    info.queueFamilyIndex = queue.family;
    info.queueCount = queue.index + 1;
    info.pQueuePriorities = priorities;
    queues.push_back(info);
  };
  add_family(plan_.compute);
  add_family(plan_.transfer);

  std::vector<const char*> extensions;
  for (const std::string& name : plan_.extensions) extensions.push_back(name.c_str());
  VkDeviceCreateInfo info = {VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO};
  info.pNext = &features;
  info.queueCreateInfoCount = static_cast<uint32_t>(queues.size());
  info.pQueueCreateInfos = queues.data();
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  auto create_device = reinterpret_cast<PFN_vkCreateDevice>(
      instance_.loader().function(instance_.get(), "vkCreateDevice"));
  HEKLA_RETURN_IF_ERROR(
      check(create_device(physical_, &info, nullptr, &device_), "vkCreateDevice"));
  HEKLA_RETURN_IF_ERROR(load_functions());
  after_ = functions_;
  stop_calls(after_);
  functions_.GetDeviceQueue(device_, plan_.compute.family, plan_.compute.index, &compute_.handle);
  compute_.family = plan_.compute.family;
  functions_.GetDeviceQueue(device_, plan_.transfer.family, plan_.transfer.index,
                            &transfer_.handle);
  transfer_.family = plan_.transfer.family;
  return ok_status();
}

Status Device::load_functions() {
  auto get = reinterpret_cast<PFN_vkGetDeviceProcAddr>(
      instance_.loader().function(instance_.get(), "vkGetDeviceProcAddr"));
  const char* missing = nullptr;
#define HEKLA_LOAD(name)                                                      \
  functions_.name = reinterpret_cast<PFN_vk##name>(get(device_, "vk" #name)); \
  if (functions_.name == nullptr) missing = "vk" #name;
  HEKLA_VULKAN_RESULT_FUNCTIONS(HEKLA_LOAD)
  HEKLA_VULKAN_VOID_FUNCTIONS(HEKLA_LOAD)
#undef HEKLA_LOAD
#define HEKLA_LOAD(name) functions_.name = reinterpret_cast<PFN_vk##name>(get(device_, "vk" #name));
  HEKLA_VULKAN_OPTIONAL_FUNCTIONS(HEKLA_LOAD)
#undef HEKLA_LOAD
  if (missing == nullptr) return ok_status();
  return unavailable("the driver {} of {} has no {}", snapshot_.driver_name, snapshot_.name,
                     missing);
}

Device::~Device() {
  if (has_given_up_) {
    // Its instance lives on with it, in reach of leak checkers.
    static auto* kept = new std::vector<QueryInstance>;
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    kept->push_back(std::move(instance_));
    return;
  }
  if (device_ != VK_NULL_HANDLE && functions_.DestroyDevice != nullptr) {
    // Legal after a loss; whatever still runs ends first.
    if (functions_.DeviceWaitIdle != nullptr) wait_idle();
    functions_.DestroyDevice(device_, nullptr);
  }
  if (messenger_ != VK_NULL_HANDLE) {
    auto destroy = reinterpret_cast<PFN_vkDestroyDebugUtilsMessengerEXT>(
        instance_.loader().function(instance_.get(), "vkDestroyDebugUtilsMessengerEXT"));
    if (destroy != nullptr) destroy(instance_.get(), messenger_, nullptr);
  }
}

Status Device::check(VkResult result, const char* call) {
  if (result >= 0) return ok_status();
  switch (result) {
    case VK_ERROR_DEVICE_LOST:
      lose(fmt::format("{} said {}", call, result_name(result)));
      return health();
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS:
    case VK_ERROR_OUT_OF_POOL_MEMORY:
    case VK_ERROR_FRAGMENTED_POOL:
      return resource_exhausted("{} on {}: {}", call, snapshot_.name, result_name(result));
    default:
      return internal_error("{} on {}: {}", call, snapshot_.name, result_name(result));
  }
}

void Device::lose(std::string reason) {
  std::lock_guard lock(loss_mutex_);
  if (is_lost_) return;
  loss_ = fmt::format(
      "the Vulkan device {} is lost: {}. Its buffers are gone; make a new client. A kernel that "
      "ran too long for the driver's watchdog, a fault in a kernel or a driver error are the "
      "usual causes",
      snapshot_.name, reason);
  is_lost_.store(true, std::memory_order_release);
  log_line(LogLevel::kError, loss_);
}

void Device::give_up(std::string reason) {
  has_given_up_ = true;
  lose(std::move(reason));
}

Status Device::health() const {
  if (!is_lost()) return ok_status();
  std::lock_guard lock(loss_mutex_);
  return Status(StatusCode::kUnavailable, loss_);
}

void Device::wait_idle() {
  if (has_given_up_) return;
  std::scoped_lock lock(compute_.mutex, transfer_.mutex);
  call().DeviceWaitIdle(device_);
}

int64_t Device::heap_bytes_left() const {
  if (!plan_.features.memory_budget) return -1;
  auto get = reinterpret_cast<PFN_vkGetPhysicalDeviceMemoryProperties2>(
      instance_.loader().function(instance_.get(), "vkGetPhysicalDeviceMemoryProperties2"));
  if (get == nullptr) return -1;
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
  VkPhysicalDeviceMemoryProperties2 memory = {
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  memory.pNext = &budget;
  get(physical_, &memory);
  const VkDeviceSize limit = budget.heapBudget[plan_.device_heap];
  const VkDeviceSize used = budget.heapUsage[plan_.device_heap];
  return limit > used ? static_cast<int64_t>(limit - used) : 0;
}

VkExternalMemoryFeatureFlags Device::external_buffer_features(
    VkExternalMemoryHandleTypeFlagBits handle, VkBufferUsageFlags usage) const {
  auto get = reinterpret_cast<PFN_vkGetPhysicalDeviceExternalBufferProperties>(
      instance_.loader().function(instance_.get(), "vkGetPhysicalDeviceExternalBufferProperties"));
  if (get == nullptr) return 0;
  VkPhysicalDeviceExternalBufferInfo info = {
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO};
  info.usage = usage;
  info.handleType = handle;
  VkExternalBufferProperties properties = {VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES};
  get(physical_, &info, &properties);
  return properties.externalMemoryProperties.externalMemoryFeatures;
}

std::string Device::identity() const {
  return fmt::format("{:x}:{:x}:{}:{:x}:{}:{}:{}:{}:{}", snapshot_.vendor_id, snapshot_.device_id,
                     snapshot_.driver_id, snapshot_.driver_version, snapshot_.driver_info,
                     snapshot_.conformance_version, snapshot_.pipeline_cache_uuid,
                     snapshot_.driver_uuid, snapshot_.api_version);
}

}  // namespace hekla::vulkan
