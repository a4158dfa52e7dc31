// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/kernels/block_body.h"

#include "backends/reference/kernels/dispatch.h"
#include "backends/reference/kernels/scalar_ops.h"

namespace hekla::reference {
namespace {

template <typename Codec, typename Op>
void run(const Codec& codec, int64_t count, std::span<const std::byte* const> inputs,
         std::byte* output, Op op) {
  using Storage = typename Codec::Storage;
  const auto* a = reinterpret_cast<const Storage*>(inputs[0]);
  const auto* b = reinterpret_cast<const Storage*>(inputs[1]);
  auto* __restrict__ out = reinterpret_cast<Storage*>(output);
  for (int64_t i = 0; i < count; ++i) out[i] = codec.store(op(codec.load(a[i]), codec.load(b[i])));
}

template <typename T>
constexpr bool kIsBitwise = std::is_integral_v<T>;  // bool too

class BinaryBlock : public ScalarFunction {
 public:
  BinaryBlock(BinaryBody body, DType dtype)
      : body_(body), dtype_(dtype), inputs_{dtype, dtype}, outputs_{dtype} {}

  const std::vector<DType>& input_dtypes() const override { return inputs_; }
  const std::vector<DType>& output_dtypes() const override { return outputs_; }
  std::optional<BinaryBody> binary_body() const override { return body_; }

  Status apply(int64_t count, std::span<const std::byte* const> inputs,
               std::span<std::byte* const> outputs) override {
    visit_dtype(dtype_, [&](auto codec) {
      using T = typename decltype(codec)::Compute;
      switch (body_) {
        case BinaryBody::kAdd:
          return run(codec, count, inputs, outputs[0], [](T a, T b) { return wrapping_add(a, b); });
        case BinaryBody::kMultiply:
          return run(codec, count, inputs, outputs[0],
                     [](T a, T b) { return wrapping_multiply(a, b); });
        case BinaryBody::kMinimum:
          return run(codec, count, inputs, outputs[0],
                     [](T a, T b) { return propagating_minimum(a, b); });
        case BinaryBody::kMaximum:
          return run(codec, count, inputs, outputs[0],
                     [](T a, T b) { return propagating_maximum(a, b); });
        case BinaryBody::kAnd:
        case BinaryBody::kOr:
        case BinaryBody::kXor:
          if constexpr (kIsBitwise<T>) run_bitwise(codec, count, inputs, outputs[0]);
      }
    });
    return ok_status();
  }

 private:
  template <typename Codec>
  void run_bitwise(const Codec& codec, int64_t count, std::span<const std::byte* const> inputs,
                   std::byte* output) {
    using T = typename Codec::Compute;
    if (body_ == BinaryBody::kAnd) {
      run(codec, count, inputs, output, [](T a, T b) { return static_cast<T>(a & b); });
    } else if (body_ == BinaryBody::kOr) {
      run(codec, count, inputs, output, [](T a, T b) { return static_cast<T>(a | b); });
    } else {
      run(codec, count, inputs, output, [](T a, T b) { return static_cast<T>(a ^ b); });
    }
  }

  BinaryBody body_;
  DType dtype_;
  std::vector<DType> inputs_;
  std::vector<DType> outputs_;
};

}  // namespace

std::unique_ptr<ScalarFunction> make_block_body(BinaryBody body, DType dtype) {
  const bool bitwise =
      body == BinaryBody::kAnd || body == BinaryBody::kOr || body == BinaryBody::kXor;
  if (bitwise && (is_float(dtype) || is_complex(dtype))) return nullptr;
  return std::make_unique<BinaryBlock>(body, dtype);
}

BlockBody::BlockBody(ScalarFunction& body) : function_(&body) {
  const std::vector<DType>& in = body.input_dtypes();
  const std::vector<DType>& out = body.output_dtypes();
  if (!body.binary_body().has_value() || in.size() != 2 || out.size() != 1 || in[0] != in[1] ||
      in[0] != out[0]) {
    return;
  }
  owned_ = make_block_body(*body.binary_body(), in[0]);
  if (owned_ != nullptr) function_ = owned_.get();
}

}  // namespace hekla::reference
