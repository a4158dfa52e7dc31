// SPDX-License-Identifier: Apache-2.0
// The functions that test_ffi.py registers, for Hekla's platforms and for jaxlib's CPU. Compiled by
// the test against the headers that jaxlib ships.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "xla/ffi/api/c_api.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

std::atomic<int64_t> calls{0}, live_states{0}, prepared{0}, initialized{0};

// ---- Dump: what the frame says, as text in the one result.

XLA_FFI_Error* answer_metadata(XLA_FFI_CallFrame* frame) {
  auto* extension = reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame->extension_start);
  extension->metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  extension->metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  return nullptr;
}

bool is_metadata(const XLA_FFI_CallFrame* frame) {
  return frame->extension_start != nullptr &&
         frame->extension_start->type == XLA_FFI_Extension_Metadata;
}

size_t width_of(XLA_FFI_DataType type) {
  return xla::ffi::ByteWidth(static_cast<xla::ffi::DataType>(type));
}

void append(std::string& text, const char* format, auto... values) {
  char line[256];
  std::snprintf(line, sizeof(line), format, values...);
  text += line;
}

void append_bytes(std::string& text, const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < size; ++i) append(text, "%02x", bytes[i]);
}

void append_attrs(std::string& text, const XLA_FFI_Attrs& attrs) {
  text += "{";
  for (int64_t i = 0; i < attrs.size; ++i) {
    text += std::string(attrs.names[i]->ptr, attrs.names[i]->len) + "=";
    switch (attrs.types[i]) {
      case XLA_FFI_AttrType_ARRAY: {
        const auto& array = *static_cast<XLA_FFI_Array*>(attrs.attrs[i]);
        append(text, "array %d x %zu ", array.dtype, array.size);
        append_bytes(text, array.data, array.size * width_of(array.dtype));
        break;
      }
      case XLA_FFI_AttrType_DICTIONARY:
        append_attrs(text, *static_cast<XLA_FFI_Attrs*>(attrs.attrs[i]));
        break;
      case XLA_FFI_AttrType_SCALAR: {
        const auto& scalar = *static_cast<XLA_FFI_Scalar*>(attrs.attrs[i]);
        append(text, "scalar %d ", scalar.dtype);
        append_bytes(text, scalar.value, width_of(scalar.dtype));
        break;
      }
      case XLA_FFI_AttrType_STRING: {
        const auto& span = *static_cast<XLA_FFI_ByteSpan*>(attrs.attrs[i]);
        text += "\"" + std::string(span.ptr, span.len) + "\"";
        break;
      }
    }
    text += ",";
  }
  text += "}";
}

void append_buffer(std::string& text, const XLA_FFI_Buffer& buffer, bool with_bytes) {
  append(text, "%d[", buffer.dtype);
  size_t bytes = width_of(buffer.dtype);
  for (int64_t d = 0; d < buffer.rank; ++d) {
    append(text, "%lld,", static_cast<long long>(buffer.dims[d]));
    bytes *= static_cast<size_t>(buffer.dims[d]);
  }
  text += "]";
  if (with_bytes) append_bytes(text, buffer.data, bytes);
}

ffi::Error failed(const char* text) { return ffi::Error::Internal(text); }

// ---- the others, through ffi.h

ffi::Error axpy(float a, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> y,
                ffi::ResultBuffer<ffi::F32> out) {
  ++calls;
  // Of vmap's expand_dims: what is not mapped has 1 there.
  const size_t count = out->element_count(), nx = x.element_count(), ny = y.element_count();
  for (size_t i = 0; i < count; ++i) {
    out->typed_data()[i] = a * x.typed_data()[i % nx] + y.typed_data()[i % ny];
  }
  return ffi::Error::Success();
}

ffi::Error fail(int32_t code, std::string_view message, ffi::AnyBuffer,
                ffi::Result<ffi::AnyBuffer>) {
  return ffi::Error(static_cast<ffi::ErrorCode>(code), std::string(message));
}

ffi::Error increment(ffi::Buffer<ffi::S32> x, ffi::ResultBuffer<ffi::S32> y) {
  if (x.typed_data() != y->typed_data()) return failed("the result is not in the operand's memory");
  for (size_t i = 0; i < x.element_count(); ++i) ++y->typed_data()[i];
  return ffi::Error::Success();
}

struct Base {
  static ffi::TypeId id;
  int64_t value;
  explicit Base(int64_t v) : value(v) { ++live_states; }
  ~Base() { --live_states; }
};
ffi::TypeId Base::id = {};

ffi::ErrorOr<std::unique_ptr<Base>> make_base(int64_t base) {
  if (base < 0) return ffi::Unexpected(ffi::Error::InvalidArgument("the base is negative"));
  return std::make_unique<Base>(base);
}
ffi::Error prepare_base(ffi::RemainingArgs) {
  ++prepared;
  return ffi::Error::Success();
}
ffi::Error initialize_base(ffi::RemainingArgs) {
  ++initialized;
  return ffi::Error::Success();
}
ffi::Error add_base(Base* base, ffi::Buffer<ffi::S32> x, ffi::ResultBuffer<ffi::S32> y) {
  for (size_t i = 0; i < x.element_count(); ++i) {
    y->typed_data()[i] = x.typed_data()[i] + static_cast<int32_t>(base->value);
  }
  return ffi::Error::Success();
}

ffi::Future later(bool fails, ffi::Buffer<ffi::S32> x, ffi::ResultBuffer<ffi::S32> y) {
  ffi::Promise promise;
  ffi::Future future(promise);
  std::thread([fails, x, y, promise = std::move(promise)]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = 3 * x.typed_data()[i];
    if (fails) {
      promise.SetError(failed("broke later"));
    } else {
      promise.SetAvailable();
    }
  }).detach();
  return future;
}

// Squares in tasks of the pool, which it waits for.
ffi::Error pooled(ffi::ThreadPool pool, ffi::ScratchAllocator scratch, ffi::Buffer<ffi::S32> x,
                  ffi::ResultBuffer<ffi::S32> y) {
  const size_t count = x.element_count();
  if (pool.num_threads() < 1) return failed("a pool without threads");
  std::optional<void*> memory = scratch.Allocate(count * 4 + 4, 128);
  if (!memory || reinterpret_cast<uintptr_t>(*memory) % 128 != 0)
    return failed("no scratch memory");
  auto* squares = static_cast<int32_t*>(*memory);
  std::atomic<size_t> left{count};
  for (size_t i = 0; i < count; ++i) {
    pool.Schedule([&, i] {
      squares[i] = x.typed_data()[i] * x.typed_data()[i];
      --left;
    });
  }
  while (left != 0) std::this_thread::yield();
  std::memcpy(y->typed_data(), squares, count * 4);
  return ffi::Error::Success();
}

ffi::Error where(ffi::RunId run, int32_t device, ffi::Result<ffi::Buffer<ffi::S32>> out) {
  out->typed_data()[0] = run.run_id != 0;
  out->typed_data()[1] = device;
  return ffi::Error::Success();
}

ffi::Error tokens(ffi::Token, ffi::Buffer<ffi::F32> x, ffi::Result<ffi::Token>,
                  ffi::ResultBuffer<ffi::F32> y) {
  std::memcpy(y->typed_data(), x.typed_data(), x.size_bytes());
  return ffi::Error::Success();
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT XLA_FFI_Error* Dump(XLA_FFI_CallFrame* frame) {
  if (is_metadata(frame)) return answer_metadata(frame);
  std::string text;
  for (int64_t i = 0; i < frame->args.size; ++i) {
    append_buffer(text, *static_cast<XLA_FFI_Buffer*>(frame->args.args[i]), true);
    text += "\n";
  }
  const auto& out = *static_cast<XLA_FFI_Buffer*>(frame->rets.rets[0]);
  append_buffer(text, out, false);
  append_attrs(text, frame->attrs);
  text.resize(static_cast<size_t>(out.dims[0]), ' ');
  std::memcpy(out.data, text.data(), text.size());
  return nullptr;
}

// A bool that is neither 0 nor 1.
EXPORT XLA_FFI_Error* Truthy(XLA_FFI_CallFrame* frame) {
  if (is_metadata(frame)) return answer_metadata(frame);
  std::memset(static_cast<XLA_FFI_Buffer*>(frame->rets.rets[0])->data, 0x40, 3);
  return nullptr;
}

// Of a version that nobody speaks.
EXPORT XLA_FFI_Error* Newer(XLA_FFI_CallFrame* frame) {
  if (is_metadata(frame)) {
    answer_metadata(frame);
    reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame->extension_start)
        ->metadata->api_version.minor_version = 99;
  }
  return nullptr;
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(Axpy, axpy,
                              ffi::Ffi::Bind()
                                  .Attr<float>("a")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(Fail, fail,
                              ffi::Ffi::Bind()
                                  .Attr<int32_t>("code")
                                  .Attr<std::string_view>("message")
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    Increment, increment,
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::S32>>().Ret<ffi::Buffer<ffi::S32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(MakeBase, make_base,
                              ffi::Ffi::BindInstantiate().Attr<int64_t>("base"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(PrepareBase, prepare_base, ffi::Ffi::BindPrepare().RemainingArgs());
XLA_FFI_DEFINE_HANDLER_SYMBOL(InitializeBase, initialize_base,
                              ffi::Ffi::BindInitialize().RemainingArgs());
XLA_FFI_DEFINE_HANDLER_SYMBOL(AddBase, add_base,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::State<Base>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Ret<ffi::Buffer<ffi::S32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    Later, later,
    ffi::Ffi::Bind().Attr<bool>("fails").Arg<ffi::Buffer<ffi::S32>>().Ret<ffi::Buffer<ffi::S32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(Pooled, pooled,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Ctx<ffi::ScratchAllocator>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Ret<ffi::Buffer<ffi::S32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    Where, where,
    ffi::Ffi::Bind().Ctx<ffi::RunId>().Ctx<ffi::DeviceOrdinal>().Ret<ffi::Buffer<ffi::S32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(Tokens, tokens,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Token>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Token>()
                                  .Ret<ffi::Buffer<ffi::F32>>());

EXPORT XLA_FFI_TypeId* BaseTypeId() { return &Base::id; }
EXPORT const XLA_FFI_TypeInfo* BaseTypeInfo() {
  static const XLA_FFI_TypeInfo info = ffi::MakeTypeInfo<Base>();
  return &info;
}
EXPORT int64_t Calls() { return calls; }
EXPORT int64_t LiveStates() { return live_states; }
EXPORT int64_t Prepared() { return prepared; }
EXPORT int64_t Initialized() { return initialized; }

// ---- untyped functions, of the API versions 1 to 3; f32[4] to f32[4], and a second result

EXPORT void Untyped(void* out, const void** in) {
  for (int i = 0; i < 4; ++i) {
    static_cast<float*>(out)[i] = 2 * static_cast<const float*>(in[0])[i];
  }
}
EXPORT void UntypedTwo(void* out, const void** in) {
  Untyped(static_cast<void**>(out)[0], in);
  Untyped(static_cast<void**>(out)[1], in + 1);
}
// XLA's status is this.
EXPORT void UntypedStatus(void* out, const void** in, std::optional<std::string>* status) {
  Untyped(out, in);
  if (static_cast<const float*>(in[0])[0] < 0) *status = "below zero";
}
EXPORT void UntypedOpaque(void* out, const void** in, const char* opaque, size_t size,
                          std::optional<std::string>* status) {
  Untyped(out, in);
  static_cast<float*>(out)[3] = std::string(opaque, size) == "the config" ? 7 : -1;
  if (size == 0) *status = "no config";
}
