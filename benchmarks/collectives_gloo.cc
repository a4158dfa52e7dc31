// SPDX-License-Identifier: Apache-2.0
// A rank of collectives.py: Gloo over TCP on a network device, each operation as torch calls it.
// After the arguments that all have: the device, "lo" where it is left out.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>

#include "benchmarks/collectives_sides.h"

int main(int count, char** words) {
  using namespace hekla::benchmarks;
  if (count < 6) return 2;
  const Arguments arguments = arguments_of(words);
  gloo::transport::tcp::attr attributes;
  attributes.iface = count > 6 ? words[6] : "lo";
  auto context = std::make_shared<gloo::rendezvous::Context>(arguments.rank, arguments.size);
  gloo::rendezvous::FileStore store(arguments.folder);
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  context->connectFullMesh(store, device);
  const std::string& op = arguments.operation;
  const int64_t size = arguments.size, rank = arguments.rank;
  const auto all_reduce = [&](float* out, const float* in, int64_t elements) {
    gloo::AllreduceOptions options(context);
    options.setInput(const_cast<float*>(in), static_cast<size_t>(elements));
    options.setOutput(out, static_cast<size_t>(elements));
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  };
  const auto broadcast = [&](auto* out, int64_t elements) {
    gloo::BroadcastOptions options(context);
    options.setOutput(out, static_cast<size_t>(elements));
    options.setRoot(0);
    gloo::broadcast(options);
  };
  std::vector<float> whole;
  const Call call = [&](float* out, const float* in, int64_t elements) {
    const int64_t part = elements / size;
    if (op == "all_reduce") {
      all_reduce(out, in, elements);
    } else if (op == "all_gather") {
      if (part == 0) return;  // Gloo ends the process
      gloo::AllgatherOptions options(context);
      options.setInput(const_cast<float*>(in) + rank * part, static_cast<size_t>(part));
      options.setOutput(out, static_cast<size_t>(part * size));
      gloo::allgather(options);
    } else if (op == "reduce_scatter") {
      // Gloo has none; torch's backend has all ranks reduce all of it.
      whole.resize(static_cast<size_t>(elements));
      all_reduce(whole.data(), in, elements);
      std::copy_n(whole.data() + rank * part, part, out);
    } else if (op == "broadcast") {
      broadcast(out, elements);
    } else {
      gloo::BarrierOptions options(context);
      gloo::barrier(options);
    }
  };
  measure(arguments, call, [&](int64_t own) {
    broadcast(&own, 1);
    return own;
  });
  return 0;
}
