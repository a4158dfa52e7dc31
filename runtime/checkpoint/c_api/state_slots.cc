// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/c_api/handles.h"
#include "runtime/checkpoint/c_api/holds.h"
#include "runtime/checkpoint/io/copy.h"
#include "runtime/checkpoint/sharding/box.h"

using namespace hekla;              // NOLINT: the C functions stand in no namespace
using namespace hekla::checkpoint;  // NOLINT

namespace {

// Memory or a reader of the caller's; lets go of it at its end.
class ForeignSource final : public ArraySource {
 public:
  ForeignSource(const void* data, int64_t bytes, bool is_mutable, hekla_checkpoint_read read,
                hekla_checkpoint_release release, void* context)
      : data_(static_cast<const std::byte*>(data)),
        bytes_(bytes),
        is_mutable_(is_mutable),
        read_(read),
        release_(release),
        context_(context) {}
  ~ForeignSource() override {
    if (release_ != nullptr) release_(context_);
  }

  const std::byte* host_data() const override { return data_; }
  bool is_mutable() const override { return is_mutable_; }
  int64_t size_bytes() const override { return bytes_; }
  Status read(int64_t offset, std::span<std::byte> into, std::stop_token) override {
    if (data_ != nullptr) {
      copy_past_cache(into.data(), data_ + offset, into.size());
      return ok_status();
    }
    c_api::last_error().clear();
    if (read_(context_, offset, into.data(), static_cast<int64_t>(into.size())) == 0) {
      return ok_status();
    }
    return failed_precondition(
        "{}", c_api::last_error().empty() ? "the array cannot be read" : c_api::last_error());
  }

 private:
  const std::byte* data_;
  int64_t bytes_;
  bool is_mutable_;
  hekla_checkpoint_read read_;
  hekla_checkpoint_release release_;
  void* context_;
};

// Adds a box to the tensor that was added last.
Status add_box(hekla_checkpoint_state* state, const int64_t* start, const int64_t* size,
               int64_t bytes, std::shared_ptr<ArraySource> source) {
  if (state->state.tensors.empty()) return invalid_argument("a box without a tensor");
  StateTensor& tensor = state->state.tensors.back();
  const size_t n = tensor.info.shape.size();
  LocalArray array = {{Dims(start, start + n), Dims(size, size + n)}, {}, std::move(source)};
  HEKLA_RETURN_IF_ERROR(check_box(tensor.info.shape, array.box));
  HEKLA_ASSIGN_OR_RETURN(const int64_t wanted, checked_bytes(tensor.info.dtype, array.box.size));
  if (wanted != bytes) {
    return invalid_argument("tensor \"{}\": the box {} takes {} bytes; {} are given",
                            tensor.info.name, box_text(array.box), wanted, bytes);
  }
  tensor.arrays.push_back(std::move(array));
  return ok_status();
}

Status add_item(hekla_checkpoint_state* state, const char* name, Item item) {
  if (!state->state.items.emplace(name, std::move(item)).second) {
    return invalid_argument("two items are called \"{}\"", name);
  }
  return ok_status();
}

Status add_tensor(hekla_checkpoint_state* state, const char* name, const char* dtype, int32_t rank,
                  const int64_t* shape, const char* spec, int32_t world_size, int64_t box_count,
                  const int64_t* boxes) {
  StateTensor tensor;
  tensor.info.name = name;
  const std::optional<DType> known = dtype_from_name(dtype);
  if (!known) return invalid_argument("tensor \"{}\": there is no dtype {}", name, dtype);
  tensor.info.dtype = *known;
  if (rank < 0) return invalid_argument("tensor \"{}\" has the rank {}", name, rank);
  const auto n = static_cast<size_t>(rank);
  tensor.info.shape.assign(shape, shape + n);
  tensor.info.spec = spec;
  std::vector<Holding> holdings;
  for (int64_t i = 0; i < box_count; ++i, boxes += 1 + 2 * n) {
    const Box box = {Dims(boxes + 1, boxes + 1 + n), Dims(boxes + 1 + n, boxes + 1 + 2 * n)};
    if (boxes[0] >= 0) {
      holdings.push_back({static_cast<int32_t>(boxes[0]), box});
    } else {
      for (int32_t r = 0; r < world_size; ++r) holdings.push_back({r, box});
    }
  }
  if (box_count > 0) {
    auto held = state->boxes.get(holdings, tensor.info.shape);
    if (!held.ok()) return held.status().with_context(fmt::format("tensor \"{}\"", name));
    tensor.boxes = *std::move(held);
  }
  state->state.tensors.push_back(std::move(tensor));
  return ok_status();
}

}  // namespace

int hekla_checkpoint_state_create(hekla_checkpoint_state** state) {
  return c_api::run([&] {
    *state = new hekla_checkpoint_state;
    return ok_status();
  });
}

void hekla_checkpoint_state_destroy(hekla_checkpoint_state* state) { delete state; }

int hekla_checkpoint_state_add_tensor(hekla_checkpoint_state* state, const char* name,
                                      const char* dtype, int32_t rank, const int64_t* shape,
                                      const char* spec, int32_t world_size, int64_t box_count,
                                      const int64_t* boxes) {
  return c_api::run([&] {
    return add_tensor(state, name, dtype, rank, shape, spec, world_size, box_count, boxes);
  });
}

int hekla_checkpoint_state_add_box(hekla_checkpoint_state* state, const int64_t* start,
                                   const int64_t* size, const void* data, int64_t bytes,
                                   int32_t is_mutable, hekla_checkpoint_read read,
                                   hekla_checkpoint_release release, void* context) {
  return c_api::run([&]() -> Status {
    const auto source =
        std::make_shared<ForeignSource>(data, bytes, is_mutable != 0, read, release, context);
    if (data == nullptr && read == nullptr && bytes > 0) {
      return invalid_argument("a box of {} bytes has neither data nor a reader", bytes);
    }
    return add_box(state, start, size, bytes, source);
  });
}

int hekla_checkpoint_holds(int32_t is_on, int32_t* is_there) {
  return c_api::run([&] {
    *is_there = c_api::switch_holds(is_on != 0);
    return ok_status();
  });
}

int hekla_checkpoint_state_add_held_box(hekla_checkpoint_state* state, const int64_t* start,
                                        const int64_t* size, uint64_t pointer, int64_t bytes,
                                        int32_t* is_hold) {
  return c_api::run([&]() -> Status {
    *is_hold = 0;
    std::shared_ptr<ArraySource> source = c_api::held_source(pointer);
    if (source == nullptr) return ok_status();
    if (source->size_bytes() != bytes) {
      return invalid_argument("a box of {} bytes is held in {}", bytes, source->size_bytes());
    }
    *is_hold = 1;
    return add_box(state, start, size, bytes, std::move(source));
  });
}

int hekla_checkpoint_state_add_bool(hekla_checkpoint_state* state, const char* name,
                                    int32_t value) {
  return c_api::run([&] { return add_item(state, name, value != 0); });
}
int hekla_checkpoint_state_add_int(hekla_checkpoint_state* state, const char* name, int64_t value) {
  return c_api::run([&] { return add_item(state, name, value); });
}
int hekla_checkpoint_state_add_double(hekla_checkpoint_state* state, const char* name,
                                      double value) {
  return c_api::run([&] { return add_item(state, name, value); });
}
int hekla_checkpoint_state_add_text(hekla_checkpoint_state* state, const char* name,
                                    const char* text, int64_t bytes) {
  return c_api::run(
      [&] { return add_item(state, name, std::string(text, static_cast<size_t>(bytes))); });
}
int hekla_checkpoint_state_add_bytes(hekla_checkpoint_state* state, const char* name,
                                     const void* data, int64_t bytes) {
  return c_api::run([&] {
    const auto* first = static_cast<const std::byte*>(data);
    return add_item(state, name, std::vector<std::byte>(first, first + bytes));
  });
}

int hekla_checkpoint_state_add_file(hekla_checkpoint_state* state, const char* name,
                                    const void* data, int64_t bytes, int32_t per_rank) {
  return c_api::run([&] {
    state->state.files.push_back(
        {name, std::string(static_cast<const char*>(data), static_cast<size_t>(bytes)),
         per_rank != 0});
    return ok_status();
  });
}
