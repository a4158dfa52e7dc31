// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/memory_file.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace hekla::checkpoint {

struct MemoryFileState {
  bool writable = false;
  // Writing.
  std::vector<std::byte> head, tail;
  int64_t hole_end = 0;                       // where the tail begins
  int64_t payload_at = 0, payload_bytes = 0;  // of the dataset that is about to be made
  bool drops_payload = false;
  haddr_t closed_at = 0;  // what libhdf5 had allocated when it closed the file
  // Reading.
  std::vector<FilePart> parts;
  int64_t file_size = 0;

  int64_t end() const {
    return writable ? hole_end + static_cast<int64_t>(tail.size()) : file_size;
  }
};

namespace {

constexpr int64_t kPage = 4096;
constexpr haddr_t kMaxAddress = haddr_t{1} << 62;

// What the driver's open gets from the access property list.
struct DriverInfo {
  MemoryFileState* state;
};

struct DriverFile {
  H5FD_t base;  // libhdf5's part, first
  MemoryFileState* state;
  haddr_t end_of_allocation;
};

DriverFile* cast(H5FD_t* file) { return reinterpret_cast<DriverFile*>(file); }
const DriverFile* cast(const H5FD_t* file) { return reinterpret_cast<const DriverFile*>(file); }

H5FD_t* driver_open(const char*, unsigned, hid_t access, haddr_t) {
  const auto* info = static_cast<const DriverInfo*>(H5Pget_driver_info(access));
  if (info == nullptr) return nullptr;
  auto* file = new (std::nothrow) DriverFile();
  if (file == nullptr) return nullptr;
  file->state = info->state;
  return &file->base;
}

herr_t driver_close(H5FD_t* file) {
  cast(file)->state->closed_at = cast(file)->end_of_allocation;
  delete cast(file);
  return 0;
}

herr_t driver_query(const H5FD_t*, unsigned long* flags) {
  // No aggregation: the driver places everything itself.
  if (flags != nullptr) *flags = 0;
  return 0;
}

haddr_t driver_alloc(H5FD_t* file, H5FD_mem_t type, hid_t, hsize_t size) {
  DriverFile* self = cast(file);
  MemoryFileState& state = *self->state;
  if (!state.writable) return HADDR_UNDEF;
  if (type == H5FD_MEM_DRAW && state.payload_bytes != 0) {
    if (size != static_cast<hsize_t>(state.payload_bytes)) return HADDR_UNDEF;
    state.payload_bytes = 0;
    return state.head.size() + static_cast<haddr_t>(state.payload_at);
  }
  haddr_t address = self->end_of_allocation;
  if (address + size > state.head.size()) {
    address = std::max<haddr_t>(address, static_cast<haddr_t>(state.hole_end));
  }
  if (size > kMaxAddress - address) return HADDR_UNDEF;
  self->end_of_allocation = address + size;
  // The superblock alone lies before the hole: the end must never be extended into it.
  self->end_of_allocation =
      std::max<haddr_t>(self->end_of_allocation, static_cast<haddr_t>(state.hole_end));
  return address;
}

haddr_t driver_get_eoa(const H5FD_t* file, H5FD_mem_t) { return cast(file)->end_of_allocation; }

herr_t driver_set_eoa(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  cast(file)->end_of_allocation = address;
  return 0;
}

haddr_t driver_get_eof(const H5FD_t* file, H5FD_mem_t) {
  const DriverFile* self = cast(file);
  // A new file is as long as what has been given out; libhdf5 takes 0 for "make a superblock".
  return self->state->writable ? self->end_of_allocation
                               : static_cast<haddr_t>(self->state->file_size);
}

// Copies between [address, address + size) and one part, where they meet.
template <typename Copy>
void meet(int64_t address, int64_t size, int64_t part, int64_t part_size, Copy copy) {
  const int64_t begin = std::max(address, part);
  const int64_t end = std::min(address + size, part + part_size);
  if (begin < end) copy(begin - address, begin - part, static_cast<size_t>(end - begin));
}

herr_t driver_read(H5FD_t* file, H5FD_mem_t type, hid_t, haddr_t address, size_t size,
                   void* buffer) {
  const MemoryFileState& state = *cast(file)->state;
  if (address > kMaxAddress || size > kMaxAddress) return -1;
  const auto from = static_cast<int64_t>(address);
  const auto bytes = static_cast<int64_t>(size);
  std::memset(buffer, 0, size);
  size_t copied = 0;
  const auto take = [&](int64_t part, std::span<const std::byte> data) {
    meet(from, bytes, part, static_cast<int64_t>(data.size()),
         [&](int64_t to, int64_t at, size_t count) {
           std::memcpy(static_cast<std::byte*>(buffer) + to, data.data() + at, count);
           copied += count;
         });
  };
  if (state.writable) {
    take(0, state.head);
    take(state.hole_end, state.tail);
    return 0;
  }
  for (const FilePart& part : state.parts) take(part.offset, part.bytes);
  return type == H5FD_MEM_DRAW && copied != size ? -1 : 0;
}

herr_t driver_write(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t size,
                    const void* buffer) {
  MemoryFileState& state = *cast(file)->state;
  if (!state.writable || address > kMaxAddress || size > kMaxAddress) return -1;
  const auto to = static_cast<int64_t>(address);
  const auto bytes = static_cast<int64_t>(size);
  const auto* data = static_cast<const std::byte*>(buffer);
  if (to + bytes <= static_cast<int64_t>(state.head.size())) {
    std::memcpy(state.head.data() + to, data, size);
    return 0;
  }
  // Payload is never written through libhdf5.
  if (to < state.hole_end) return state.drops_payload && to + bytes <= state.hole_end ? 0 : -1;
  try {
    if (to + bytes > state.end())
      state.tail.resize(static_cast<size_t>(to + bytes - state.hole_end));
  } catch (const std::exception&) {
    return -1;
  }
  std::memcpy(state.tail.data() + (to - state.hole_end), data, size);
  return 0;
}

herr_t driver_truncate(H5FD_t*, hid_t, hbool_t) { return 0; }

Result<hid_t> driver() {
  static hid_t id = H5I_INVALID_HID;
  if (id >= 0) return id;
  static const H5FD_class_t driver_class = [] {
    H5FD_class_t c = {};
#if H5_VERSION_GE(1, 13, 2)
    c.version = H5FD_CLASS_VERSION;
    c.value = static_cast<H5FD_class_value_t>(512);  // of the range for drivers outside of HDF5
#endif
    c.name = "hekla_memory";
    c.maxaddr = kMaxAddress;
    c.fc_degree = H5F_CLOSE_STRONG;
    c.fapl_size = sizeof(DriverInfo);
    c.open = driver_open;
    c.close = driver_close;
    c.query = driver_query;
    c.alloc = driver_alloc;
    c.get_eoa = driver_get_eoa;
    c.set_eoa = driver_set_eoa;
    c.get_eof = driver_get_eof;
    c.read = driver_read;
    c.write = driver_write;
    c.truncate = driver_truncate;
    constexpr H5FD_mem_t map[] = H5FD_FLMAP_SINGLE;
    std::copy(std::begin(map), std::end(map), c.fl_map);
    return c;
  }();
  id = H5FDregister(&driver_class);
  if (id < 0) return hdf5_error("register the memory file driver");
  return id;
}

Result<Handle> access_list(MemoryFileState* state) {
  HEKLA_ASSIGN_OR_RETURN(const hid_t driver_id, driver());
  HEKLA_ASSIGN_OR_RETURN(Handle access, own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file access"));
  const DriverInfo info{state};
  HEKLA_RETURN_IF_ERROR(check_hdf5(H5Pset_driver(access.get(), driver_id, &info), "set driver"));
  HEKLA_RETURN_IF_ERROR(check_hdf5(
      H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110), "set bounds"));
  HEKLA_RETURN_IF_ERROR(
      check_hdf5(H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG), "set close degree"));
  return access;
}

}  // namespace

NewFile::NewFile(NewFile&&) noexcept = default;
NewFile::~NewFile() = default;

Result<NewFile> NewFile::create(int64_t user_block, int64_t payload) {
  NewFile file;
  file.state_ = std::make_unique<MemoryFileState>();
  MemoryFileState& state = *file.state_;
  state.writable = true;
  state.head.resize(static_cast<size_t>(user_block + kPage));
  state.hole_end = user_block + kPage + payload;
  HEKLA_ASSIGN_OR_RETURN(const Handle access, access_list(&state));
  HEKLA_ASSIGN_OR_RETURN(const Handle creation,
                         own(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "file creation"));
  if (user_block > 0) {
    HEKLA_RETURN_IF_ERROR(check_hdf5(
        H5Pset_userblock(creation.get(), static_cast<hsize_t>(user_block)), "set user block"));
  }
  HEKLA_RETURN_IF_ERROR(check_hdf5(H5Pset_obj_track_times(creation.get(), false), "set times"));
  HEKLA_RETURN_IF_ERROR(check_hdf5(
      H5Pset_link_creation_order(creation.get(), H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED),
      "set link order"));
  HEKLA_ASSIGN_OR_RETURN(file.file_, own(H5Fcreate("checkpoint in memory", H5F_ACC_TRUNC,
                                                   creation.get(), access.get()),
                                         H5Fclose, "create a file in memory"));
  return file;
}

int64_t NewFile::payload_begin() const { return static_cast<int64_t>(state_->head.size()); }

void NewFile::expect_payload(int64_t at, int64_t bytes) {
  state_->payload_at = at;
  state_->payload_bytes = bytes;
}

bool NewFile::took_payload() const { return state_->payload_bytes == 0; }

void NewFile::drop_payload() { state_->drops_payload = true; }

Result<NewFile::Bytes> NewFile::finish() && {
  HEKLA_RETURN_IF_ERROR(check_hdf5(H5Fflush(file_.get(), H5F_SCOPE_LOCAL), "flush"));
  HEKLA_RETURN_IF_ERROR(file_.close("close a file in memory"));
  const int64_t end = std::max(static_cast<int64_t>(state_->closed_at), state_->hole_end);
  const int64_t tail = end - state_->hole_end;
  state_->tail.resize(static_cast<size_t>(tail));
  state_->tail.resize(static_cast<size_t>((tail + kPage - 1) / kPage * kPage));
  return Bytes{std::move(state_->head), std::move(state_->tail)};
}

OpenFile::OpenFile(OpenFile&&) noexcept = default;
OpenFile::~OpenFile() = default;

Result<OpenFile> OpenFile::open(std::vector<FilePart> parts, int64_t file_size) {
  OpenFile file;
  file.state_ = std::make_unique<MemoryFileState>();
  file.state_->parts = std::move(parts);
  file.state_->file_size = file_size;
  HEKLA_ASSIGN_OR_RETURN(const Handle access, access_list(file.state_.get()));
  HEKLA_ASSIGN_OR_RETURN(
      file.file_, own(H5Fopen("checkpoint in memory", H5F_ACC_RDONLY, access.get()), H5Fclose,
                      "open a file in memory"));
  return file;
}

}  // namespace hekla::checkpoint
