// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/hlo/attributes.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/program/stablehlo/text/text_reader.h"

namespace hekla::hlo {
namespace {

// The number of ids that a list of groups may name.
constexpr int64_t kMaxIds = sharding::kMaxDevices;

// 0 ... n-1 in the shape `dims`, transposed by `permutation` and flattened.
Result<std::vector<int64_t>> iota_ids(const std::vector<int64_t>& dims,
                                      const std::vector<int64_t>& permutation, int64_t wanted) {
  int64_t count = 1;
  for (int64_t dim : dims) {
    if (dim < 1 || dim > kMaxIds || count > kMaxIds / dim) {
      return invalid_argument("an iota of devices has a dimension of {}", dim);
    }
    count *= dim;
  }
  if (count != wanted) return invalid_argument("an iota of {} devices for {}", count, wanted);
  std::vector<int64_t> order = permutation;
  if (order.empty()) {
    order.resize(dims.size());
    std::iota(order.begin(), order.end(), 0);
  }
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  bool is_order = sorted.size() == dims.size();
  for (size_t i = 0; is_order && i < sorted.size(); ++i) {
    is_order = sorted[i] == static_cast<int64_t>(i);
  }
  if (!is_order) return invalid_argument("an iota of devices has no permutation");
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  std::vector<int64_t> ids(static_cast<size_t>(count));
  for (int64_t k = 0; k < count; ++k) {
    int64_t rest = k;
    int64_t id = 0;
    for (size_t i = order.size(); i-- > 0;) {
      const size_t d = static_cast<size_t>(order[i]);
      id += rest % dims[d] * strides[d];
      rest /= dims[d];
    }
    ids[static_cast<size_t>(k)] = id;
  }
  return ids;
}

Result<ir::Attribute> iota_groups(const Message& list) {
  const int64_t groups = list.integer(1);
  const int64_t size = list.integer(2);
  if (groups < 1 || size < 1 || groups > kMaxIds || size > kMaxIds / groups) {
    return invalid_argument("{} groups of {} devices", groups, size);
  }
  HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> dims, list.integers(3));
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> permutation, list.integers(4));
  if (dims.empty()) dims = {groups * size};
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> ids,
                         iota_ids(dims, permutation, groups * size));
  const Dims shape = {groups, size};
  return ir::make_dense(ir::Type::tensor(DType::kI64, shape),
                        HostArray::from<int64_t>(DType::kI64, shape, ids));
}

Result<ir::Attribute> mesh_axes_groups(const Message& list) {
  HEKLA_ASSIGN_OR_RETURN(const Message from, list.message(1, "a mesh"));
  sharding::Mesh mesh;
  HEKLA_ASSIGN_OR_RETURN(const std::vector<Message> axes, from.messages(1, "a mesh axis"));
  int64_t count = 1;
  for (const Message& axis : axes) {
    const int64_t size = axis.integer(2);
    if (size < 1 || size > kMaxIds || count > kMaxIds / size) {
      return invalid_argument("a mesh axis of {} devices", size);
    }
    count *= size;
    mesh.axes.push_back({axis.text(1), size});
  }
  HEKLA_ASSIGN_OR_RETURN(mesh.device_ids, from.integers(2));
  if (from.has(3)) {
    HEKLA_ASSIGN_OR_RETURN(const Message iota, from.message(3, "an iota"));
    HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, iota.integers(1));
    HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> permutation, iota.integers(2));
    if (!dims.empty()) {
      HEKLA_ASSIGN_OR_RETURN(mesh.device_ids, iota_ids(dims, permutation, count));
    }
  }
  sharding::MeshAxes groups;
  HEKLA_ASSIGN_OR_RETURN(const std::vector<Message> refs, list.messages(2, "an axis"));
  for (const Message& ref : refs) {
    const int64_t index = ref.integer(1);
    if (index < 0 || index >= static_cast<int64_t>(mesh.axes.size())) {
      return invalid_argument("a mesh of {} axes has no axis {}", mesh.axes.size(), index);
    }
    sharding::AxisRef axis{mesh.axes[static_cast<size_t>(index)].name, std::nullopt};
    if (ref.has(2)) {
      HEKLA_ASSIGN_OR_RETURN(const Message sub, ref.message(2, "a sub-axis"));
      axis.sub = sharding::SubAxis{sub.integer(1), sub.integer(2)};
    }
    groups.axes.push_back(std::move(axis));
  }
  groups.mesh = sharding::canonical(std::move(mesh));
  return ir::Attribute(ir::MeshAxesValue{std::move(groups)});
}

Result<ir::Attribute> listed_groups(const std::vector<Message>& groups) {
  std::vector<std::vector<int64_t>> rows;
  size_t columns = 0;
  int64_t count = 0;
  for (const Message& group : groups) {
    HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> ids, group.integers(1));
    columns = std::max(columns, ids.size());
    count += static_cast<int64_t>(ids.size());
    rows.push_back(std::move(ids));
  }
  if (columns > 0 &&
      static_cast<int64_t>(rows.size()) > 2 * kMaxIds / static_cast<int64_t>(columns)) {
    return invalid_argument("{} groups of up to {} devices", rows.size(), columns);
  }
  // Groups that are shorter end in -1.
  for (std::vector<int64_t>& row : rows) row.resize(columns, -1);
  if (count == 0) rows.clear();
  return matrix(rows, rows.empty() ? 0 : static_cast<int64_t>(columns));
}

struct Algorithm {
  DType operands;
  DType accumulation;
  int64_t primitives;
  bool is_imprecise;
};

// xla.PrecisionConfig.Algorithm from 1 on. What takes any f8 is named by one of them.
constexpr Algorithm kAlgorithms[] = {
    {DType::kF8E5M2, DType::kF32, 1, false}, {DType::kF8E5M2, DType::kF32, 1, true},
    {DType::kF16, DType::kF16, 1, false},    {DType::kF16, DType::kF32, 1, false},
    {DType::kBF16, DType::kBF16, 1, false},  {DType::kBF16, DType::kF32, 1, false},
    {DType::kBF16, DType::kF32, 3, false},   {DType::kBF16, DType::kF32, 6, false},
    {DType::kTF32, DType::kF32, 1, false},   {DType::kTF32, DType::kF32, 3, false},
    {DType::kF32, DType::kF32, 1, false},    {DType::kF64, DType::kF64, 1, false},
    {DType::kBF16, DType::kF32, 9, false},
};

}  // namespace

bool Window::is_reversed() const {
  return std::find(reversal.begin(), reversal.end(), true) != reversal.end();
}

bool Window::is_dilated() const {
  const auto is_one = [](int64_t n) { return n == 1; };
  return !std::all_of(window_dilation.begin(), window_dilation.end(), is_one) ||
         !std::all_of(base_dilation.begin(), base_dilation.end(), is_one);
}

ir::Attribute Window::padding() const {
  std::vector<int64_t> values;
  for (size_t i = 0; i < rank(); ++i) {
    values.push_back(low[i]);
    values.push_back(high[i]);
  }
  const Dims shape = {static_cast<int64_t>(rank()), 2};
  return ir::make_dense(ir::Type::tensor(DType::kI64, shape),
                        HostArray::from<int64_t>(DType::kI64, shape, values));
}

Result<Window> read_window(const Message& instruction) {
  HEKLA_ASSIGN_OR_RETURN(const Message message, instruction.message(kWindow, "a window"));
  HEKLA_ASSIGN_OR_RETURN(const std::vector<Message> dims,
                         message.messages(1, "a window dimension"));
  Window window;
  for (const Message& dim : dims) {
    window.size.push_back(dim.integer(1));
    window.stride.push_back(dim.integer(2, 1));
    window.low.push_back(dim.integer(3));
    window.high.push_back(dim.integer(4));
    window.window_dilation.push_back(dim.integer(5, 1));
    window.base_dilation.push_back(dim.integer(6, 1));
    window.reversal.push_back(dim.flag(7));
  }
  return window;
}

Result<ir::Attribute> gather_numbers(const Message& instruction) {
  HEKLA_ASSIGN_OR_RETURN(const Message from, instruction.message(kGatherNumbers, "gather numbers"));
  ir::GatherDimensionNumbers n;
  HEKLA_ASSIGN_OR_RETURN(n.offset_dims, from.integers(1));
  HEKLA_ASSIGN_OR_RETURN(n.collapsed_slice_dims, from.integers(2));
  HEKLA_ASSIGN_OR_RETURN(n.start_index_map, from.integers(3));
  n.index_vector_dim = from.integer(4);
  HEKLA_ASSIGN_OR_RETURN(n.operand_batching_dims, from.integers(5));
  HEKLA_ASSIGN_OR_RETURN(n.start_indices_batching_dims, from.integers(6));
  return ir::Attribute(std::move(n));
}

Result<ir::Attribute> scatter_numbers(const Message& instruction) {
  HEKLA_ASSIGN_OR_RETURN(const Message from,
                         instruction.message(kScatterNumbers, "scatter numbers"));
  ir::ScatterDimensionNumbers n;
  HEKLA_ASSIGN_OR_RETURN(n.update_window_dims, from.integers(1));
  HEKLA_ASSIGN_OR_RETURN(n.inserted_window_dims, from.integers(2));
  HEKLA_ASSIGN_OR_RETURN(n.scatter_dims_to_operand_dims, from.integers(3));
  n.index_vector_dim = from.integer(4);
  HEKLA_ASSIGN_OR_RETURN(n.input_batching_dims, from.integers(5));
  HEKLA_ASSIGN_OR_RETURN(n.scatter_indices_batching_dims, from.integers(6));
  return ir::Attribute(std::move(n));
}

Result<ir::Attribute> convolution_numbers(const Message& instruction) {
  HEKLA_ASSIGN_OR_RETURN(const Message from,
                         instruction.message(kConvolutionNumbers, "convolution numbers"));
  ir::ConvDimensionNumbers n;
  n.input_batch_dimension = from.integer(7);
  n.input_feature_dimension = from.integer(8);
  HEKLA_ASSIGN_OR_RETURN(n.input_spatial_dimensions, from.integers(11));
  n.kernel_input_feature_dimension = from.integer(3);
  n.kernel_output_feature_dimension = from.integer(4);
  HEKLA_ASSIGN_OR_RETURN(n.kernel_spatial_dimensions, from.integers(6));
  n.output_batch_dimension = from.integer(9);
  n.output_feature_dimension = from.integer(10);
  HEKLA_ASSIGN_OR_RETURN(n.output_spatial_dimensions, from.integers(12));
  return ir::Attribute(std::move(n));
}

Result<ir::DotDimensionNumbers> dot_numbers(const Message& numbers) {
  ir::DotDimensionNumbers n;
  HEKLA_ASSIGN_OR_RETURN(n.lhs_contracting_dimensions, numbers.integers(1));
  HEKLA_ASSIGN_OR_RETURN(n.rhs_contracting_dimensions, numbers.integers(2));
  HEKLA_ASSIGN_OR_RETURN(n.lhs_batching_dimensions, numbers.integers(3));
  HEKLA_ASSIGN_OR_RETURN(n.rhs_batching_dimensions, numbers.integers(4));
  return n;
}

Result<Precision> read_precision(const Message& instruction) {
  HEKLA_ASSIGN_OR_RETURN(const Message from,
                         instruction.message(kPrecisionConfig, "a precision configuration"));
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> words, from.integers(1));
  Precision precision;
  ir::ArrayValue config;
  for (int64_t word : words) {
    constexpr const char* kWords[] = {"DEFAULT", "HIGH", "HIGHEST"};
    if (word < 0 || word > 2) return invalid_argument("the precision number {}", word);
    config.elements.push_back(ir::enum_attribute("precision", kWords[word]));
  }
  if (!config.elements.empty()) precision.config = std::move(config);
  if (const int64_t number = from.integer(2); number != 0) {
    if (number < 0 || number > static_cast<int64_t>(std::size(kAlgorithms))) {
      return unimplemented("the dot algorithm number {}", number);
    }
    const Algorithm& known = kAlgorithms[number - 1];
    ir::DotAlgorithm algorithm;
    algorithm.lhs_precision_type = ir::Type::scalar(known.operands);
    algorithm.rhs_precision_type = ir::Type::scalar(known.operands);
    algorithm.accumulation_type = ir::Type::scalar(known.accumulation);
    algorithm.num_primitive_operations = known.primitives;
    algorithm.allow_imprecise_accumulation = known.is_imprecise;
    precision.algorithm = std::move(algorithm);
  }
  return precision;
}

Result<ir::Attribute> replica_groups(const Message& instruction) {
  if (instruction.has(kMeshAxesGroups)) {
    HEKLA_ASSIGN_OR_RETURN(const Message list,
                           instruction.message(kMeshAxesGroups, "groups by mesh axes"));
    return mesh_axes_groups(list);
  }
  if (instruction.has(kIotaDeviceList)) {
    HEKLA_ASSIGN_OR_RETURN(const Message list,
                           instruction.message(kIotaDeviceList, "an iota of groups"));
    return iota_groups(list);
  }
  HEKLA_ASSIGN_OR_RETURN(const Message devices,
                         instruction.message(kCollectiveDeviceList, "a list of devices"));
  if (devices.has(2)) {
    HEKLA_ASSIGN_OR_RETURN(const Message list, devices.message(2, "an iota of groups"));
    return iota_groups(list);
  }
  HEKLA_ASSIGN_OR_RETURN(std::vector<Message> groups, devices.messages(1, "a group"));
  if (groups.empty()) {
    HEKLA_ASSIGN_OR_RETURN(groups, instruction.messages(kReplicaGroups, "a group"));
  }
  return listed_groups(groups);
}

Result<ir::Attribute> source_target_pairs(const Message& instruction) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<Message> pairs,
                         instruction.messages(kSourceTargetPairs, "a source and a target"));
  std::vector<std::vector<int64_t>> rows;
  for (const Message& pair : pairs) rows.push_back({pair.integer(1), pair.integer(2)});
  return matrix(rows, 2);
}

Result<ir::Attribute> parse_dictionary(std::string_view text) {
  Result<ir::Attribute> attribute = stablehlo::read_attribute(text);
  if (attribute.ok() && attribute->get<ir::DictionaryValue>() == nullptr) {
    return invalid_argument("'{}' is no dictionary", text);
  }
  return attribute;
}

Result<ir::Attribute> matrix(const std::vector<std::vector<int64_t>>& rows, int64_t columns) {
  const Dims shape = {static_cast<int64_t>(rows.size()), columns};
  HEKLA_ASSIGN_OR_RETURN(HostArray values, HostArray::allocate(DType::kI64, shape));
  int64_t* to = values.size() == 0 ? nullptr : values.mutable_as<int64_t>();
  for (const std::vector<int64_t>& row : rows) {
    if (static_cast<int64_t>(row.size()) != columns) return internal_error("rows differ");
    to = std::copy(row.begin(), row.end(), to);
  }
  return ir::make_dense(ir::Type::tensor(DType::kI64, shape), std::move(values));
}

}  // namespace hekla::hlo
