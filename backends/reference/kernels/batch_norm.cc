// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/kernels/batch_norm.h"

#include <cmath>

#include "backends/reference/kernels/convert.h"

namespace hekla::reference {
namespace {

// The operand as [outer, features, inner], in f64.
struct Layout {
  int64_t outer = 1;
  int64_t features = 0;
  int64_t inner = 1;

  template <typename F>
  void for_each(F f) const {
    int64_t at = 0;
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t c = 0; c < features; ++c) {
        for (int64_t i = 0; i < inner; ++i, ++at) f(c, at);
      }
    }
  }
  double count() const { return static_cast<double>(outer * inner); }
};

Result<Layout> make_layout(const char* op, const HostArray& operand, int64_t feature_index,
                           std::initializer_list<const HostArray*> per_feature) {
  if (feature_index < 0 || feature_index >= operand.rank() || !is_float(operand.dtype())) {
    return invalid_argument("{} of {} along dimension {}: needs floats and that dimension", op,
                            operand.shape(), feature_index);
  }
  Layout layout;
  layout.features = operand.dims()[feature_index];
  for (int64_t d = 0; d < operand.rank(); ++d) {
    if (d < feature_index) layout.outer *= operand.dims()[d];
    if (d > feature_index) layout.inner *= operand.dims()[d];
  }
  for (const HostArray* array : per_feature) {
    if (array->dims() != Dims{layout.features} || !is_float(array->dtype())) {
      return invalid_argument("{} of {}: {} is not one float for each of {} features", op,
                              operand.shape(), array->shape(), layout.features);
    }
  }
  return layout;
}

Result<HostArray> to_double(const HostArray& array) { return convert_elements(array, DType::kF64); }

}  // namespace

Result<HostArray> batch_norm_inference(const HostArray& operand, const HostArray& scale,
                                       const HostArray& offset, const HostArray& mean,
                                       const HostArray& variance, float epsilon,
                                       int64_t feature_index) {
  HEKLA_ASSIGN_OR_RETURN(const Layout layout,
                         make_layout("batch_norm_inference", operand, feature_index,
                                     {&scale, &offset, &mean, &variance}));
  HEKLA_ASSIGN_OR_RETURN(HostArray x, to_double(operand));
  HEKLA_ASSIGN_OR_RETURN(const HostArray s, to_double(scale));
  HEKLA_ASSIGN_OR_RETURN(const HostArray o, to_double(offset));
  HEKLA_ASSIGN_OR_RETURN(const HostArray m, to_double(mean));
  HEKLA_ASSIGN_OR_RETURN(const HostArray v, to_double(variance));
  double* values = x.mutable_as<double>();
  layout.for_each([&](int64_t c, int64_t at) {
    const double deviation = std::sqrt(v.as<double>()[c] + epsilon);
    values[at] =
        s.as<double>()[c] * (values[at] - m.as<double>()[c]) / deviation + o.as<double>()[c];
  });
  return convert_elements(x, operand.dtype());
}

Result<std::vector<HostArray>> batch_norm_training(const HostArray& operand, const HostArray& scale,
                                                   const HostArray& offset, float epsilon,
                                                   int64_t feature_index) {
  HEKLA_ASSIGN_OR_RETURN(const Layout layout, make_layout("batch_norm_training", operand,
                                                          feature_index, {&scale, &offset}));
  HEKLA_ASSIGN_OR_RETURN(const HostArray x, to_double(operand));
  HostArray mean(DType::kF64, {layout.features});
  HostArray variance(DType::kF64, {layout.features});
  double* m = mean.mutable_as<double>();
  double* v = variance.mutable_as<double>();
  const double* values = x.as<double>();
  layout.for_each([&](int64_t c, int64_t at) { m[c] += values[at]; });
  for (int64_t c = 0; c < layout.features; ++c) m[c] /= layout.count();
  layout.for_each([&](int64_t c, int64_t at) {
    const double centered = values[at] - m[c];
    v[c] += centered * centered;
  });
  for (int64_t c = 0; c < layout.features; ++c) v[c] /= layout.count();
  HEKLA_ASSIGN_OR_RETURN(HostArray output, batch_norm_inference(operand, scale, offset, mean,
                                                                variance, epsilon, feature_index));
  HEKLA_ASSIGN_OR_RETURN(mean, convert_elements(mean, operand.dtype()));
  HEKLA_ASSIGN_OR_RETURN(variance, convert_elements(variance, operand.dtype()));
  return std::vector<HostArray>{std::move(output), std::move(mean), std::move(variance)};
}

Result<std::vector<HostArray>> batch_norm_grad(const HostArray& operand, const HostArray& scale,
                                               const HostArray& mean, const HostArray& variance,
                                               const HostArray& grad_output, float epsilon,
                                               int64_t feature_index) {
  HEKLA_ASSIGN_OR_RETURN(const Layout layout, make_layout("batch_norm_grad", operand, feature_index,
                                                          {&scale, &mean, &variance}));
  if (grad_output.dims() != operand.dims() || !is_float(grad_output.dtype())) {
    return invalid_argument("batch_norm_grad: grad_output {} does not fit the operand {}",
                            grad_output.shape(), operand.shape());
  }
  HEKLA_ASSIGN_OR_RETURN(const HostArray x, to_double(operand));
  HEKLA_ASSIGN_OR_RETURN(const HostArray s, to_double(scale));
  HEKLA_ASSIGN_OR_RETURN(const HostArray m, to_double(mean));
  HEKLA_ASSIGN_OR_RETURN(const HostArray v, to_double(variance));
  HEKLA_ASSIGN_OR_RETURN(HostArray g, to_double(grad_output));
  HostArray grad_scale(DType::kF64, {layout.features});
  HostArray grad_offset(DType::kF64, {layout.features});
  double* ds = grad_scale.mutable_as<double>();
  double* d_offset = grad_offset.mutable_as<double>();
  double* grad = g.mutable_as<double>();
  const double* values = x.as<double>();
  const auto normalized = [&](int64_t c, int64_t at) {
    return (values[at] - m.as<double>()[c]) / std::sqrt(v.as<double>()[c] + epsilon);
  };
  layout.for_each([&](int64_t c, int64_t at) {
    ds[c] += grad[at] * normalized(c, at);
    d_offset[c] += grad[at];
  });
  // d operand = scale / deviation * (grad - mean(grad) - normalized * mean(grad * normalized))
  layout.for_each([&](int64_t c, int64_t at) {
    const double inner = grad[at] - (d_offset[c] + normalized(c, at) * ds[c]) / layout.count();
    grad[at] = s.as<double>()[c] / std::sqrt(v.as<double>()[c] + epsilon) * inner;
  });
  std::vector<HostArray> results;
  for (const HostArray& array : {g, grad_scale, grad_offset}) {
    HEKLA_ASSIGN_OR_RETURN(HostArray narrowed, convert_elements(array, operand.dtype()));
    results.push_back(std::move(narrowed));
  }
  return results;
}

}  // namespace hekla::reference
