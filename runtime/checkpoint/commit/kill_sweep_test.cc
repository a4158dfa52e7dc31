// SPDX-License-Identifier: Apache-2.0
// The kill sweep over the protocol alone: files of a few hundred bytes.
#include "runtime/checkpoint/commit/testing/kill_sweep.h"

#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/commit/testing/sample_save.h"

namespace hekla::checkpoint {
namespace {

class SweptSamples final : public SweptSave {
 public:
  Status prepare(Io& io, const std::string& root) override { return save_sample(io, root, 1); }
  Status save(Io& io, rendezvous::Group& group, const std::string& root, int64_t step,
              bool overwrite) override {
    HEKLA_ASSIGN_OR_RETURN(const RootInfo info, open_root(io, root));
    Committer committer(io, group, root, info.run_uuid, quick_options());
    SampleSave payload(io, group.rank(), 2, 600);
    SaveRequest request;
    request.step = step;
    request.id = "1";
    request.overwrite = overwrite;
    return committer.run(request, payload);
  }
  Status save_next(Io& io, const std::string& root, int64_t step) override {
    return save_sample(io, root, step, 2);
  }
  Result<int64_t> check(Io& io, const std::string& root) override {
    return check_samples(io, root);
  }
};

}  // namespace
}  // namespace hekla::checkpoint

int main(int argc, char** argv) {
  using namespace hekla::checkpoint;
  return run_kill_sweep(argc, argv, std::make_unique<SweptSamples>(), 160);
}
