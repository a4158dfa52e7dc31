// SPDX-License-Identifier: Apache-2.0
// Topologies: the devices of a client, or of a machine of the same kind, without the hardware.
#include <fmt/ranges.h>

#include <algorithm>

#include "backends/pjrt/abi.h"
#include "runtime/base/hash.h"

namespace hekla::pjrt {
namespace {

constexpr std::string_view kMagic = "hekla topology 2\n";
// Of a topology, over all processes.
constexpr int64_t kMaxTopologyDevices = 1 << 16;

// Name, version and number of devices of each process, a line each.
std::string serialize(const PJRT_TopologyDescription& topology) {
  std::vector<int64_t> counts;
  for (const auto& description : topology.descriptions) {
    counts.resize(static_cast<size_t>(description->process_index) + 1);
    ++counts.back();
  }
  return fmt::format("{}{}\n{}\n{}\n", kMagic, topology.platform_name, topology.platform_version,
                     fmt::join(counts, " "));
}

Result<std::shared_ptr<PJRT_TopologyDescription>> topology_of_options(Options options) {
  HEKLA_RETURN_IF_ERROR(take_process_options(options).status());
  GangOptions gang;
  HEKLA_RETURN_IF_ERROR(gang_option_table(gang).take(options));
  GangNetworkOptions network;
  HEKLA_RETURN_IF_ERROR(gang_network_option_table(network).take(options));
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, backend_factory().create(options));
  return make_topology(*backend, {backend->devices()});
}

// `counts`: devices of each process.
Result<std::shared_ptr<PJRT_TopologyDescription>> topology_of_counts(
    const std::vector<int64_t>& counts) {
  HEKLA_ASSIGN_OR_RETURN(
      std::unique_ptr<Backend> backend,
      backend_factory().create({{"num_devices", *std::max_element(counts.begin(), counts.end())}}));
  std::vector<std::vector<DeviceInfo>> devices;
  for (const int64_t count : counts) {
    const auto& all = backend->devices();
    devices.emplace_back(all.begin(), all.begin() + count);
  }
  return make_topology(*backend, devices);
}

// A topology that the caller owns.
PJRT_TopologyDescription* release(std::shared_ptr<PJRT_TopologyDescription> topology) {
  return new PJRT_TopologyDescription(std::move(*topology));
}

Status TopologyDescription_Create(PJRT_TopologyDescription_Create_Args* args) {
  HEKLA_REQUIRE(args, PJRT_TopologyDescription_Create_Args, topology);
  args->topology = nullptr;
  HEKLA_ASSIGN_OR_RETURN(Options options, read_options(args->create_options, args->num_options));
  for (const auto& [name, value] : options) {
    if (!std::holds_alternative<int64_t>(value)) {
      return invalid_argument("a topology takes integer options only, {} is none", name);
    }
  }
  HEKLA_ASSIGN_OR_RETURN(auto topology, topology_of_options(std::move(options)));
  args->topology = release(std::move(topology));
  return ok_status();
}

Status TopologyDescription_Destroy(PJRT_TopologyDescription_Destroy_Args* args) {
  HEKLA_REQUIRE(args, PJRT_TopologyDescription_Destroy_Args, topology);
  delete args->topology;
  return ok_status();
}

Status TopologyDescription_PlatformName(PJRT_TopologyDescription_PlatformName_Args* args) {
  HEKLA_REQUIRE(args, PJRT_TopologyDescription_PlatformName_Args, platform_name_size);
  HEKLA_REQUIRE_HANDLE(args, topology);
  args->platform_name = args->topology->platform_name.c_str();
  args->platform_name_size = args->topology->platform_name.size();
  return ok_status();
}

Status TopologyDescription_PlatformVersion(PJRT_TopologyDescription_PlatformVersion_Args* args) {
  HEKLA_REQUIRE(args, PJRT_TopologyDescription_PlatformVersion_Args, platform_version_size);
  HEKLA_REQUIRE_HANDLE(args, topology);
  args->platform_version = args->topology->platform_version.c_str();
  args->platform_version_size = args->topology->platform_version.size();
  return ok_status();
}

Status TopologyDescription_GetDeviceDescriptions(
    PJRT_TopologyDescription_GetDeviceDescriptions_Args* args) {
  HEKLA_REQUIRE(args, PJRT_TopologyDescription_GetDeviceDescriptions_Args, num_descriptions);
  HEKLA_REQUIRE_HANDLE(args, topology);
  args->descriptions = args->topology->pointers.data();
  args->num_descriptions = args->topology->pointers.size();
  return ok_status();
}

Status TopologyDescription_Attributes(PJRT_TopologyDescription_Attributes_Args* args) {
  HEKLA_REQUIRE(args, PJRT_TopologyDescription_Attributes_Args, num_attributes);
  HEKLA_REQUIRE_HANDLE(args, topology);
  args->attributes = args->topology->attributes.values.data();
  args->num_attributes = args->topology->attributes.values.size();
  return ok_status();
}

void delete_serialized(PJRT_SerializedTopology* bytes) {
  delete reinterpret_cast<std::string*>(bytes);
}

Status TopologyDescription_Serialize(PJRT_TopologyDescription_Serialize_Args* args) {
  HEKLA_REQUIRE(args, PJRT_TopologyDescription_Serialize_Args, serialized_topology_deleter);
  HEKLA_REQUIRE_HANDLE(args, topology);
  auto* bytes = new std::string(serialize(*args->topology));
  args->serialized_bytes = bytes->data();
  args->serialized_bytes_size = bytes->size();
  args->serialized_topology = reinterpret_cast<PJRT_SerializedTopology*>(bytes);
  args->serialized_topology_deleter = delete_serialized;
  return ok_status();
}

Status TopologyDescription_Deserialize(PJRT_TopologyDescription_Deserialize_Args* args) {
  HEKLA_REQUIRE(args, PJRT_TopologyDescription_Deserialize_Args, topology);
  args->topology = nullptr;
  if (args->serialized_topology == nullptr) return invalid_argument("no serialized topology");
  const std::string_view bytes(args->serialized_topology, args->serialized_topology_size);
  const auto is_foreign = [] {
    return invalid_argument("this topology was not serialized by this version of the plugin");
  };
  if (!bytes.starts_with(kMagic)) return is_foreign();
  // The last line is the number of devices; the others must be this plugin's own.
  const size_t last_line =
      bytes.size() < 2 ? std::string_view::npos : bytes.rfind('\n', bytes.size() - 2);
  // As many processes as the text has words; what else it says must come out again.
  std::vector<int64_t> counts = {0};
  if (last_line != std::string_view::npos) {
    for (char c : bytes.substr(last_line + 1)) {
      if (c == ' ') counts.push_back(0);
      if (c >= '0' && c <= '9' && counts.back() < 1 << 20) {
        counts.back() = counts.back() * 10 + (c - '0');
      }
    }
  }
  // Before as many are made as the text may ask for.
  int64_t total = 0;
  for (int64_t& count : counts) {
    count = std::max<int64_t>(count, 1);
    total += count;
    if (total > kMaxTopologyDevices) return is_foreign();
  }
  HEKLA_ASSIGN_OR_RETURN(auto topology, topology_of_counts(counts));
  if (serialize(*topology) != bytes) return is_foreign();
  args->topology = release(std::move(topology));
  return ok_status();
}

Status TopologyDescription_Fingerprint(PJRT_TopologyDescription_Fingerprint_Args* args) {
  HEKLA_REQUIRE(args, PJRT_TopologyDescription_Fingerprint_Args, fingerprint);
  HEKLA_REQUIRE_HANDLE(args, topology);
  args->fingerprint = fnv1a(serialize(*args->topology));
  return ok_status();
}

Status TopologyDescription_MakeCanonicalShapeForMemorySpace(
    PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args* args) {
  HEKLA_REQUIRE(args, PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args,
                serialized_shape_deleter);
  return unimplemented("all memories keep arrays row-major; there is no other canonical shape");
}

Status TopologyDescription_GetMemorySpaceKindIds(
    PJRT_TopologyDescription_GetMemorySpaceKindIds_Args* args) {
  HEKLA_REQUIRE(args, PJRT_TopologyDescription_GetMemorySpaceKindIds_Args,
                num_memory_space_kind_ids);
  HEKLA_REQUIRE_HANDLE(args, topology);
  args->memory_space_kind_ids = args->topology->memory_kind_ids.data();
  args->num_memory_space_kind_ids = args->topology->memory_kind_ids.size();
  return ok_status();
}

}  // namespace

int memory_kind_id(const std::string& kind) {
  const int id = static_cast<int>(fnv1a(kind) & 0x7fffffff);
  return id == 0 ? 1 : id;
}

std::shared_ptr<PJRT_TopologyDescription> make_topology(
    const Backend& backend, const std::vector<std::vector<DeviceInfo>>& devices) {
  auto topology = std::make_shared<PJRT_TopologyDescription>();
  topology->platform_name = backend.platform_name();
  topology->platform_version = backend.platform_version();
  const auto add = [&](int process, const DeviceInfo& info) {
    auto description = std::make_unique<PJRT_DeviceDescription>();
    description->id = static_cast<int>(topology->descriptions.size());
    description->process_index = process;
    description->debug_string = fmt::format("{}:{}", topology->platform_name, description->id);
    description->to_string = fmt::format("{}(id={})", info.type_name, description->id);
    description->info = info;
    for (const auto& [name, value] : info.attributes) description->attributes.add(name, value);
    for (const std::string& kind : info.memory_kinds) {
      const int id = memory_kind_id(kind);
      description->kinds.push_back({kind, id});
      auto& ids = topology->memory_kind_ids;
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    }
    for (const auto& kind : description->kinds) {
      description->kind_pointers.push_back(reinterpret_cast<const PJRT_MemoryDescription*>(&kind));
    }
    topology->pointers.push_back(description.get());
    topology->descriptions.push_back(std::move(description));
  };
  for (size_t process = 0; process < devices.size(); ++process) {
    for (const DeviceInfo& info : devices[process]) add(static_cast<int>(process), info);
  }
  return topology;
}

void add_topology_slots(PJRT_Api& api) {
  api.PJRT_TopologyDescription_Create = Slot<TopologyDescription_Create>::call;
  api.PJRT_TopologyDescription_Destroy = Slot<TopologyDescription_Destroy>::call;
  api.PJRT_TopologyDescription_PlatformName = Slot<TopologyDescription_PlatformName>::call;
  api.PJRT_TopologyDescription_PlatformVersion = Slot<TopologyDescription_PlatformVersion>::call;
  api.PJRT_TopologyDescription_GetDeviceDescriptions =
      Slot<TopologyDescription_GetDeviceDescriptions>::call;
  api.PJRT_TopologyDescription_Attributes = Slot<TopologyDescription_Attributes>::call;
  api.PJRT_TopologyDescription_Serialize = Slot<TopologyDescription_Serialize>::call;
  api.PJRT_TopologyDescription_Deserialize = Slot<TopologyDescription_Deserialize>::call;
  api.PJRT_TopologyDescription_Fingerprint = Slot<TopologyDescription_Fingerprint>::call;
  api.PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace =
      Slot<TopologyDescription_MakeCanonicalShapeForMemorySpace>::call;
  api.PJRT_TopologyDescription_GetMemorySpaceKindIds =
      Slot<TopologyDescription_GetMemorySpaceKindIds>::call;
}

}  // namespace hekla::pjrt
