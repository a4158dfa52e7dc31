// SPDX-License-Identifier: Apache-2.0
#include "tools/run/case_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include <nlohmann/json.hpp>

#include "runtime/npy/npy.h"
#include "tools/run/input_rule.h"

namespace hekla::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Result<const Json*> field(const Json& object, const char* key) {
  if (!object.is_object()) return invalid_argument("an object with '{}' expected", key);
  const auto found = object.find(key);
  if (found == object.end()) return invalid_argument("'{}' is missing", key);
  return &*found;
}

Result<std::string> string_field(const Json& object, const char* key) {
  HEKLA_ASSIGN_OR_RETURN(const Json* value, field(object, key));
  if (!value->is_string()) return invalid_argument("'{}' is no string", key);
  return value->get<std::string>();
}

// A number, or "nan", "inf", "-inf", which JSON cannot write.
Result<double> number(const Json& value, const char* key) {
  if (value.is_number()) return value.get<double>();
  if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text == "nan" || text == "-nan" || text == "NaN") {
      return std::numeric_limits<double>::quiet_NaN();
    }
    if (text == "inf" || text == "Infinity") return std::numeric_limits<double>::infinity();
    if (text == "-inf" || text == "-Infinity") return -std::numeric_limits<double>::infinity();
  }
  return invalid_argument("'{}' holds {}, which is no number", key,
                          value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 40));
}

Result<double> number_field(const Json& object, const char* key) {
  HEKLA_ASSIGN_OR_RETURN(const Json* value, field(object, key));
  return number(*value, key);
}

Result<double> number_field(const Json& object, const char* key, double fallback) {
  if (!object.is_object() || !object.contains(key)) return fallback;
  return number_field(object, key);
}

Result<std::vector<int64_t>> integers_field(const Json& object, const char* key) {
  HEKLA_ASSIGN_OR_RETURN(const Json* list, field(object, key));
  if (!list->is_array()) return invalid_argument("'{}' is no list", key);
  std::vector<int64_t> values;
  for (const Json& value : *list) {
    if (!value.is_number_integer()) return invalid_argument("'{}' holds what is no integer", key);
    values.push_back(value.get<int64_t>());
  }
  return values;
}

Result<DType> dtype_field(const Json& object) {
  HEKLA_ASSIGN_OR_RETURN(const std::string name, string_field(object, "dtype"));
  const std::optional<DType> dtype = dtype_from_name(name);
  if (!dtype || *dtype == DType::kInvalid) return invalid_argument("unknown dtype '{}'", name);
  return *dtype;
}

// A file of the case; its name may not lead out of the folder.
Result<fs::path> file_path(const fs::path& folder, const std::string& name) {
  const fs::path path = fs::path(name).lexically_normal();
  if (path.empty() || path.is_absolute() || *path.begin() == "..") {
    return invalid_argument("file '{}' is not inside the case's folder", name);
  }
  return folder / path;
}

Result<HostArray> file_array(const fs::path& folder, const Json& entry) {
  HEKLA_ASSIGN_OR_RETURN(const std::string name, string_field(entry, "file"));
  HEKLA_ASSIGN_OR_RETURN(const fs::path path, file_path(folder, name));
  std::optional<DType> dtype;
  if (entry.contains("dtype")) {
    HEKLA_ASSIGN_OR_RETURN(dtype, dtype_field(entry));
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray array, runtime::read_npy(path.string(), dtype));
  if (entry.contains("shape")) {
    HEKLA_ASSIGN_OR_RETURN(const Dims dims, integers_field(entry, "shape"));
    if (dims != array.dims()) {
      return invalid_argument("{} holds {}, case.json says {}", name, array.shape(),
                              shape_string(array.dtype(), dims));
    }
  }
  return array;
}

Result<HostArray> rule_array(const Json& json) {
  InputRule rule;
  HEKLA_ASSIGN_OR_RETURN(rule.dtype, dtype_field(json));
  HEKLA_ASSIGN_OR_RETURN(rule.dims, integers_field(json, "shape"));
  HEKLA_ASSIGN_OR_RETURN(const Json* seed, field(json, "seed"));
  if (!seed->is_number_integer()) return invalid_argument("'seed' is no integer");
  rule.seed = seed->get<uint64_t>();
  HEKLA_ASSIGN_OR_RETURN(const std::string kind, string_field(json, "kind"));
  if (kind == "uniform") {
    rule.kind = InputRule::Kind::kUniform;
  } else if (kind == "integers") {
    rule.kind = InputRule::Kind::kIntegers;
  } else if (kind == "constant") {
    rule.kind = InputRule::Kind::kConstant;
  } else {
    return invalid_argument("unknown kind of rule '{}'", kind);
  }
  HEKLA_ASSIGN_OR_RETURN(rule.low, number_field(json, "low"));
  HEKLA_ASSIGN_OR_RETURN(rule.high, number_field(json, "high", rule.low));
  return make_input(rule);
}

Result<HostArray> input_array(const fs::path& folder, const Json& entry) {
  if (entry.is_object() && entry.contains("rule")) return rule_array(entry["rule"]);
  return file_array(folder, entry);
}

Result<ExpectedResult> expected_result(const fs::path& folder, const Json& entry) {
  ExpectedResult result;
  if (entry.is_object() && entry.contains("samples")) {
    const Json& samples = entry["samples"];
    result.is_sampled = true;
    HEKLA_ASSIGN_OR_RETURN(result.dtype, dtype_field(samples));
    HEKLA_ASSIGN_OR_RETURN(result.dims, integers_field(samples, "shape"));
    HEKLA_ASSIGN_OR_RETURN(result.indices, integers_field(samples, "indices"));
    HEKLA_ASSIGN_OR_RETURN(const Json* values, field(samples, "values"));
    if (!values->is_array() || values->size() != result.indices.size()) {
      return invalid_argument("'values' and 'indices' differ in length");
    }
    for (const Json& value : *values) {
      HEKLA_ASSIGN_OR_RETURN(const double x, number(value, "values"));
      result.values.push_back(x);
    }
    HEKLA_ASSIGN_OR_RETURN(result.sum, number_field(entry, "sum"));
    HEKLA_ASSIGN_OR_RETURN(result.abs_sum, number_field(entry, "abs_sum"));
    HEKLA_ASSIGN_OR_RETURN(result.sum_rtol, number_field(entry, "sum_rtol"));
  } else {
    HEKLA_ASSIGN_OR_RETURN(result.array, file_array(folder, entry));
    result.dtype = result.array.dtype();
    result.dims = result.array.dims();
  }
  const Tolerance fallback = default_tolerance(result.dtype);
  HEKLA_ASSIGN_OR_RETURN(result.tolerance.rtol, number_field(entry, "rtol", fallback.rtol));
  HEKLA_ASSIGN_OR_RETURN(result.tolerance.atol, number_field(entry, "atol", fallback.atol));
  return result;
}

Result<Case> parse_case(const fs::path& folder, const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return invalid_argument("no JSON object");
  Case result;
  HEKLA_ASSIGN_OR_RETURN(result.name, string_field(json, "name"));
  if (json.contains("description")) {
    HEKLA_ASSIGN_OR_RETURN(result.description, string_field(json, "description"));
  }
  HEKLA_ASSIGN_OR_RETURN(const std::string program, string_field(json, "program"));
  HEKLA_ASSIGN_OR_RETURN(const fs::path path, file_path(folder, program));
  HEKLA_ASSIGN_OR_RETURN(result.program, read_file(path.string()));
  HEKLA_ASSIGN_OR_RETURN(const Json* inputs, field(json, "inputs"));
  HEKLA_ASSIGN_OR_RETURN(const Json* outputs, field(json, "outputs"));
  if (!inputs->is_array() || !outputs->is_array()) {
    return invalid_argument("'inputs' and 'outputs' must be lists");
  }
  for (const Json& entry : *inputs) {
    Result<HostArray> array = input_array(folder, entry);
    if (!array.ok()) {
      return array.status().with_context(fmt::format("input {}", result.inputs.size()));
    }
    result.inputs.push_back(*std::move(array));
  }
  for (const Json& entry : *outputs) {
    Result<ExpectedResult> expected = expected_result(folder, entry);
    if (!expected.ok()) {
      return expected.status().with_context(fmt::format("output {}", result.outputs.size()));
    }
    result.outputs.push_back(*std::move(expected));
  }
  return result;
}

}  // namespace

Comparison compare(const HostArray& got, const ExpectedResult& want) {
  if (!want.is_sampled) return compare(got, want.array, want.tolerance);
  SampledResult sampled;
  sampled.dtype = want.dtype;
  sampled.dims = want.dims;
  sampled.indices = want.indices;
  sampled.values = want.values;
  sampled.sum = want.sum;
  sampled.abs_sum = want.abs_sum;
  sampled.sum_rtol = want.sum_rtol;
  return compare(got, sampled, want.tolerance);
}

Result<std::string> read_file(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return invalid_argument("{} is a folder", path);
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return not_found("{}: {}", path, std::strerror(errno));
  std::ostringstream text;
  text << stream.rdbuf();
  if (stream.bad()) return data_loss("{}: cannot be read", path);
  return std::move(text).str();
}

Result<std::vector<HostArray>> read_arrays(const std::string& folder, const std::string& file,
                                           const char* key) {
  const std::string path = (fs::path(folder) / file).string();
  HEKLA_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Result<const Json*> list = field(json, key);
  if (!list.ok()) return list.status().with_context(path);
  if (!(*list)->is_array()) return invalid_argument("{}: '{}' is no list", path, key);
  std::vector<HostArray> arrays;
  for (const Json& entry : **list) {
    Result<HostArray> array = input_array(folder, entry);
    if (!array.ok()) {
      return array.status().with_context(fmt::format("{}: {} {}", path, key, arrays.size()));
    }
    arrays.push_back(*std::move(array));
  }
  return arrays;
}

Result<Case> read_case(const std::string& folder) {
  const std::string file = (fs::path(folder) / "case.json").string();
  HEKLA_ASSIGN_OR_RETURN(const std::string text, read_file(file));
  Result<Case> result = parse_case(folder, text);
  if (!result.ok()) return result.status().with_context(file);
  return result;
}

Result<std::vector<std::string>> find_cases(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> cases;
  if (fs::exists(fs::path(folder) / "case.json", error)) return std::vector{folder};
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (fs::exists(entry.path() / "case.json", error)) cases.push_back(entry.path().string());
  }
  if (cases.empty()) return not_found("{}: no folder with a case.json in it", folder);
  std::sort(cases.begin(), cases.end());
  return cases;
}

}  // namespace hekla::tools
