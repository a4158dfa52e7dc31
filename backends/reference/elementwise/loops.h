// SPDX-License-Identifier: Apache-2.0
// The loops under the elementwise ops. Not for use outside this folder.
#pragma once

#include "backends/reference/kernels/dispatch.h"
#include "runtime/base/host_array.h"

namespace hekla::reference {

// out[i] = f(x[i]) with the codecs' conversions; reuses the bytes of `x` where it can.
template <typename In, typename Out, typename F>
Result<HostArray> map_unary(In in_codec, Out out_codec, DType result, HostArray x, F f) {
  const int64_t n = x.size();
  if (dtype_bytes(result) == dtype_bytes(x.dtype()) && x.is_unique()) {
    auto* bytes = x.mutable_data();
    const auto* in = reinterpret_cast<const typename In::Storage*>(bytes);
    auto* out = reinterpret_cast<typename Out::Storage*>(bytes);
    for (int64_t i = 0; i < n; ++i) out[i] = out_codec.store(f(in_codec.load(in[i])));
    if (result == x.dtype()) return x;
    Dims dims = x.dims();
    return x.with_shape(result, std::move(dims));
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray y, HostArray::allocate(result, x.dims(), false));
  const auto* in = x.as<typename In::Storage>();
  auto* out = y.mutable_as<typename Out::Storage>();
  for (int64_t i = 0; i < n; ++i) out[i] = out_codec.store(f(in_codec.load(in[i])));
  return y;
}

// out[i] = f(a[i], b[i]), all of one dtype; reuses the bytes of either operand.
template <typename Codec, typename F>
Result<HostArray> map_binary(Codec codec, HostArray a, HostArray b, F f) {
  const int64_t n = a.size();
  using Storage = typename Codec::Storage;
  const auto run = [&](const Storage* x, const Storage* y, Storage* out) {
    for (int64_t i = 0; i < n; ++i) out[i] = codec.store(f(codec.load(x[i]), codec.load(y[i])));
  };
  if (a.is_unique()) {
    auto* out = a.mutable_as<Storage>();
    run(out, b.as<Storage>(), out);
    return a;
  }
  if (b.is_unique()) {
    auto* out = b.mutable_as<Storage>();
    run(a.as<Storage>(), out, out);
    return b;
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray y, HostArray::allocate(a.dtype(), a.dims(), false));
  run(a.as<Storage>(), b.as<Storage>(), y.mutable_as<Storage>());
  return y;
}

// Calls f(codec) for a dtype of the family and returns what it returns; the caller has checked that
// the dtype belongs to the family. Fewer instantiations than visit_dtype.
template <typename F>
Result<HostArray> visit_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF64:
      return f(PlainCodec<double>{});
    case DType::kF32:
      return f(PlainCodec<float>{});
    case DType::kBF16:
      return f(BFloat16Codec{});
    case DType::kF16:
      return f(Float16Codec{});
    case DType::kTF32:
      return f(Tf32Codec{});
    default:
      return f(SmallFloatCodec{dtype, small_float_table(dtype)});
  }
}

template <typename F>
Result<HostArray> visit_integer(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kI2:
      return f(NarrowSignedCodec{6});
    case DType::kI4:
      return f(NarrowSignedCodec{4});
    case DType::kI8:
      return f(PlainCodec<int8_t>{});
    case DType::kI16:
      return f(PlainCodec<int16_t>{});
    case DType::kI32:
      return f(PlainCodec<int32_t>{});
    case DType::kI64:
      return f(PlainCodec<int64_t>{});
    case DType::kUI2:
      return f(NarrowUnsignedCodec{0x3});
    case DType::kUI4:
      return f(NarrowUnsignedCodec{0xf});
    case DType::kUI8:
      return f(PlainCodec<uint8_t>{});
    case DType::kUI16:
      return f(PlainCodec<uint16_t>{});
    case DType::kUI32:
      return f(PlainCodec<uint32_t>{});
    default:
      return f(PlainCodec<uint64_t>{});
  }
}

template <typename F>
Result<HostArray> visit_complex(DType dtype, F&& f) {
  if (dtype == DType::kC64) return f(PlainCodec<std::complex<float>>{});
  return f(PlainCodec<std::complex<double>>{});
}

}  // namespace hekla::reference
