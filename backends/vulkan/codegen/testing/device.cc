// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/testing/device.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "backends/vulkan/snapshot/loader.h"

namespace hekla::vulkan::testing {
namespace {

constexpr const char* kLayer = "VK_LAYER_KHRONOS_validation";
constexpr uint64_t kTimeoutNs = 60'000'000'000;
constexpr uint64_t kAlignment = 64;

// Functions by name, looked up when they are called: few calls, no table to keep.
#define HEKLA_VK(name, ...) reinterpret_cast<PFN_##name>(get_device(device, #name))(__VA_ARGS__)
#define HEKLA_VK_INSTANCE(name, ...) \
  reinterpret_cast<PFN_##name>(loader->function(instance, #name))(__VA_ARGS__)
#define HEKLA_VK_CHECK(call)                                                                  \
  do {                                                                                        \
    if (const VkResult r = (call); r != VK_SUCCESS) {                                         \
      return internal_error("{}: {}", std::string_view(#call).substr(0, 60), result_name(r)); \
    }                                                                                         \
  } while (false)

VkBool32 VKAPI_PTR note(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                        const VkDebugUtilsMessengerCallbackDataEXT* data, void* messages) {
  auto* text = static_cast<std::string*>(messages);
  *text += std::string(text->empty() ? "" : "; ") + data->pMessage;
  return VK_FALSE;
}

}  // namespace

struct TestDevice::State {
  const VulkanLoader* loader = nullptr;
  VkInstance instance = nullptr;
  VkDebugUtilsMessengerEXT messenger = VK_NULL_HANDLE;
  std::string messages;
  VkPhysicalDevice physical = nullptr;
  VkDevice device = nullptr;
  PFN_vkGetDeviceProcAddr get_device = nullptr;
  VkQueue queue = nullptr;
  uint32_t family = 0;
  uint32_t memory_type = 0;
  DeviceSnapshot snapshot;

  ~State() {
    if (device != nullptr) HEKLA_VK(vkDestroyDevice, device, nullptr);
    if (instance == nullptr) return;
    if (messenger != VK_NULL_HANDLE) {
      HEKLA_VK_INSTANCE(vkDestroyDebugUtilsMessengerEXT, instance, messenger, nullptr);
    }
    HEKLA_VK_INSTANCE(vkDestroyInstance, instance, nullptr);
  }

  Status make_instance() {
    HEKLA_ASSIGN_OR_RETURN(loader, VulkanLoader::open());
    HEKLA_ASSIGN_OR_RETURN(const std::vector<LayerInfo> layers, list_layers());
    const bool has_layer = std::any_of(layers.begin(), layers.end(),
                                       [](const LayerInfo& l) { return l.name == kLayer; });
    const char* extension = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    VkApplicationInfo application = {VK_STRUCTURE_TYPE_APPLICATION_INFO};
    application.apiVersion = VK_API_VERSION_1_2;
    VkInstanceCreateInfo info = {VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    info.pApplicationInfo = &application;
    info.enabledLayerCount = has_layer ? 1 : 0;
    info.ppEnabledLayerNames = &kLayer;
    info.enabledExtensionCount = has_layer ? 1 : 0;
    info.ppEnabledExtensionNames = &extension;
    auto create =
        reinterpret_cast<PFN_vkCreateInstance>(loader->function(nullptr, "vkCreateInstance"));
    if (const VkResult r = create(&info, nullptr, &instance); r != VK_SUCCESS) {
      return unavailable("vkCreateInstance: {}", result_name(r));
    }
    if (!has_layer) return Status();
    VkDebugUtilsMessengerCreateInfoEXT debug = {
        VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT};
    debug.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT |
                            VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT;
    debug.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
    debug.pfnUserCallback = note;
    debug.pUserData = &messages;
    HEKLA_VK_CHECK(
        HEKLA_VK_INSTANCE(vkCreateDebugUtilsMessengerEXT, instance, &debug, nullptr, &messenger));
    return Status();
  }

  Status make_device() {
    HEKLA_ASSIGN_OR_RETURN(const std::vector<DeviceSnapshot> snapshots, query_devices());
    if (snapshots.empty()) return unavailable("there is no Vulkan device");
    const size_t index = preferred_order(snapshots).front();
    snapshot = snapshots[index];
    if (!snapshot.features.buffer_device_address) {
      return unavailable("{} has no buffer device addresses", snapshot.name);
    }
    auto count = static_cast<uint32_t>(snapshots.size());
    std::vector<VkPhysicalDevice> devices(count);
    HEKLA_VK_INSTANCE(vkEnumeratePhysicalDevices, instance, &count, devices.data());
    physical = devices[index];
    for (family = 0; family + 1 < snapshot.queue_families.size(); ++family) {
      if (snapshot.queue_families[family].has_compute) break;
    }

    VkPhysicalDeviceVulkan12Features features12 = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    features12.bufferDeviceAddress = VK_TRUE;
    features12.storageBuffer8BitAccess = snapshot.features.storage_8;
    VkPhysicalDeviceVulkan11Features features11 = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, &features12};
    features11.storageBuffer16BitAccess = snapshot.features.storage_16;
    VkPhysicalDeviceFeatures2 features = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          &features11};
    features.features.shaderInt64 = snapshot.features.i64;
    features.features.shaderFloat64 = snapshot.features.f64;
    const float priority = 1;
    VkDeviceQueueCreateInfo queue_info = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
    queue_info.queueFamilyIndex = family;
    queue_info.queueCount = 1;
    queue_info.pQueuePriorities = &priority;
    VkDeviceCreateInfo info = {VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, &features};
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queue_info;
    HEKLA_VK_CHECK(HEKLA_VK_INSTANCE(vkCreateDevice, physical, &info, nullptr, &device));
    get_device = reinterpret_cast<PFN_vkGetDeviceProcAddr>(
        loader->function(instance, "vkGetDeviceProcAddr"));
    HEKLA_VK(vkGetDeviceQueue, device, family, 0, &queue);
    return Status();
  }

  Status take_messages() {
    if (messages.empty()) return Status();
    return internal_error("Vulkan validation: {}", std::exchange(messages, ""));
  }
};

namespace {

// Objects of one run, destroyed with it.
struct Run {
  VkDevice device;
  PFN_vkGetDeviceProcAddr get_device;
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  VkShaderModule module = VK_NULL_HANDLE;
  VkPipelineLayout layout = VK_NULL_HANDLE;
  VkPipeline pipeline = VK_NULL_HANDLE;
  VkCommandPool pool = VK_NULL_HANDLE;
  VkCommandBuffer commands = nullptr;
  VkFence fence = VK_NULL_HANDLE;
  std::byte* mapped = nullptr;
  uint64_t address = 0;

  ~Run() {
    HEKLA_VK(vkDestroyFence, device, fence, nullptr);
    HEKLA_VK(vkDestroyCommandPool, device, pool, nullptr);
    HEKLA_VK(vkDestroyPipeline, device, pipeline, nullptr);
    HEKLA_VK(vkDestroyPipelineLayout, device, layout, nullptr);
    HEKLA_VK(vkDestroyShaderModule, device, module, nullptr);
    HEKLA_VK(vkDestroyBuffer, device, buffer, nullptr);
    HEKLA_VK(vkFreeMemory, device, memory, nullptr);
  }

  Status make_memory(uint64_t bytes, const DeviceSnapshot& snapshot) {
    VkBufferCreateInfo info = {VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
    info.size = bytes;
    info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    HEKLA_VK_CHECK(HEKLA_VK(vkCreateBuffer, device, &info, nullptr, &buffer));
    VkMemoryRequirements needs;
    HEKLA_VK(vkGetBufferMemoryRequirements, device, buffer, &needs);
    uint32_t type = 0;
    for (; type < snapshot.memory_types.size(); ++type) {
      const MemoryType& t = snapshot.memory_types[type];
      if ((needs.memoryTypeBits >> type & 1) != 0 && t.is_host_visible && t.is_host_coherent) break;
    }
    if (type == snapshot.memory_types.size()) return internal_error("no host-visible memory");
    VkMemoryAllocateFlagsInfo flags = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO};
    flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
    VkMemoryAllocateInfo allocate = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags};
    allocate.allocationSize = needs.size;
    allocate.memoryTypeIndex = type;
    HEKLA_VK_CHECK(HEKLA_VK(vkAllocateMemory, device, &allocate, nullptr, &memory));
    HEKLA_VK_CHECK(HEKLA_VK(vkBindBufferMemory, device, buffer, memory, 0));
    void* start = nullptr;
    HEKLA_VK_CHECK(HEKLA_VK(vkMapMemory, device, memory, 0, VK_WHOLE_SIZE, 0, &start));
    mapped = static_cast<std::byte*>(start);
    VkBufferDeviceAddressInfo which = {VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO};
    which.buffer = buffer;
    address = HEKLA_VK(vkGetBufferDeviceAddress, device, &which);
    return Status();
  }

  Status make_pipeline(const Shader& shader) {
    VkShaderModuleCreateInfo code = {VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
    code.codeSize = shader.words.size() * sizeof(uint32_t);
    code.pCode = shader.words.data();
    HEKLA_VK_CHECK(HEKLA_VK(vkCreateShaderModule, device, &code, nullptr, &module));
    const VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, kShaderPushBytes};
    VkPipelineLayoutCreateInfo layout_info = {VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
    layout_info.pushConstantRangeCount = 1;
    layout_info.pPushConstantRanges = &range;
    HEKLA_VK_CHECK(HEKLA_VK(vkCreatePipelineLayout, device, &layout_info, nullptr, &layout));
    VkComputePipelineCreateInfo info = {VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
    info.stage = {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO};
    info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
    info.stage.module = module;
    info.stage.pName = "main";
    info.layout = layout;
    HEKLA_VK_CHECK(
        HEKLA_VK(vkCreateComputePipelines, device, VK_NULL_HANDLE, 1, &info, nullptr, &pipeline));
    return Status();
  }

  Status record(const Shader& shader, const RunOptions& options, uint32_t family) {
    VkCommandPoolCreateInfo pool_info = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    pool_info.queueFamilyIndex = family;
    HEKLA_VK_CHECK(HEKLA_VK(vkCreateCommandPool, device, &pool_info, nullptr, &pool));
    VkCommandBufferAllocateInfo allocate = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
    allocate.commandPool = pool;
    allocate.commandBufferCount = 1;
    HEKLA_VK_CHECK(HEKLA_VK(vkAllocateCommandBuffers, device, &allocate, &commands));
    VkCommandBufferBeginInfo begin = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    HEKLA_VK_CHECK(HEKLA_VK(vkBeginCommandBuffer, commands, &begin));
    HEKLA_VK(vkCmdBindPipeline, commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    for (int64_t first = 0, next = 0; first < shader.group_count; first = next) {
      const int64_t left = shader.group_count - first;
      const int64_t count = std::min<int64_t>(options.max_groups, left);
      const int64_t x = std::min<int64_t>(count, options.max_x);
      const int64_t y = std::min<int64_t>(count / x, options.max_y);
      // The last piece may have too many groups, the others must not: they would run twice.
      const bool is_last = count == left && (left - 1) / x < int64_t{options.max_y};
      const int64_t rows = is_last ? (left + x - 1) / x : y;
      next = first + x * rows;
      struct {
        uint64_t table;
        uint32_t groups[3] = {};  // not read
        uint32_t first_group;
      } constants{address, {}, static_cast<uint32_t>(first)};
      static_assert(sizeof(constants) == kShaderPushBytes);
      HEKLA_VK(vkCmdPushConstants, commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
               kShaderPushBytes, &constants);
      // A quarter of the rows each in z, to see that z counts.
      const int64_t z = rows % 4 == 0 ? 4 : 1;
      HEKLA_VK(vkCmdDispatch, commands, static_cast<uint32_t>(x), static_cast<uint32_t>(rows / z),
               static_cast<uint32_t>(z));
    }
    VkMemoryBarrier barrier = {VK_STRUCTURE_TYPE_MEMORY_BARRIER};
    barrier.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT;
    barrier.dstAccessMask = VK_ACCESS_HOST_READ_BIT;
    HEKLA_VK(vkCmdPipelineBarrier, commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
             VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0, nullptr, 0, nullptr);
    HEKLA_VK_CHECK(HEKLA_VK(vkEndCommandBuffer, commands));
    VkFenceCreateInfo fence_info = {VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    HEKLA_VK_CHECK(HEKLA_VK(vkCreateFence, device, &fence_info, nullptr, &fence));
    return Status();
  }

  Status submit(VkQueue queue) {
    VkSubmitInfo info = {VK_STRUCTURE_TYPE_SUBMIT_INFO};
    info.commandBufferCount = 1;
    info.pCommandBuffers = &commands;
    HEKLA_VK_CHECK(HEKLA_VK(vkResetFences, device, 1, &fence));
    HEKLA_VK_CHECK(HEKLA_VK(vkQueueSubmit, queue, 1, &info, fence));
    HEKLA_VK_CHECK(HEKLA_VK(vkWaitForFences, device, 1, &fence, VK_TRUE, kTimeoutNs));
    return Status();
  }
};

uint64_t rounded_up(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

TestDevice::TestDevice(std::unique_ptr<State> state) : state_(std::move(state)) {}
TestDevice::~TestDevice() = default;
const DeviceSnapshot& TestDevice::snapshot() const { return state_->snapshot; }

Result<std::unique_ptr<TestDevice>> TestDevice::open() {
  auto state = std::make_unique<State>();
  HEKLA_RETURN_IF_ERROR(state->make_instance());
  HEKLA_RETURN_IF_ERROR(state->make_device());
  HEKLA_RETURN_IF_ERROR(state->take_messages());
  return std::unique_ptr<TestDevice>(new TestDevice(std::move(state)));
}

Status TestDevice::run(const Shader& shader, kernel::testing::Buffers& operands,
                       const RunOptions& options, double* seconds) {
  // The table, then the operands.
  std::vector<uint64_t> offsets;
  uint64_t bytes = rounded_up(sizeof(uint64_t) * std::max<size_t>(1, operands.size()));
  for (const auto& operand : operands) {
    offsets.push_back(bytes);
    bytes += rounded_up(operand.size()) + kAlignment;
  }
  {
    Run run{state_->device, state_->get_device};
    HEKLA_RETURN_IF_ERROR(run.make_memory(bytes, state_->snapshot));
    for (size_t i = 0; i < operands.size(); ++i) {
      const uint64_t address = run.address + offsets[i];
      std::memcpy(run.mapped + i * sizeof(address), &address, sizeof(address));
      std::copy(operands[i].begin(), operands[i].end(), run.mapped + offsets[i]);
    }
    HEKLA_RETURN_IF_ERROR(run.make_pipeline(shader));
    HEKLA_RETURN_IF_ERROR(run.record(shader, options, state_->family));
    double shortest = 1e30;
    for (int i = 0; i < options.repetitions; ++i) {
      const auto start = std::chrono::steady_clock::now();
      HEKLA_RETURN_IF_ERROR(run.submit(state_->queue));
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      shortest = std::min(shortest, took.count());
    }
    if (seconds != nullptr) *seconds = shortest;
    for (size_t i = 0; i < operands.size(); ++i) {
      std::copy_n(run.mapped + offsets[i], operands[i].size(), operands[i].begin());
    }
  }
  return state_->take_messages();
}

}  // namespace hekla::vulkan::testing
