// SPDX-License-Identifier: Apache-2.0
#include "tools/train/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/base/hash.h"
#include "tools/run/compare.h"
#include "tools/run/input_rule.h"

namespace hekla::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr char kFile[] = "training.json";

// The examples 0 to n-1 in the order of random keys.
std::vector<int64_t> shuffled(int64_t n, uint64_t seed, int64_t epoch) {
  const uint64_t start = splitmix64(seed) + static_cast<uint64_t>(epoch) * static_cast<uint64_t>(n);
  std::vector<std::pair<uint64_t, int64_t>> keys;
  for (int64_t i = 0; i < n; ++i) keys.push_back({splitmix64(start + static_cast<uint64_t>(i)), i});
  std::sort(keys.begin(), keys.end());
  std::vector<int64_t> order;
  for (const auto& key : keys) order.push_back(key.second);
  return order;
}

Status check_state(const Training& training) {
  const Case& step = training.step;
  const size_t count = training.names.size();
  if (training.first_state.size() != count || training.scales.size() != training.examples.size()) {
    return invalid_argument(
        "'state' and 'first_state', or 'examples' and 'scales' differ in length");
  }
  if (step.inputs.size() != count + training.examples.size() || training.examples.empty() ||
      step.outputs.size() != count + 1) {
    return invalid_argument("the step has {} inputs and {} results; {} and {} were expected",
                            step.inputs.size(), step.outputs.size(),
                            count + training.examples.size(), count + 1);
  }
  for (size_t i = 0; i < count; ++i) {
    const HostArray& first = training.first_state[i];
    const ExpectedResult& result = step.outputs[i];
    if (first.dtype() != step.inputs[i].dtype() || first.dims() != step.inputs[i].dims() ||
        first.dtype() != result.dtype || first.dims() != result.dims) {
      return invalid_argument("{}: {} at first, {} into the step, {} out of it", training.names[i],
                              first.shape(), step.inputs[i].shape(),
                              shape_string(result.dtype, result.dims));
    }
  }
  for (size_t e = 0; e < training.examples.size(); ++e) {
    const HostArray& input = step.inputs[count + e];
    const HostArray& examples = training.examples[e];
    const bool is_like =
        input.dims().size() == examples.dims().size() && !input.dims().empty() &&
        std::equal(input.dims().begin() + 1, input.dims().end(), examples.dims().begin() + 1);
    if (!is_like || examples.dims()[0] != training.examples[0].dims()[0] ||
        input.dims()[0] != training.step.inputs[count].dims()[0]) {
      return invalid_argument("examples {} are {}, the step takes {}", e, examples.shape(),
                              input.shape());
    }
  }
  return ok_status();
}

Status check_classifier(Training& training, const std::vector<HostArray>& labels) {
  const Case& classifier = training.classifier;
  if (classifier.inputs.size() < 2 || labels.size() != 1 ||
      classifier.inputs.size() - 1 > training.names.size()) {
    return invalid_argument("{} does not take weights of the state and one array of examples",
                            classifier.name);
  }
  training.weights = classifier.inputs.size() - 1;
  for (size_t i = 0; i < training.weights; ++i) {
    if (classifier.inputs[i].shape() != training.first_state[i].shape()) {
      return invalid_argument("{}: {} for {}", training.names[i], training.first_state[i].shape(),
                              classifier.name);
    }
  }
  for (int64_t i = 0; i < labels[0].size(); ++i) {
    training.labels.push_back(static_cast<int64_t>(element(labels[0], i)));
  }
  const Dims one{labels[0].size()};
  training.classes = classifier.outputs.size();
  for (size_t o = 0; o < classifier.outputs.size(); ++o) {
    const ExpectedResult& output = classifier.outputs[o];
    if (output.dtype == DType::kI32 && output.dims == one) training.classes = o;
  }
  if (training.classes == classifier.outputs.size()) {
    return invalid_argument("{} gives no class for each of {} test labels", classifier.name,
                            one[0]);
  }
  return ok_status();
}

Status read_into(Training& training, const std::string& folder) {
  HEKLA_ASSIGN_OR_RETURN(const std::string text, read_file((fs::path(folder) / kFile).string()));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto has = [&](const char* key, auto is) {
    return json.is_object() && json.contains(key) && is(json[key]);
  };
  const auto is_list_of = [](auto is) {
    return [is](const Json& v) { return v.is_array() && std::all_of(v.begin(), v.end(), is); };
  };
  const auto is_text = [](const Json& v) { return v.is_string(); };
  const auto is_number = [](const Json& v) { return v.is_number(); };
  const auto is_count = [](const Json& v) { return v.is_number_unsigned(); };
  if (!has("state", is_list_of(is_text)) || !has("scales", is_list_of(is_number)) ||
      !has("epochs", is_count) || !has("seed", is_count) || !has("accuracy", is_number) ||
      !has("classifier", is_text)) {
    return invalid_argument(
        "an object with 'state', 'scales', 'epochs', 'seed', 'accuracy' and 'classifier' expected");
  }
  training.names = json["state"].get<std::vector<std::string>>();
  training.scales = json["scales"].get<std::vector<double>>();
  training.epochs = json["epochs"].get<int64_t>();
  training.seed = json["seed"].get<uint64_t>();
  training.accuracy = json["accuracy"].get<double>();
  HEKLA_ASSIGN_OR_RETURN(training.first_state, read_arrays(folder, kFile, "first_state"));
  HEKLA_ASSIGN_OR_RETURN(training.examples, read_arrays(folder, kFile, "examples"));
  HEKLA_ASSIGN_OR_RETURN(const std::vector<HostArray> labels,
                         read_arrays(folder, kFile, "test_labels"));
  HEKLA_ASSIGN_OR_RETURN(training.step, read_case(folder));
  // A sister of the folder.
  const fs::path name = fs::path(json["classifier"].get<std::string>()).filename();
  const fs::path sisters = fs::path(folder) / "..";
  HEKLA_ASSIGN_OR_RETURN(training.classifier, read_case((sisters / name).string()));
  HEKLA_RETURN_IF_ERROR(check_state(training));
  HEKLA_RETURN_IF_ERROR(check_classifier(training, labels));
  training.batch = training.step.inputs[training.names.size()].dims()[0];
  if (training.batch > 0) {
    training.steps_per_epoch = training.examples[0].dims()[0] / training.batch;
  }
  if (training.steps_per_epoch == 0) return invalid_argument("fewer examples than one batch");
  return ok_status();
}

}  // namespace

Result<Training> read_training(const std::string& folder) {
  Training training;
  const Status status = read_into(training, folder);
  if (!status.ok()) return status.with_context((fs::path(folder) / kFile).string());
  return training;
}

Result<std::vector<HostArray>> Training::batch_of(int64_t step) const {
  const int64_t count = examples[0].dims()[0];
  const std::vector<int64_t> order = shuffled(count, seed, step / steps_per_epoch);
  const int64_t* picks = order.data() + step % steps_per_epoch * batch;
  std::vector<HostArray> inputs;
  for (size_t e = 0; e < examples.size(); ++e) {
    const HostArray& wanted = this->step.inputs[names.size() + e];
    HEKLA_ASSIGN_OR_RETURN(HostArray array,
                           HostArray::allocate(wanted.dtype(), wanted.dims(), false));
    const int64_t size = array.size() / batch;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t k = 0; k < size; ++k) {
        set_element(array, b * size + k, element(examples[e], picks[b] * size + k) * scales[e]);
      }
    }
    inputs.push_back(std::move(array));
  }
  return inputs;
}

}  // namespace hekla::tools
