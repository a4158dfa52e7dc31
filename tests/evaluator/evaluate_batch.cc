// SPDX-License-Identifier: Apache-2.0
// evaluate_batch FOLDER: runs many small programs on the reference evaluator, for
// compare_with_jax.py and test_collectives.py.
//
// FOLDER/cases.json is a list of {"program": file, "inputs": [{"dtype", "dims", "file"}]}; arrays
// are dense host bytes as runtime/base/dtype.h lays them out. Writes FOLDER/results.json, one entry
// per case: {"outputs": [...]} in the same form, or {"error": text}. A case with "replicas" and
// "partitions" runs on that many devices, and has a list of inputs and of outputs for each. Devices
// meet as those of one process, and again as those of two or of as many processes as there are
// devices, which must give the same bits.
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include "backends/reference/evaluator.h"
#include "backends/reference/testing/exchange_processes.h"
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

using Devices = std::vector<std::vector<HostArray>>;

hekla::Result<std::vector<HostArray>> read_arrays(const std::string& folder, const json& entries) {
  std::vector<HostArray> arrays;
  for (const json& entry : entries) {
    HEKLA_ASSIGN_OR_RETURN(HostArray array, read_array(folder, entry));
    arrays.push_back(std::move(array));
  }
  return arrays;
}

hekla::Result<Devices> run_in_processes(const hekla::ir::Module& module, const Devices& inputs,
                                        const hekla::ir::DeviceGrid& grid,
                                        const std::vector<int>& process_of) {
  hekla::reference::ExchangeProcesses processes(grid, process_of);
  Devices outputs(inputs.size());
  std::vector<std::thread> threads;
  for (size_t d = 0; d < inputs.size(); ++d) {
    threads.emplace_back([&, d] {
      const auto device = static_cast<int64_t>(d);
      hekla::reference::EvaluateOptions options;
      options.replica_id = device / grid.partitions;
      options.partition_id = device % grid.partitions;
      options.exchange = &processes.of(device);
      auto values = hekla::reference::evaluate(module, inputs[d], options);
      if (values.ok()) outputs[d] = *std::move(values);
      const hekla::Status end = processes.of(device).finish(device, values.status());
      if (!end.ok()) processes.abort(end);
    });
  }
  for (std::thread& thread : threads) thread.join();
  HEKLA_RETURN_IF_ERROR(processes.process(0).status());
  return outputs;
}

hekla::Result<Devices> run(const std::string& folder, const json& entry) {
  const std::string bytes = read_file(folder + "/" + entry.at("program").get<std::string>());
  HEKLA_ASSIGN_OR_RETURN(auto module, hekla::stablehlo::read_program(bytes));
  HEKLA_RETURN_IF_ERROR(hekla::ir::verify(*module));
  const bool is_launch = entry.contains("replicas");
  hekla::ir::DeviceGrid grid;
  if (is_launch) grid = {entry.at("replicas"), entry.at("partitions")};
  HEKLA_RETURN_IF_ERROR(hekla::reference::check_supported(*module, grid));
  if (!is_launch) {
    HEKLA_ASSIGN_OR_RETURN(auto inputs, read_arrays(folder, entry.at("inputs")));
    HEKLA_ASSIGN_OR_RETURN(auto outputs, hekla::reference::evaluate(*module, std::move(inputs)));
    return Devices{std::move(outputs)};
  }
  Devices inputs;
  for (const json& device : entry.at("inputs")) {
    HEKLA_ASSIGN_OR_RETURN(auto arrays, read_arrays(folder, device));
    inputs.push_back(std::move(arrays));
  }
  HEKLA_ASSIGN_OR_RETURN(const Devices outputs,
                         hekla::reference::evaluate_devices(*module, inputs, grid));
  // Halves, every other one, or each for itself; all need the time of three.
  static int cases = 0;
  const int cut = cases++ % 3;
  const auto count = static_cast<int>(inputs.size());
  std::vector<int> process_of;
  for (int d = 0; d < count; ++d) {
    process_of.push_back(cut == 0 ? 2 * d / count : cut == 1 ? d % 2 : d);
  }
  HEKLA_ASSIGN_OR_RETURN(const Devices again, run_in_processes(*module, inputs, grid, process_of));
  for (size_t d = 0; d < outputs.size(); ++d) {
    for (size_t i = 0; i < outputs[d].size(); ++i) {
      if (outputs[d][i].identical(again[d][i])) continue;
      return hekla::internal_error("result {} of device {} differs between processes", i, d);
    }
  }
  return outputs;
}

// Writes the arrays to files named after the case; their description.
json write_arrays(const std::string& folder, const std::string& prefix,
                  const std::vector<HostArray>& arrays) {
  json list = json::array();
  for (const HostArray& array : arrays) {
    const std::string name = prefix + ".out" + std::to_string(list.size());
    std::ofstream(folder + "/" + name, std::ios::binary)
        .write(reinterpret_cast<const char*>(array.data()), array.size_bytes());
    list.push_back(
        {{"dtype", hekla::dtype_name(array.dtype())}, {"dims", array.dims()}, {"file", name}});
  }
  return list;
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
    const std::string prefix = std::to_string(results.size());
    const auto outputs = run(folder, entry);
    if (!outputs.ok()) {
      results.push_back({{"error", outputs.status().to_string()}});
      continue;
    }
    if (!entry.contains("replicas")) {
      results.push_back({{"outputs", write_arrays(folder, prefix, (*outputs)[0])}});
      continue;
    }
    json devices = json::array();
    for (const auto& arrays : *outputs) {
      devices.push_back(
          write_arrays(folder, prefix + "." + std::to_string(devices.size()), arrays));
    }
    results.push_back({{"outputs", std::move(devices)}});
  }
  std::ofstream(folder + "/results.json") << results.dump();
  return 0;
}
