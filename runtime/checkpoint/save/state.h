// SPDX-License-Identifier: Apache-2.0
// State: what one rank gives to a save. Named tensors with the boxes that this rank holds, small
// typed items, and opaque files.
//
// Every rank names the same tensors with the same layouts; each brings the arrays of its own boxes.
// Items and files are the coordinator's; a file that is `per_rank` is each rank's own. Values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/host_array.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/layout.h"
#include "runtime/checkpoint/sharding/mesh.h"

namespace hekla::checkpoint {

// Where the values of an array are: dense, row major, elements as in dtype.h. It keeps them alive
// and as they were when it was made. Used by one thread at a time.
class ArraySource {
 public:
  virtual ~ArraySource() = default;
  // Memory of this process that holds all of it; null: elsewhere, and read() gives it.
  virtual const std::byte* host_data() const = 0;
  // Somebody may write to host_data() once save has returned: it is copied before.
  virtual bool is_mutable() const = 0;
  virtual int64_t size_bytes() const = 0;
  // Bytes [offset, offset + into.size()); waits for them.
  virtual Status read(int64_t offset, std::span<std::byte> into, std::stop_token stop) = 0;
};

// An array that nobody changes (HostArray copies before it writes).
std::shared_ptr<ArraySource> host_source(HostArray array);
// Foreign memory that `owner` keeps alive and that its owner may change.
std::shared_ptr<ArraySource> mutable_source(const std::byte* data, int64_t bytes,
                                            std::shared_ptr<const void> owner);

struct LocalArray {
  Box box;    // of the tensor
  Dims dims;  // of the array in memory, where padding makes it larger; empty: box.size
  std::shared_ptr<ArraySource> source;
};

struct StateTensor {
  TensorInfo info;
  std::shared_ptr<const HeldBoxes> boxes;  // of all ranks; null: every rank holds all of it
  std::vector<LocalArray> arrays;          // of this rank
};

// bool, integer, number, text, bytes.
using Item = std::variant<bool, int64_t, double, std::string, std::vector<std::byte>>;

struct ExtraFile {
  std::string name;  // "loader/position.json": becomes extra/..., per rank extra/....rank-00003
  std::string bytes;
  bool per_rank = false;
};

struct State {
  std::vector<StateTensor> tensors;
  std::map<std::string, Item> items;
  std::vector<ExtraFile> files;
};

// Adds a tensor that every rank holds as a whole.
void add_array(State* state, std::string name, const HostArray& array);

inline constexpr std::string_view kItemsFile = "extra/items.json";
// Every value survives, NaN and infinities included.
std::string items_text(const std::map<std::string, Item>& items);
// DATA_LOSS for anything that items_text does not write.
Result<std::map<std::string, Item>> parse_items(const std::string& text);

}  // namespace hekla::checkpoint
