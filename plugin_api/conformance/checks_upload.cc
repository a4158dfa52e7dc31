// SPDX-License-Identifier: Apache-2.0
// Host to device: element types, semantics, strides, shapes.
#include <algorithm>
#include <numeric>

#include "plugin_api/conformance/check.h"
#include "plugin_api/conformance/session.h"

namespace hekla::conformance {
namespace {

// ---- Element types. One check each, so that a missing type is one row.

struct TypeInfo {
  PJRT_Buffer_Type type;
  size_t bytes;  // per element on the host
  uint8_t mask;  // of the bits that a host byte of this type uses
  int since;
};

void round_trip(Session& s, const TypeInfo& info) {
  if (info.since > s.minor()) {
    throw NotOffered{"the type is younger than API 0." + std::to_string(s.minor())};
  }
  constexpr int64_t kCount = 3 * 37;
  std::vector<uint8_t> bytes(kCount * info.bytes);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<uint8_t>(i * 167 + 13) & info.mask;
  HostData host;
  host.type = info.type;
  host.dims = {3, 37};
  host.data = bytes.data();
  auto args = s.upload_args(host);
  if (auto error = s.try_call(HEKLA_SLOT(PJRT_Client_BufferFromHostBuffer), &args)) {
    require(error->code == PJRT_Error_Code_UNIMPLEMENTED ||
                error->code == PJRT_Error_Code_INVALID_ARGUMENT,
            error->text());
    require(!error->message.empty(), "refused without words");
    throw NotOffered{error->text()};
  }
  s.own(args.buffer);
  if (auto error = s.finish_event(args.done_with_host_buffer)) fail(error->text());
  auto type = make_args<PJRT_Buffer_ElementType_Args>();
  type.buffer = args.buffer;
  s.call(HEKLA_SLOT(PJRT_Buffer_ElementType), &type);
  require_equal(type.type, info.type, "element type of the buffer");
  std::vector<uint8_t> back = s.download(args.buffer, bytes.size());
  for (uint8_t& byte : back) byte &= info.mask;  // a signed sub-byte value may be sign-extended
  require(back == bytes, "the values changed");
}

template <PJRT_Buffer_Type type, size_t bytes, uint8_t mask = 0xff, int since = 1>
void check_type(Session& s) {
  round_trip(s, {type, bytes, mask, since});
}

// ---- Uploads.

std::vector<float> iota(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

void check_only_during_call(Session& s) {
  std::vector<float> values = iota(1000);
  const std::vector<float> original = values;
  HostData host;
  host.dims = {1000};
  host.data = values.data();
  auto args = s.upload_args(host);
  s.call(HEKLA_SLOT(PJRT_Client_BufferFromHostBuffer), &args);
  std::fill(values.begin(), values.end(), -1.0f);
  s.own(args.buffer);
  require(args.done_with_host_buffer != nullptr, "done_with_host_buffer is null");
  if (auto error = s.finish_event(args.done_with_host_buffer)) fail(error->text());
  require(s.download_f32(args.buffer, 1000) == original,
          "the plugin read the host's data after the call");
}

void check_until_transfer(Session& s) {
  std::vector<float> values = iota(100000);
  const std::vector<float> original = values;
  HostData host;
  host.dims = {100000};
  host.data = values.data();
  host.semantics = PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
  PJRT_Buffer* buffer = s.upload(host);  // awaits the done event
  std::fill(values.begin(), values.end(), -1.0f);
  require(s.download_f32(buffer, 100000) == original,
          "the plugin read the host's data after the done event");
}

void check_zero_copy(Session& s) {
  std::vector<float> values = iota(4096);
  HostData host;
  host.dims = {4096};
  host.data = values.data();
  host.semantics = PJRT_HostBufferSemantics_kImmutableZeroCopy;
  auto args = s.upload_args(host);
  s.call(HEKLA_SLOT(PJRT_Client_BufferFromHostBuffer), &args);
  require(args.done_with_host_buffer != nullptr, "done_with_host_buffer is null");
  require(s.download_f32(args.buffer, 4096) == values, "wrong values");
  ReadyCounter counter(s);
  s.on_ready(args.done_with_host_buffer, &counter);
  s.destroy_event(args.done_with_host_buffer);
  auto destroy = make_args<PJRT_Buffer_Destroy_Args>();
  destroy.buffer = args.buffer;
  s.call(HEKLA_SLOT(PJRT_Buffer_Destroy), &destroy);
  require_equal(counter.wait(1), 1, "calls of the done callback after the buffer died");
  if (auto error = counter.error()) fail("the done event brought " + error->text());
}

void check_zero_copy_overwritten(Session& s) {
  // Not aligned to the element: a plugin that aliases must notice.
  std::vector<uint8_t> bytes(64 * sizeof(float) + 1);
  const std::vector<float> values = iota(64);
  std::memcpy(bytes.data() + 1, values.data(), 64 * sizeof(float));
  HostData host;
  host.dims = {64};
  host.data = bytes.data() + 1;
  host.semantics = PJRT_HostBufferSemantics_kImmutableZeroCopy;
  require(s.download_f32(s.upload(host), 64) == values, "wrong values");
}

void check_mutable_zero_copy(Session& s) {
  std::vector<float> values = iota(64);
  HostData host;
  host.dims = {64};
  host.data = values.data();
  host.semantics = PJRT_HostBufferSemantics_kMutableZeroCopy;
  auto args = s.upload_args(host);
  if (auto error = s.try_call(HEKLA_SLOT(PJRT_Client_BufferFromHostBuffer), &args)) {
    require(!error->message.empty(), "refused without words");
    throw NotOffered{error->text()};
  }
  s.own(args.buffer);
  require(s.download_f32(args.buffer, 64) == iota(64), "wrong values");
  s.destroy_event(args.done_with_host_buffer);
}

void check_done_event(Session& s) {
  // Zero-copy uploads may be read until their buffers go, at the end of the session.
  static const std::vector<float> values = iota(16);
  for (auto semantics : {PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
                         PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes,
                         PJRT_HostBufferSemantics_kImmutableZeroCopy}) {
    for (std::vector<int64_t> dims : {std::vector<int64_t>{16}, {}, {0, 4}}) {
      HostData host;
      host.dims = dims;
      host.data = values.data();
      host.semantics = semantics;
      s.upload(host);  // requires the event
    }
  }
}

void check_device_or_memory(Session& s) {
  const std::vector<float> values = iota(8);
  for (PJRT_Device* device : s.addressable_devices()) {
    HostData host;
    host.dims = {8};
    host.data = values.data();
    host.device = device;
    PJRT_Buffer* buffer = s.upload(host);
    auto where = make_args<PJRT_Buffer_Device_Args>();
    where.buffer = buffer;
    s.call(HEKLA_SLOT(PJRT_Buffer_Device), &where);
    require(where.device == device, "a buffer made with a device says another device");
    require(s.download_f32(buffer, 8) == values, "wrong values");
    if (s.default_memory(device) == nullptr) continue;
    for (PJRT_Memory* memory : s.memories(device)) {
      host.device = nullptr;
      host.memory = memory;
      buffer = s.upload(host);
      auto in = make_args<PJRT_Buffer_Memory_Args>();
      in.buffer = buffer;
      s.call_optional(HEKLA_SLOT(PJRT_Buffer_Memory), &in);
      require(in.memory == memory,
              "a buffer made in memory " + s.memory_kind(memory) + " says another memory");
      require(s.download_f32(buffer, 8) == values,
              "wrong values in memory " + s.memory_kind(memory));
    }
  }
}

// What a strided view of `base` at `offset` holds, in row-major order.
std::vector<float> view(const std::vector<float>& base, size_t offset,
                        const std::vector<int64_t>& dims, const std::vector<int64_t>& strides) {
  std::vector<float> values;
  std::vector<int64_t> index(dims.size(), 0);
  while (true) {
    int64_t at = static_cast<int64_t>(offset);
    for (size_t i = 0; i < dims.size(); ++i) at += index[i] * strides[i];
    values.push_back(base[static_cast<size_t>(at)]);
    size_t axis = dims.size();
    while (axis > 0 && ++index[axis - 1] == dims[axis - 1]) index[--axis] = 0;
    if (axis == 0) return values;
  }
}

void strided(Session& s, size_t offset, const std::vector<int64_t>& dims,
             const std::vector<int64_t>& strides) {
  const std::vector<float> base = iota(240);
  for (auto semantics : {PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
                         PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes,
                         PJRT_HostBufferSemantics_kImmutableZeroCopy}) {
    HostData host;
    host.dims = dims;
    host.data = base.data() + offset;
    for (int64_t stride : strides) {
      host.byte_strides.push_back(stride * static_cast<int64_t>(sizeof(float)));
    }
    host.semantics = semantics;
    const std::vector<float> want = view(base, offset, dims, strides);
    const std::vector<float> got = s.download_f32(s.upload(host), want.size());
    if (got != want) {
      const size_t at = std::mismatch(want.begin(), want.end(), got.begin()).first - want.begin();
      fail("wrong values under semantics " + std::to_string(semantics) + ": element " +
           std::to_string(at) + " is " + std::to_string(got[at]) + ", " + std::to_string(want[at]) +
           " expected");
    }
  }
}

void check_dense_strides(Session& s) { strided(s, 0, {4, 5, 6}, {30, 6, 1}); }
void check_transposed(Session& s) { strided(s, 0, {6, 5, 4}, {1, 6, 30}); }
void check_gaps(Session& s) { strided(s, 3, {3, 4}, {40, 2}); }
void check_negative_strides(Session& s) {
  strided(s, 9, {10}, {-1});
  strided(s, 4 * 30, {4, 5, 6}, {-30, 6, 1});
  strided(s, 119, {4, 5, 6}, {-30, -6, -1});
}
void check_zero_strides(Session& s) {
  strided(s, 0, {5, 6}, {0, 1});
  strided(s, 7, {3, 4}, {0, 0});
}

void check_stride_count(Session& s) {
  const std::vector<float> base = iota(24);
  HostData host;
  host.dims = {4, 6};
  host.data = base.data();
  host.byte_strides = {4};
  auto args = s.upload_args(host);
  s.call_fails(HEKLA_SLOT(PJRT_Client_BufferFromHostBuffer), &args, 0, "one stride for rank 2");
}

void check_upload_zero_size(Session& s) {
  for (std::vector<int64_t> dims : {std::vector<int64_t>{0}, {0, 3}, {2, 0, 4}}) {
    for (const void* data : {static_cast<const void*>(nullptr), static_cast<const void*>(&dims)}) {
      HostData host;
      host.dims = dims;
      host.data = data;
      if (data != nullptr) host.byte_strides.assign(dims.size(), 0);  // as numpy's arrays arrive
      PJRT_Buffer* buffer = s.upload(host);
      auto got = make_args<PJRT_Buffer_Dimensions_Args>();
      got.buffer = buffer;
      s.call(HEKLA_SLOT(PJRT_Buffer_Dimensions), &got);
      require(std::vector<int64_t>(got.dims, got.dims + got.num_dims) == dims, "wrong dimensions");
      if (auto error = s.finish_event(s.ready_event(buffer))) fail(error->text());
      s.download(buffer, 0);
    }
  }
}

void check_scalar(Session& s) {
  const double value = 2.5;
  HostData host;
  host.type = PJRT_Buffer_Type_F64;
  host.data = &value;
  PJRT_Buffer* buffer = s.upload(host);
  auto dims = make_args<PJRT_Buffer_Dimensions_Args>();
  dims.buffer = buffer;
  s.call(HEKLA_SLOT(PJRT_Buffer_Dimensions), &dims);
  require_equal(dims.num_dims, 0, "rank");
  const auto bytes = s.download(buffer, sizeof(value));
  require(std::memcmp(bytes.data(), &value, sizeof(value)) == 0, "the value changed");
}

void check_high_rank(Session& s) {
  const std::vector<float> values = iota(2 * 3 * 2 * 1 * 2 * 3 * 1 * 2);
  require(s.download_f32(s.upload_f32(values, {2, 3, 2, 1, 2, 3, 1, 2}), values.size()) == values,
          "wrong values");
}

void check_large(Session& s) {
  const std::vector<float> values = iota(4 << 20);
  require(s.download_f32(s.upload_f32(values, {1024, 4096}), values.size()) == values,
          "wrong values");
}

void check_device_layout(Session& s) {
  const std::vector<float> values = iota(12);
  for (std::vector<int64_t> order : {std::vector<int64_t>{1, 0}, {0, 1}}) {
    TiledLayout layout(order);
    HostData host;
    host.dims = {3, 4};
    host.data = values.data();
    host.device_layout = &layout.layout;
    auto args = s.upload_args(host);
    if (auto error = s.try_call(HEKLA_SLOT(PJRT_Client_BufferFromHostBuffer), &args)) {
      require(order[0] == 0, "row-major device layout: " + error->text());
      require(error->code == PJRT_Error_Code_UNIMPLEMENTED, error->text());
      s.remark("column-major refused");
      continue;
    }
    s.own(args.buffer);
    if (auto error = s.finish_event(args.done_with_host_buffer)) fail(error->text());
    TiledLayout row_major({1, 0});
    const auto bytes = s.download(args.buffer, values.size() * sizeof(float), &row_major.layout);
    require(std::memcmp(bytes.data(), values.data(), bytes.size()) == 0,
            "a device layout changed the values");
  }
}

void check_unknown_type(Session& s) {
  const std::vector<float> values = iota(4);
  for (int type : {0, 5000}) {
    HostData host;
    host.type = static_cast<PJRT_Buffer_Type>(type);
    host.dims = {4};
    host.data = values.data();
    auto args = s.upload_args(host);
    const auto error = s.call_fails(HEKLA_SLOT(PJRT_Client_BufferFromHostBuffer), &args, 0,
                                    "element type " + std::to_string(type));
    require(error.code == PJRT_Error_Code_INVALID_ARGUMENT ||
                error.code == PJRT_Error_Code_UNIMPLEMENTED,
            error.text());
  }
}

#define TYPE_CHECK(label, type, ...)                                                    \
  {                                                                                     \
    "dtype-" label, "Values of type " #type " survive the way to the device and back.", \
        check_type<PJRT_Buffer_Type_##type, __VA_ARGS__>                                \
  }

constexpr Check kTypeChecks[] = {
    TYPE_CHECK("pred", PRED, 1, 0x01),
    TYPE_CHECK("s8", S8, 1),
    TYPE_CHECK("s16", S16, 2),
    TYPE_CHECK("s32", S32, 4),
    TYPE_CHECK("s64", S64, 8),
    TYPE_CHECK("u8", U8, 1),
    TYPE_CHECK("u16", U16, 2),
    TYPE_CHECK("u32", U32, 4),
    TYPE_CHECK("u64", U64, 8),
    TYPE_CHECK("f16", F16, 2),
    TYPE_CHECK("f32", F32, 4),
    TYPE_CHECK("f64", F64, 8),
    TYPE_CHECK("bf16", BF16, 2),
    TYPE_CHECK("c64", C64, 8),
    TYPE_CHECK("c128", C128, 16),
    TYPE_CHECK("f8e5m2", F8E5M2, 1),
    TYPE_CHECK("f8e4m3fn", F8E4M3FN, 1),
    TYPE_CHECK("f8e4m3b11fnuz", F8E4M3B11FNUZ, 1),
    TYPE_CHECK("f8e5m2fnuz", F8E5M2FNUZ, 1, 0xff, 4),
    TYPE_CHECK("f8e4m3fnuz", F8E4M3FNUZ, 1, 0xff, 4),
    TYPE_CHECK("s4", S4, 1, 0x0f, 4),
    TYPE_CHECK("u4", U4, 1, 0x0f, 4),
    TYPE_CHECK("s2", S2, 1, 0x03, 53),
    TYPE_CHECK("u2", U2, 1, 0x03, 53),
    TYPE_CHECK("f8e4m3", F8E4M3, 1, 0xff, 55),
    TYPE_CHECK("f8e3m4", F8E3M4, 1, 0xff, 55),
    TYPE_CHECK("f8e8m0fnu", F8E8M0FNU, 1, 0xff, 63),
    TYPE_CHECK("f4e2m1fn", F4E2M1FN, 1, 0x0f, 63),
    TYPE_CHECK("s1", S1, 1, 0x01, 94),
    TYPE_CHECK("u1", U1, 1, 0x01, 94),
    TYPE_CHECK("f6e2m3fn", F6E2M3FN, 1, 0x3f, 114),
    TYPE_CHECK("f6e3m2fn", F6E3M2FN, 1, 0x3f, 114),
};

constexpr Check kUploadChecks[] = {
    {"host-buffer-during-call",
     "Under ImmutableOnlyDuringCall the host's data is consumed before the call returns.",
     check_only_during_call},
    {"host-buffer-until-transfer",
     "Under ImmutableUntilTransferCompletes the data is not read after the done event.",
     check_until_transfer},
    {"host-buffer-zero-copy",
     "Under ImmutableZeroCopy the done event fires at the latest when the buffer dies.",
     check_zero_copy},
    {"host-buffer-unaligned", "Host data need not be aligned to its element.",
     check_zero_copy_overwritten},
    {"host-buffer-mutable-zero-copy", "MutableZeroCopy works or is refused with words.",
     check_mutable_zero_copy},
    {"host-buffer-done-event", "Every upload returns a done event, for any shape and semantics.",
     check_done_event},
    {"host-buffer-placement",
     "A device or any of its memories can be named, and the buffer says where it is.",
     check_device_or_memory},
    {"host-strides-dense", "Explicit dense strides mean the same as none.", check_dense_strides},
    {"host-strides-transposed", "A transposed view arrives with the right values.",
     check_transposed},
    {"host-strides-gaps", "A view with gaps between rows and elements arrives right.", check_gaps},
    {"host-strides-negative", "Reversed views (negative strides) arrive right.",
     check_negative_strides},
    {"host-strides-zero", "Broadcast views (zero strides) arrive right.", check_zero_strides},
    {"host-strides-wrong-count", "Another number of strides than dimensions is an error.",
     check_stride_count},
    {"zero-size-array", "Arrays without elements make the round trip, with null data too.",
     check_upload_zero_size},
    {"scalar", "A rank-0 array makes the round trip.", check_scalar},
    {"high-rank", "An array of rank 8 makes the round trip.", check_high_rank},
    {"large-array", "An array of 16 MiB makes the round trip.", check_large},
    {"device-layout-request",
     "A row-major device layout is accepted with garbage in its size fields; others keep the "
     "values "
     "or are UNIMPLEMENTED.",
     check_device_layout},
    {"unknown-element-type", "An unknown element type is an error, not a crash.",
     check_unknown_type},
};

}  // namespace

std::span<const Check> dtype_checks() { return kTypeChecks; }
std::span<const Check> upload_checks() { return kUploadChecks; }

}  // namespace hekla::conformance
