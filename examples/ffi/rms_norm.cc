// SPDX-License-Identifier: Apache-2.0
// A function of yours for jax.jit: y = x / sqrt(mean(x^2) + epsilon) over the last dimension.
//
// It is written with the headers that jaxlib ships (jax.ffi.include_dir()) and knows nothing of
// Hekla: the same library serves jaxlib's own CPU. run.py beside it compiles, registers and calls
// it.
#include <cmath>
#include <cstdint>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

ffi::Error rms_norm(float epsilon, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  const auto dims = x.dimensions();
  if (dims.size() == 0) return ffi::Error::InvalidArgument("rms_norm takes an array, not a scalar");
  const int64_t row = dims.back();
  const auto count = static_cast<int64_t>(x.element_count());
  for (int64_t begin = 0; begin < count; begin += row) {
    const float* from = x.typed_data() + begin;
    float* to = y->typed_data() + begin;
    float sum = 0;
    for (int64_t i = 0; i < row; ++i) sum += from[i] * from[i];
    const float scale = 1 / std::sqrt(sum / static_cast<float>(row) + epsilon);
    for (int64_t i = 0; i < row; ++i) to[i] = from[i] * scale;
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(RmsNorm, rms_norm,
                              ffi::Ffi::Bind()
                                  .Attr<float>("epsilon")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
