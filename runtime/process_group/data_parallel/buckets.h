// SPDX-License-Identifier: Apache-2.0
// Buckets: arrays that come one by one, in any order, and go to the other ranks in buckets of some
// bytes, each as soon as it is full and those before it have gone. What all ranks of a group do
// alike. Memory of both helpers for data parallelism (gradient_buckets.h, sharded_optimizer.h).
//
// Arrays are registered in the order in which a model uses them, so that the last come first of
// its backward pass: buckets are filled in reverse order. A bucket has one dtype; an array that is
// larger than a bucket has one of its own. Thread-safe but for reset.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/host_array.h"
#include "runtime/process_group/process_group.h"

namespace hekla::process_group {

struct Parameter {
  std::string name;  // for messages
  DType dtype = DType::kF32;
  int64_t count = 0;  // elements
};

struct BucketSizes {
  int64_t first = int64_t{1} << 20;  // bytes of the first, so that something goes early
  int64_t others = int64_t{25} << 20;
};

// Where arrays lie. Plain values.
struct Bucket {
  struct Place {
    int parameter;
    int64_t first;  // element of the bucket
  };
  DType dtype = DType::kInvalid;
  std::vector<Place> places;
  int64_t count = 0;  // elements
};
// In the order in which they are full when arrays come in reverse order.
std::vector<Bucket> bucket_layout(const std::vector<Parameter>& parameters,
                                  const BucketSizes& sizes);

// Collective: whether the parameters and sizes of all ranks of a group are the same. Errors as
// those of Buckets::create.
Status agree_on_parameters(ProcessGroup& group, const std::vector<Parameter>& parameters,
                           const BucketSizes& sizes, Timeout timeout);

class Buckets {
 public:
  // Makes the call of a full bucket, `count` elements and zeros up to a multiple of the ranks. It
  // is done on all ranks in the same order.
  using Start = std::function<Work(size_t bucket, const Elements& memory)>;

  // Collective: FAILED_PRECONDITION names ranks whose parameters or sizes are other ones, and the
  // first that is, or that calls are being coalesced. INVALID_ARGUMENT, RESOURCE_EXHAUSTED: of one
  // rank, and of the others that it was.
  static Result<std::unique_ptr<Buckets>> create(std::shared_ptr<ProcessGroup> group,
                                                 std::vector<Parameter> parameters,
                                                 const BucketSizes& sizes, Start start,
                                                 Timeout timeout);

  const std::shared_ptr<ProcessGroup>& group() const { return group_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Bucket>& layout() const { return layout_; }
  // Zeros at first; it stays where it is.
  Elements memory(size_t bucket) const { return memory_[bucket]; }
  // INVALID_ARGUMENT: there is none.
  Result<Elements> array(int parameter) const;

  // It is about to be written, by the caller alone, who then says `ready`: for those that cannot
  // know whether it has gone already. INVALID_ARGUMENT as of `ready`; it may not be written then.
  Status claim(int parameter);
  // The array is there and is left alone until `wait`. INVALID_ARGUMENT: there is none, or it has
  // come already.
  Status ready(int parameter);
  // Of what has not come (FAILED_PRECONDITION, names it, and the others' calls fail at once), or
  // what came is all: its calls are made.
  Status complete(bool missing_is_zero);
  // The step ends here for `why`, and the others' calls that have not gone fail with it; where
  // `goes_on`, others follow those of the buckets. Waits for what has gone; arrays may come again.
  void abandon(const Status& why, bool goes_on);
  size_t gone();  // buckets whose calls have been made
  // Waits for the call of a bucket.
  Status wait(size_t bucket);
  // After all waits: arrays may come again.
  void reset();

 private:
  Buckets(std::shared_ptr<ProcessGroup> group, std::vector<Parameter> parameters,
          const BucketSizes& sizes, Start start);
  Status check_missing(int parameter) const;  // needs the lock, as the next
  void start_full();

  const std::shared_ptr<ProcessGroup> group_;
  const std::vector<Parameter> parameters_;
  const std::vector<Bucket> layout_;
  const Start start_;
  std::vector<Elements> memory_;
  std::vector<std::pair<size_t, int64_t>> place_;  // bucket and element, by parameter
  std::mutex mutex_;
  // Guarded by mutex_.
  enum class Stage : uint8_t { kMissing, kClaimed, kCome };
  std::vector<Stage> stages_;    // by parameter
  std::vector<size_t> missing_;  // by bucket
  std::vector<Work> works_;      // of the buckets that have gone, the first ones
};

}  // namespace hekla::process_group
