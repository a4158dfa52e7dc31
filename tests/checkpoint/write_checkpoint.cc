// SPDX-License-Identifier: Apache-2.0
// Writes a step of a checkpoint that a JSON file describes, for test_format.py.
//
//   write_checkpoint DESCRIPTION.json DIRECTORY
//
// {"step": 7, "files": 2,
//  "tensors": [{"name": "w", "dtype": "bf16", "shape": [4, 2]}, ...],
//  "pieces": [{"tensor": 0, "start": [0, 0], "size": [2, 2], "file": 1, "data": "path"}, ...]}
//
// `data`: a file with the bytes of the piece as they are stored. Prints an error and exits with 1
// when the format refuses the step.
#include <fmt/core.h>

#include <fstream>

#include <nlohmann/json.hpp>

#include "runtime/checkpoint/format/testing/write_step.h"

namespace hekla::checkpoint {
namespace {

Status write(const nlohmann::json& description, const char* directory) {
  std::vector<TensorInfo> tensors;
  for (const auto& tensor : description.at("tensors")) {
    const auto dtype = dtype_from_name(tensor.at("dtype").get<std::string>());
    tensors.push_back({tensor.at("name"), dtype.value_or(DType::kInvalid), tensor.at("shape"), ""});
  }
  std::vector<testing::PieceData> data;
  for (const auto& piece : description.at("pieces")) {
    testing::PieceData one;
    one.piece.tensor = piece.at("tensor");
    one.piece.box = {piece.at("start"), piece.at("size")};
    one.piece.file = piece.at("file");
    one.bytes = testing::read_file(piece.at("data").get<std::string>());
    data.push_back(std::move(one));
  }
  const ShardIdentity identity{"run", "6e6f6e6365", description.at("step")};
  return testing::write_step(directory, identity, tensors, data, description.at("files")).status();
}

}  // namespace
}  // namespace hekla::checkpoint

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: write_checkpoint DESCRIPTION.json DIRECTORY\n");
    return 2;
  }
  try {
    std::ifstream in(argv[1]);
    const auto status = hekla::checkpoint::write(nlohmann::json::parse(in), argv[2]);
    if (!status.ok()) fmt::print(stderr, "{}\n", status.to_string());
    return status.ok() ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[1], error.what());
    return 2;
  }
}
