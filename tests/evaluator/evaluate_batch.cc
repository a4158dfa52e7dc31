// SPDX-License-Identifier: Apache-2.0
// evaluate_batch FOLDER: runs many small programs on the reference evaluator, for
// compare_with_jax.py.
//
// FOLDER/cases.json is a list of {"program": file, "inputs": [{"dtype", "dims", "file"}]}; arrays
// are dense host bytes as runtime/base/dtype.h lays them out. Writes FOLDER/results.json, one entry
// per case: {"outputs": [...]} in the same form, or {"error": text}.
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include <nlohmann/json.hpp>

#include "backends/reference/evaluator.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"

namespace {

using hekla::HostArray;
using nlohmann::json;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

hekla::Result<HostArray> read_array(const std::string& folder, const json& entry) {
  const auto dtype = hekla::dtype_from_name(entry.at("dtype").get<std::string>());
  if (!dtype) return hekla::invalid_argument("no dtype {}", entry.at("dtype").dump());
  HEKLA_ASSIGN_OR_RETURN(HostArray array,
                         HostArray::allocate(*dtype, entry.at("dims").get<hekla::Dims>()));
  const std::string bytes = read_file(folder + "/" + entry.at("file").get<std::string>());
  if (static_cast<int64_t>(bytes.size()) != array.size_bytes()) {
    return hekla::invalid_argument("{} bytes for {}", bytes.size(), array.shape());
  }
  if (!bytes.empty()) std::memcpy(array.mutable_data(), bytes.data(), bytes.size());
  return array;
}

hekla::Result<std::vector<HostArray>> run(const std::string& folder, const json& entry) {
  const std::string bytes = read_file(folder + "/" + entry.at("program").get<std::string>());
  HEKLA_ASSIGN_OR_RETURN(auto module, hekla::stablehlo::read_program(bytes));
  HEKLA_RETURN_IF_ERROR(hekla::ir::verify(*module));
  HEKLA_RETURN_IF_ERROR(hekla::reference::check_supported(*module));
  std::vector<HostArray> inputs;
  for (const json& input : entry.at("inputs")) {
    HEKLA_ASSIGN_OR_RETURN(HostArray array, read_array(folder, input));
    inputs.push_back(std::move(array));
  }
  return hekla::reference::evaluate(*module, std::move(inputs));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: evaluate_batch FOLDER\n";
    return 2;
  }
  const std::string folder = argv[1];
  const json cases = json::parse(read_file(folder + "/cases.json"));
  json results = json::array();
  for (const json& entry : cases) {
    const auto outputs = run(folder, entry);
    if (!outputs.ok()) {
      results.push_back({{"error", outputs.status().to_string()}});
      continue;
    }
    json list = json::array();
    for (const HostArray& array : *outputs) {
      const std::string name =
          std::to_string(results.size()) + ".out" + std::to_string(list.size());
      std::ofstream(folder + "/" + name, std::ios::binary)
          .write(reinterpret_cast<const char*>(array.data()), array.size_bytes());
      list.push_back(
          {{"dtype", hekla::dtype_name(array.dtype())}, {"dims", array.dims()}, {"file", name}});
    }
    results.push_back({{"outputs", std::move(list)}});
  }
  std::ofstream(folder + "/results.json") << results.dump();
  return 0;
}
