// SPDX-License-Identifier: Apache-2.0
// Convolution as matrix products: patches of the input are copied into rows (im2col), a bounded
// number of rows at a time, and multiplied by the kernel as a matrix.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/reference/kernels/contraction.h"
#include "backends/reference/kernels/contraction_types.h"
#include "backends/reference/kernels/movement.h"
#include "backends/reference/kernels/strides.h"

namespace hekla::reference {
namespace {

// Bytes of patch rows at a time: within a second-level cache, many rows of a usual size.
constexpr int64_t kPatchBytes = 512 * 1024;

struct SpatialDim {
  int64_t input;   // size, not dilated
  int64_t kernel;  // size, not dilated
  int64_t output;
  int64_t stride;
  int64_t low;  // padding
  int64_t lhs_dilation;
  int64_t rhs_dilation;
  bool is_reversed;
  int64_t input_stride;  // elements, in the [batch, spatial..., feature] copy
};

struct Geometry {
  std::vector<SpatialDim> spatial;
  int64_t batch = 0;          // of the lhs
  int64_t features = 0;       // of the lhs
  int64_t kernel_inputs = 0;  // input features of one feature group
  int64_t outputs = 0;        // output features
  int64_t output_positions = 1;
  int64_t kernel_positions = 1;
};

// batch, spatial..., feature: the order that everything is brought into.
Dims layout(int64_t first, const Dims& spatial, int64_t last) {
  Dims result = {first};
  result.insert(result.end(), spatial.begin(), spatial.end());
  result.push_back(last);
  return result;
}

Result<Geometry> make_geometry(const HostArray& lhs, const HostArray& rhs,
                               const ConvolutionConfig& config) {
  const auto bad = [&](std::string_view what) {
    return invalid_argument("convolution of {} and {}: {}", lhs.shape(), rhs.shape(), what);
  };
  const int64_t rank = lhs.rank();
  const size_t count = config.input_spatial_dimensions.size();
  if (rank != rhs.rank() || rank != static_cast<int64_t>(count) + 2 ||
      !is_permutation_of_dims(layout(config.input_batch_dimension, config.input_spatial_dimensions,
                                     config.input_feature_dimension)) ||
      config.kernel_spatial_dimensions.size() != count ||
      !is_permutation_of_dims(layout(config.kernel_output_feature_dimension,
                                     config.kernel_spatial_dimensions,
                                     config.kernel_input_feature_dimension)) ||
      config.output_spatial_dimensions.size() != count ||
      !is_permutation_of_dims(layout(config.output_batch_dimension,
                                     config.output_spatial_dimensions,
                                     config.output_feature_dimension))) {
    return bad("the dimension numbers do not fit the ranks");
  }
  const auto has_size = [&](size_t size) { return size == 0 || size == count; };
  if (!has_size(config.window_strides.size()) || !has_size(config.padding.size()) ||
      !has_size(config.lhs_dilation.size()) || !has_size(config.rhs_dilation.size()) ||
      !has_size(config.window_reversal.size())) {
    return bad("strides, padding, dilations or reversal do not fit the spatial dimensions");
  }
  Geometry geometry;
  geometry.batch = lhs.dims()[config.input_batch_dimension];
  geometry.features = lhs.dims()[config.input_feature_dimension];
  geometry.kernel_inputs = rhs.dims()[config.kernel_input_feature_dimension];
  geometry.outputs = rhs.dims()[config.kernel_output_feature_dimension];
  const int64_t feature_groups = config.feature_group_count;
  const int64_t batch_groups = config.batch_group_count;
  if (feature_groups < 1 || batch_groups < 1 || (feature_groups > 1 && batch_groups > 1) ||
      geometry.features != geometry.kernel_inputs * feature_groups ||
      geometry.outputs % feature_groups != 0 || geometry.outputs % batch_groups != 0 ||
      geometry.batch % batch_groups != 0) {
    return bad(fmt::format("{} feature groups and {} batch groups do not divide the features",
                           feature_groups, batch_groups));
  }
  for (size_t i = 0; i < count; ++i) {
    SpatialDim dim;
    dim.input = lhs.dims()[config.input_spatial_dimensions[i]];
    dim.kernel = rhs.dims()[config.kernel_spatial_dimensions[i]];
    dim.stride = config.window_strides.empty() ? 1 : config.window_strides[i];
    dim.low = config.padding.empty() ? 0 : config.padding[i][0];
    const int64_t high = config.padding.empty() ? 0 : config.padding[i][1];
    dim.lhs_dilation = config.lhs_dilation.empty() ? 1 : config.lhs_dilation[i];
    dim.rhs_dilation = config.rhs_dilation.empty() ? 1 : config.rhs_dilation[i];
    dim.is_reversed = !config.window_reversal.empty() && config.window_reversal[i];
    // 2^40 leaves room for every sum and product of two of these numbers that follows.
    constexpr int64_t kLimit = int64_t{1} << 40;
    const auto within = [](int64_t value, int64_t least) {
      return value >= least && value <= kLimit;
    };
    int64_t dilated = 0;
    int64_t window = 0;
    if (!within(dim.stride, 1) || !within(dim.lhs_dilation, 1) || !within(dim.rhs_dilation, 1) ||
        !within(dim.low, -kLimit) || !within(high, -kLimit) ||
        __builtin_mul_overflow(std::max<int64_t>(dim.input - 1, 0), dim.lhs_dilation, &dilated) ||
        __builtin_mul_overflow(std::max<int64_t>(dim.kernel - 1, 0), dim.rhs_dilation, &window) ||
        dilated > kLimit || window > kLimit) {
      return bad("a stride, padding or dilation is out of range");
    }
    if (dim.input > 0) dilated += 1;
    if (dim.kernel > 0) window += 1;
    const int64_t padded = dilated + dim.low + high;
    // StableHLO: an empty padded input or one smaller than the window gives no output.
    dim.output = padded <= 0 || window > padded ? 0 : (padded - window) / dim.stride + 1;
    geometry.spatial.push_back(dim);
    geometry.kernel_positions *= dim.kernel;
  }
  int64_t stride = geometry.features;
  for (size_t i = count; i-- > 0;) {
    geometry.spatial[i].input_stride = stride;
    stride *= geometry.spatial[i].input;
  }
  return geometry;
}

// Copies the patches of output positions [first, first + rows) of one image into rows of
// kernel_positions x channels elements; what lies in padding or in holes of the dilation stays
// zero.
class PatchCopier {
 public:
  PatchCopier(const Geometry& geometry, int64_t element_bytes)
      : geometry_(geometry), bytes_(element_bytes) {}

  void copy(const std::byte* image, int64_t first, int64_t rows, std::byte* patches) {
    const size_t count = geometry_.spatial.size();
    const int64_t row_bytes = geometry_.kernel_positions * geometry_.kernel_inputs * bytes_;
    std::memset(patches, 0, static_cast<size_t>(rows * row_bytes));
    position_.resize(count);
    for (int64_t row = 0; row < rows; ++row) {
      int64_t rest = first + row;
      for (size_t d = count; d-- > 0;) {
        position_[d] = rest % geometry_.spatial[d].output;
        rest /= geometry_.spatial[d].output;
      }
      copy_dim(0, image, patches + row * row_bytes);
    }
  }

 private:
  // Walks the kernel positions of dimension d and the following ones; returns past the written
  // part.
  std::byte* copy_dim(size_t d, const std::byte* image, std::byte* out) {
    const int64_t channel_bytes = geometry_.kernel_inputs * bytes_;
    if (d == geometry_.spatial.size()) {
      std::memcpy(out, image, static_cast<size_t>(channel_bytes));
      return out + channel_bytes;
    }
    const SpatialDim& dim = geometry_.spatial[d];
    int64_t inner_bytes = channel_bytes;
    for (size_t i = d + 1; i < geometry_.spatial.size(); ++i) {
      inner_bytes *= geometry_.spatial[i].kernel;
    }
    const int64_t start = position_[d] * dim.stride - dim.low;
    for (int64_t k = 0; k < dim.kernel; ++k, out += inner_bytes) {
      const int64_t tap = dim.is_reversed ? dim.kernel - 1 - k : k;
      const int64_t at = start + tap * dim.rhs_dilation;
      if (at < 0 || at % dim.lhs_dilation != 0 || at / dim.lhs_dilation >= dim.input) continue;
      copy_dim(d + 1, image + at / dim.lhs_dilation * dim.input_stride * bytes_, out);
    }
    return out;
  }

  const Geometry& geometry_;
  int64_t bytes_;
  Dims position_;
};

}  // namespace

Result<HostArray> convolution(const HostArray& lhs, const HostArray& rhs,
                              const ConvolutionConfig& config, DType result_dtype) {
  HEKLA_ASSIGN_OR_RETURN(Geometry geometry, make_geometry(lhs, rhs, config));
  const DType sum = sum_dtype(lhs.dtype(), rhs.dtype(), result_dtype);
  const int64_t bytes = dtype_bytes(sum);
  const int64_t feature_groups = config.feature_group_count;
  const int64_t batch_groups = config.batch_group_count;
  const int64_t groups = feature_groups * batch_groups;
  const int64_t group_outputs = geometry.outputs / groups;
  const int64_t result_batch = geometry.batch / batch_groups;

  // Result in groups: [groups, batch, spatial..., outputs of the group].
  Dims grouped_dims = {groups, result_batch};
  for (const SpatialDim& dim : geometry.spatial) grouped_dims.push_back(dim.output);
  grouped_dims.push_back(group_outputs);
  HEKLA_ASSIGN_OR_RETURN(HostArray sums, HostArray::allocate(sum, grouped_dims));
  for (const SpatialDim& dim : geometry.spatial) geometry.output_positions *= dim.output;

  const int64_t depth = geometry.kernel_positions * geometry.kernel_inputs;
  if (sums.size() > 0 && depth > 0) {
    HEKLA_ASSIGN_OR_RETURN(HostArray input, transpose(lhs, layout(config.input_batch_dimension,
                                                                  config.input_spatial_dimensions,
                                                                  config.input_feature_dimension)));
    HEKLA_ASSIGN_OR_RETURN(input, widen_operand(input, sum));
    // Kernel: [outputs, spatial..., inputs] -> [groups, spatial..., inputs, outputs of the group].
    Dims kernel_order = config.kernel_spatial_dimensions;
    kernel_order.push_back(config.kernel_input_feature_dimension);
    kernel_order.insert(kernel_order.begin(), config.kernel_output_feature_dimension);
    HEKLA_ASSIGN_OR_RETURN(HostArray kernel, transpose(rhs, kernel_order));
    kernel = kernel.with_shape(kernel.dtype(), {groups, group_outputs, depth});
    HEKLA_ASSIGN_OR_RETURN(kernel, transpose(kernel, std::array<int64_t, 3>{0, 2, 1}));
    HEKLA_ASSIGN_OR_RETURN(kernel, widen_operand(kernel, sum));

    const int64_t chunk =
        std::clamp<int64_t>(kPatchBytes / (depth * bytes), 1, geometry.output_positions);
    HEKLA_ASSIGN_OR_RETURN(HostArray patches, HostArray::allocate(sum, {chunk, depth}));
    std::byte* patch_data = patches.mutable_data();
    std::byte* sum_data = sums.mutable_data();
    const int64_t image_bytes = element_count(input.dims()) / geometry.batch * bytes;
    PatchCopier copier(geometry, bytes);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first_image = batch_groups > 1 ? g * result_batch : 0;
      const int64_t first_feature = feature_groups > 1 ? g * geometry.kernel_inputs : 0;
      for (int64_t n = 0; n < result_batch; ++n) {
        const std::byte* image =
            input.data() + (first_image + n) * image_bytes + first_feature * bytes;
        for (int64_t p = 0; p < geometry.output_positions; p += chunk) {
          const int64_t rows = std::min(chunk, geometry.output_positions - p);
          copier.copy(image, p, rows, patch_data);
          const int64_t at =
              ((g * result_batch + n) * geometry.output_positions + p) * group_outputs;
          HEKLA_RETURN_IF_ERROR(batched_matmul_add(
              sum, 1, rows, group_outputs, depth, patch_data,
              kernel.data() + g * depth * group_outputs * bytes, sum_data + at * bytes));
        }
      }
    }
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray narrowed, narrow_sums(sums, result_dtype));
  // [groups, batch, spatial..., group outputs] -> [batch, spatial..., outputs] -> the asked order.
  const int64_t grouped_rank = static_cast<int64_t>(grouped_dims.size());
  Dims order;
  for (int64_t d = 1; d < grouped_rank - 1; ++d) order.push_back(d);
  order.push_back(0);
  order.push_back(grouped_rank - 1);
  HEKLA_ASSIGN_OR_RETURN(HostArray joined, transpose(narrowed, order));
  Dims joined_dims(grouped_dims.begin() + 1, grouped_dims.end());
  joined_dims.back() = geometry.outputs;
  joined = joined.with_shape(result_dtype, joined_dims);
  const Dims output_layout = layout(config.output_batch_dimension, config.output_spatial_dimensions,
                                    config.output_feature_dimension);
  Dims inverse(output_layout.size());
  for (size_t d = 0; d < output_layout.size(); ++d) {
    inverse[output_layout[d]] = static_cast<int64_t>(d);
  }
  return transpose(joined, inverse);
}

}  // namespace hekla::reference
