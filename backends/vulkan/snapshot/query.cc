// SPDX-License-Identifier: Apache-2.0
// query_devices: reads the snapshots from the drivers.
#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include <algorithm>
#include <set>

#include "backends/vulkan/snapshot/loader.h"
#include "backends/vulkan/snapshot/snapshot.h"

namespace hekla::vulkan {
namespace {

// Structures newer than Debian 12's headers (1.3.239); numbers from the Vulkan registry.
constexpr VkStructureType kCooperativeMatrixFeatures = static_cast<VkStructureType>(1000506000);
constexpr VkStructureType kCooperativeMatrixProperties = static_cast<VkStructureType>(1000506001);
constexpr VkStructureType kBfloat16Features = static_cast<VkStructureType>(1000141000);
constexpr uint32_t kSubgroupScope = 3;

struct CooperativeMatrixFeatures {
  VkStructureType sType = kCooperativeMatrixFeatures;
  void* pNext = nullptr;
  VkBool32 cooperative_matrix = VK_FALSE;
  VkBool32 robust_buffer_access = VK_FALSE;
};

struct CooperativeMatrixProperties {
  VkStructureType sType = kCooperativeMatrixProperties;
  void* pNext = nullptr;
  uint32_t m = 0, n = 0, k = 0;
  uint32_t a = 0, b = 0, c = 0, result = 0;
  VkBool32 is_saturating = VK_FALSE;
  uint32_t scope = 0;
};

struct Bfloat16Features {
  VkStructureType sType = kBfloat16Features;
  void* pNext = nullptr;
  VkBool32 type = VK_FALSE;
  VkBool32 dot_product = VK_FALSE;
  VkBool32 cooperative_matrix = VK_FALSE;
};

using GetCooperativeMatrixProperties = VkResult(VKAPI_PTR*)(VkPhysicalDevice, uint32_t*,
                                                            CooperativeMatrixProperties*);

std::string component_name(uint32_t type) {
  switch (type) {
    case 0:
      return "f16";
    case 1:
      return "f32";
    case 2:
      return "f64";
    case 3:
      return "i8";
    case 4:
      return "i16";
    case 5:
      return "i32";
    case 6:
      return "i64";
    case 7:
      return "ui8";
    case 8:
      return "ui16";
    case 9:
      return "ui32";
    case 10:
      return "ui64";
    case 1000141000:
      return "bf16";
    case 1000491002:
      return "f8E4M3FN";
    case 1000491003:
      return "f8E5M2";
    default:
      return "?";
  }
}

std::string vendor_name(uint32_t id) {
  switch (id) {
    case 0x1002:
      return "AMD";
    case 0x1010:
      return "Imagination";
    case 0x106b:
      return "Apple";
    case 0x10de:
      return "NVIDIA";
    case 0x13b5:
      return "Arm";
    case 0x14e4:
      return "Broadcom";
    case 0x5143:
      return "Qualcomm";
    case 0x8086:
      return "Intel";
    case VK_VENDOR_ID_MESA:
      return "Mesa";
    default:
      return fmt::format("0x{:04x}", id);
  }
}

std::string hex(const uint8_t (&bytes)[VK_UUID_SIZE]) {
  std::string text;
  for (uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

DeviceType device_type(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return DeviceType::kIntegrated;
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return DeviceType::kDiscrete;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return DeviceType::kVirtual;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return DeviceType::kCpu;
    default:
      return DeviceType::kOther;
  }
}

// Appends a structure to a pNext chain.
class Chain {
 public:
  explicit Chain(void** tail) : tail_(tail) {}
  template <typename T>
  void add(T& structure) {
    *tail_ = &structure;
    tail_ = &structure.pNext;
  }

 private:
  void** tail_;
};

class Querier {
 public:
  explicit Querier(const QueryInstance& instance) : instance_(instance) {}

  Result<std::vector<DeviceSnapshot>> run() {
    auto enumerate = load<PFN_vkEnumeratePhysicalDevices>("vkEnumeratePhysicalDevices");
    if (enumerate == nullptr) return internal_error("the loader lacks vkEnumeratePhysicalDevices");
    uint32_t count = 0;
    VkResult result = enumerate(instance_.get(), &count, nullptr);
    std::vector<VkPhysicalDevice> devices(count);
    if (result == VK_SUCCESS && count > 0) {
      result = enumerate(instance_.get(), &count, devices.data());
    }
    if (result == VK_ERROR_INITIALIZATION_FAILED) {
      return unavailable(
          "the Vulkan drivers failed to start ({}); in a container this often means that the "
          "driver's own libraries (libxext6, libegl1) or the `graphics` capability are missing",
          result_name(result));
    }
    if (result < 0) {
      return internal_error("vkEnumeratePhysicalDevices: {}", result_name(result));
    }
    devices.resize(count);
    std::vector<DeviceSnapshot> snapshots;
    for (VkPhysicalDevice device : devices) snapshots.push_back(query(device));
    return snapshots;
  }

 private:
  template <typename Function>
  Function load(const char* name) const {
    return reinterpret_cast<Function>(instance_.loader().function(instance_.get(), name));
  }

  std::set<std::string> extensions_of(VkPhysicalDevice device) const {
    auto enumerate =
        load<PFN_vkEnumerateDeviceExtensionProperties>("vkEnumerateDeviceExtensionProperties");
    uint32_t count = 0;
    std::set<std::string> names;
    if (enumerate == nullptr || enumerate(device, nullptr, &count, nullptr) < 0) return names;
    std::vector<VkExtensionProperties> properties(count);
    if (enumerate(device, nullptr, &count, properties.data()) < 0) return names;
    for (uint32_t i = 0; i < count; ++i) names.insert(properties[i].extensionName);
    return names;
  }

  DeviceSnapshot query(VkPhysicalDevice device) const {
    DeviceSnapshot snapshot;
    const std::set<std::string> extensions = extensions_of(device);
    snapshot.extensions.assign(extensions.begin(), extensions.end());
    VkPhysicalDeviceProperties basic = {};
    load<PFN_vkGetPhysicalDeviceProperties>("vkGetPhysicalDeviceProperties")(device, &basic);
    const uint32_t version = std::min(basic.apiVersion, instance_.api_version());
    snapshot.name = basic.deviceName;
    snapshot.type = device_type(basic.deviceType);
    snapshot.vendor_id = basic.vendorID;
    snapshot.device_id = basic.deviceID;
    snapshot.vendor = vendor_name(basic.vendorID);
    snapshot.driver_version = basic.driverVersion;
    snapshot.api_version = version_string(version);
    snapshot.pipeline_cache_uuid = hex(basic.pipelineCacheUUID);
    fill_limits(basic.limits, snapshot.limits);
    if (version >= VK_API_VERSION_1_1) {
      fill_properties(device, version, extensions, snapshot);
      fill_features(device, version, extensions, snapshot);
    }
    fill_memory(device, version, extensions, snapshot);
    fill_queues(device, snapshot);
    if (snapshot.features.cooperative_matrix) fill_cooperative_matrices(device, snapshot);
    return snapshot;
  }

  static void fill_limits(const VkPhysicalDeviceLimits& from, Limits& to) {
    to.max_storage_buffer_range_bytes = from.maxStorageBufferRange;
    to.max_allocation_count = from.maxMemoryAllocationCount;
    to.buffer_image_granularity_bytes = from.bufferImageGranularity;
    to.min_storage_buffer_alignment_bytes = from.minStorageBufferOffsetAlignment;
    to.non_coherent_atom_bytes = from.nonCoherentAtomSize;
    to.min_memory_map_alignment_bytes = from.minMemoryMapAlignment;
    to.max_push_constants_bytes = from.maxPushConstantsSize;
    to.max_shared_memory_bytes = from.maxComputeSharedMemorySize;
    to.max_workgroup_invocations = from.maxComputeWorkGroupInvocations;
    std::copy_n(from.maxComputeWorkGroupSize, 3, to.max_workgroup_size.begin());
    std::copy_n(from.maxComputeWorkGroupCount, 3, to.max_workgroup_count.begin());
    to.timestamp_period_ns = from.timestampPeriod;
  }

  void fill_properties(VkPhysicalDevice device, uint32_t version,
                       const std::set<std::string>& extensions, DeviceSnapshot& snapshot) const {
    VkPhysicalDeviceProperties2 all = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    VkPhysicalDeviceIDProperties id = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
    VkPhysicalDeviceSubgroupProperties subgroup = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES};
    VkPhysicalDeviceMaintenance3Properties maintenance3 = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES};
    VkPhysicalDeviceDriverProperties driver = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
    VkPhysicalDeviceFloatControlsProperties floats = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES};
    VkPhysicalDeviceSubgroupSizeControlProperties sizes = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
    VkPhysicalDeviceMaintenance4Properties maintenance4 = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
    VkPhysicalDevicePCIBusInfoPropertiesEXT pci = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT};
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host_memory = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    Chain chain(&all.pNext);
    chain.add(id);
    chain.add(subgroup);
    chain.add(maintenance3);
    if (version >= VK_API_VERSION_1_2) {
      chain.add(driver);
      chain.add(floats);
    }
    const bool has_sizes = version >= VK_API_VERSION_1_3 ||
                           extensions.contains(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
    const bool has_maintenance4 =
        version >= VK_API_VERSION_1_3 || extensions.contains(VK_KHR_MAINTENANCE_4_EXTENSION_NAME);
    const bool has_pci = extensions.contains(VK_EXT_PCI_BUS_INFO_EXTENSION_NAME);
    if (has_sizes) chain.add(sizes);
    if (has_maintenance4) chain.add(maintenance4);
    if (has_pci) chain.add(pci);
    if (extensions.contains(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME)) chain.add(host_memory);
    load<PFN_vkGetPhysicalDeviceProperties2>("vkGetPhysicalDeviceProperties2")(device, &all);

    snapshot.device_uuid = hex(id.deviceUUID);
    snapshot.driver_uuid = hex(id.driverUUID);
    snapshot.driver_id = driver.driverID;
    snapshot.driver_name = driver.driverName;
    snapshot.driver_info = driver.driverInfo;
    const VkConformanceVersion& v = driver.conformanceVersion;
    snapshot.conformance_version =
        fmt::format("{}.{}.{}.{}", v.major, v.minor, v.subminor, v.patch);
    snapshot.limits.max_allocation_bytes = maintenance3.maxMemoryAllocationSize;
    snapshot.limits.max_buffer_bytes =
        has_maintenance4 ? maintenance4.maxBufferSize : maintenance3.maxMemoryAllocationSize;
    snapshot.limits.min_imported_host_alignment_bytes = host_memory.minImportedHostPointerAlignment;
    if (has_pci) {
      snapshot.pci_id = fmt::format("{:04x}:{:02x}:{:02x}.{}", pci.pciDomain, pci.pciBus,
                                    pci.pciDevice, pci.pciFunction);
    }
    snapshot.subgroup.size = subgroup.subgroupSize;
    snapshot.subgroup.min_size = has_sizes ? sizes.minSubgroupSize : subgroup.subgroupSize;
    snapshot.subgroup.max_size = has_sizes ? sizes.maxSubgroupSize : subgroup.subgroupSize;
    constexpr std::pair<VkSubgroupFeatureFlagBits, const char*> kOperations[] = {
        {VK_SUBGROUP_FEATURE_BASIC_BIT, "basic"},
        {VK_SUBGROUP_FEATURE_VOTE_BIT, "vote"},
        {VK_SUBGROUP_FEATURE_ARITHMETIC_BIT, "arithmetic"},
        {VK_SUBGROUP_FEATURE_BALLOT_BIT, "ballot"},
        {VK_SUBGROUP_FEATURE_SHUFFLE_BIT, "shuffle"},
        {VK_SUBGROUP_FEATURE_SHUFFLE_RELATIVE_BIT, "shuffle_relative"},
        {VK_SUBGROUP_FEATURE_CLUSTERED_BIT, "clustered"},
        {VK_SUBGROUP_FEATURE_QUAD_BIT, "quad"},
    };
    if ((subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0) {
      for (const auto& [bit, name] : kOperations) {
        if ((subgroup.supportedOperations & bit) != 0) {
          snapshot.subgroup.operations.emplace_back(name);
        }
      }
    }
    const auto set = [](std::array<bool, 3>& to, VkBool32 f16, VkBool32 f32, VkBool32 f64) {
      to = {f16 == VK_TRUE, f32 == VK_TRUE, f64 == VK_TRUE};
    };
    FloatControls& controls = snapshot.float_controls;
    set(controls.signed_zero_inf_nan_preserve, floats.shaderSignedZeroInfNanPreserveFloat16,
        floats.shaderSignedZeroInfNanPreserveFloat32, floats.shaderSignedZeroInfNanPreserveFloat64);
    set(controls.denorm_preserve, floats.shaderDenormPreserveFloat16,
        floats.shaderDenormPreserveFloat32, floats.shaderDenormPreserveFloat64);
    set(controls.denorm_flush_to_zero, floats.shaderDenormFlushToZeroFloat16,
        floats.shaderDenormFlushToZeroFloat32, floats.shaderDenormFlushToZeroFloat64);
    set(controls.rounding_rte, floats.shaderRoundingModeRTEFloat16,
        floats.shaderRoundingModeRTEFloat32, floats.shaderRoundingModeRTEFloat64);
    set(controls.rounding_rtz, floats.shaderRoundingModeRTZFloat16,
        floats.shaderRoundingModeRTZFloat32, floats.shaderRoundingModeRTZFloat64);
  }

  void fill_features(VkPhysicalDevice device, uint32_t version,
                     const std::set<std::string>& extensions, DeviceSnapshot& snapshot) const {
    VkPhysicalDeviceFeatures2 all = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
    VkPhysicalDeviceVulkan11Features v11 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES};
    VkPhysicalDeviceVulkan12Features v12 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkPhysicalDeviceVulkan13Features v13 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES};
    VkPhysicalDeviceShaderAtomicFloatFeaturesEXT atomics = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_ATOMIC_FLOAT_FEATURES_EXT};
    CooperativeMatrixFeatures cooperative;
    Bfloat16Features bfloat16;
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR statistics = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR};
    Chain chain(&all.pNext);
    if (version >= VK_API_VERSION_1_2) {
      chain.add(v11);
      chain.add(v12);
    }
    if (version >= VK_API_VERSION_1_3) chain.add(v13);
    if (extensions.contains(VK_EXT_SHADER_ATOMIC_FLOAT_EXTENSION_NAME)) chain.add(atomics);
    if (extensions.contains("VK_KHR_cooperative_matrix")) chain.add(cooperative);
    if (extensions.contains("VK_KHR_shader_bfloat16")) chain.add(bfloat16);
    if (extensions.contains(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME)) {
      chain.add(statistics);
    }
    load<PFN_vkGetPhysicalDeviceFeatures2>("vkGetPhysicalDeviceFeatures2")(device, &all);

    Features& f = snapshot.features;
    f.f16 = v12.shaderFloat16 == VK_TRUE;
    f.f64 = all.features.shaderFloat64 == VK_TRUE;
    f.i8 = v12.shaderInt8 == VK_TRUE;
    f.i16 = all.features.shaderInt16 == VK_TRUE;
    f.i64 = all.features.shaderInt64 == VK_TRUE;
    f.bf16 = bfloat16.type == VK_TRUE;
    f.bf16_cooperative_matrix = bfloat16.cooperative_matrix == VK_TRUE;
    f.storage_8 = v12.storageBuffer8BitAccess == VK_TRUE;
    f.storage_16 = v11.storageBuffer16BitAccess == VK_TRUE;
    f.i64_atomics = v12.shaderBufferInt64Atomics == VK_TRUE;
    f.f32_atomic_add = atomics.shaderBufferFloat32AtomicAdd == VK_TRUE;
    f.timeline_semaphore = v12.timelineSemaphore == VK_TRUE;
    f.buffer_device_address = v12.bufferDeviceAddress == VK_TRUE;
    f.synchronization2 = v13.synchronization2 == VK_TRUE;
    f.scalar_block_layout = v12.scalarBlockLayout == VK_TRUE;
    f.subgroup_size_control = v13.subgroupSizeControl == VK_TRUE;
    f.compute_full_subgroups = v13.computeFullSubgroups == VK_TRUE;
    f.vulkan_memory_model =
        v12.vulkanMemoryModel == VK_TRUE && v12.vulkanMemoryModelDeviceScope == VK_TRUE;
    f.robust_buffer_access = all.features.robustBufferAccess == VK_TRUE;
    f.host_memory_import = extensions.contains(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
    f.opaque_fd_memory = extensions.contains(VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME);
    f.dma_buf_memory = f.opaque_fd_memory &&
                       extensions.contains(VK_EXT_EXTERNAL_MEMORY_DMA_BUF_EXTENSION_NAME) &&
                       extensions.contains(VK_EXT_QUEUE_FAMILY_FOREIGN_EXTENSION_NAME);
    f.memory_budget = extensions.contains(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    f.cooperative_matrix = cooperative.cooperative_matrix == VK_TRUE;
    f.integer_dot_product = v13.shaderIntegerDotProduct == VK_TRUE;
    f.pipeline_statistics = statistics.pipelineExecutableInfo == VK_TRUE;
  }

  void fill_memory(VkPhysicalDevice device, uint32_t version,
                   const std::set<std::string>& extensions, DeviceSnapshot& snapshot) const {
    VkPhysicalDeviceMemoryProperties2 all = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    const bool has_budget =
        version >= VK_API_VERSION_1_1 && extensions.contains(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    if (version >= VK_API_VERSION_1_1) {
      if (has_budget) all.pNext = &budget;
      load<PFN_vkGetPhysicalDeviceMemoryProperties2>("vkGetPhysicalDeviceMemoryProperties2")(device,
                                                                                             &all);
    } else {
      load<PFN_vkGetPhysicalDeviceMemoryProperties>("vkGetPhysicalDeviceMemoryProperties")(
          device, &all.memoryProperties);
    }
    const VkPhysicalDeviceMemoryProperties& memory = all.memoryProperties;
    for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
      MemoryHeap heap;
      heap.size_bytes = memory.memoryHeaps[i].size;
      heap.is_device_local = (memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0;
      heap.budget_bytes = has_budget ? budget.heapBudget[i] : 0;
      heap.usage_bytes = has_budget ? budget.heapUsage[i] : 0;
      snapshot.heaps.push_back(heap);
    }
    for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
      const VkMemoryPropertyFlags flags = memory.memoryTypes[i].propertyFlags;
      snapshot.memory_types.push_back({memory.memoryTypes[i].heapIndex,
                                       (flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) != 0,
                                       (flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0,
                                       (flags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT) != 0,
                                       (flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0});
    }
  }

  void fill_queues(VkPhysicalDevice device, DeviceSnapshot& snapshot) const {
    auto get = load<PFN_vkGetPhysicalDeviceQueueFamilyProperties>(
        "vkGetPhysicalDeviceQueueFamilyProperties");
    uint32_t count = 0;
    get(device, &count, nullptr);
    std::vector<VkQueueFamilyProperties> families(count);
    get(device, &count, families.data());
    for (const VkQueueFamilyProperties& family : families) {
      const bool computes = (family.queueFlags & VK_QUEUE_COMPUTE_BIT) != 0;
      const bool draws = (family.queueFlags & VK_QUEUE_GRAPHICS_BIT) != 0;
      // Compute and graphics families transfer even where they do not say so.
      const bool transfers = computes || draws || (family.queueFlags & VK_QUEUE_TRANSFER_BIT) != 0;
      snapshot.queue_families.push_back(
          {family.queueCount, draws, computes, transfers, family.timestampValidBits});
    }
  }

  void fill_cooperative_matrices(VkPhysicalDevice device, DeviceSnapshot& snapshot) const {
    auto get =
        load<GetCooperativeMatrixProperties>("vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    uint32_t count = 0;
    if (get == nullptr || get(device, &count, nullptr) < 0) return;
    std::vector<CooperativeMatrixProperties> properties(count);
    if (get(device, &count, properties.data()) < 0) return;
    for (uint32_t i = 0; i < count; ++i) {
      const CooperativeMatrixProperties& p = properties[i];
      if (p.scope != kSubgroupScope) continue;
      snapshot.cooperative_matrices.push_back(
          {p.m, p.n, p.k, component_name(p.a), component_name(p.b), component_name(p.c),
           component_name(p.result), p.is_saturating == VK_TRUE});
    }
  }

  const QueryInstance& instance_;
};

}  // namespace

Result<std::vector<DeviceSnapshot>> query_devices() {
  HEKLA_ASSIGN_OR_RETURN(QueryInstance instance, QueryInstance::create());
  return query_devices(instance);
}

Result<std::vector<DeviceSnapshot>> query_devices(const QueryInstance& instance) {
  return Querier(instance).run();
}

}  // namespace hekla::vulkan
