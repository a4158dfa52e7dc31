// SPDX-License-Identifier: Apache-2.0
// Square roots by Newton's iteration on a device, saved as a checkpoint: roots FOLDER
#include <cstdio>

#include "runtime/checkpoint/device/client_source.h"
#include "runtime/checkpoint/manager/checkpoint_manager.h"
#include "runtime/client/open.h"

constexpr const char* kStep = R"(
  func.func @main(%a: tensor<4xf32>, %x: tensor<4xf32>) -> tensor<4xf32> {
    %half = stablehlo.constant dense<0.5> : tensor<4xf32>
    %q = stablehlo.divide %a, %x : tensor<4xf32>
    %s = stablehlo.add %x, %q : tensor<4xf32>
    %r = stablehlo.multiply %s, %half : tensor<4xf32>
    return %r : tensor<4xf32>
  })";

hekla::Status run(const char* folder) {
  using namespace hekla;
  HEKLA_ASSIGN_OR_RETURN(runtime::Client client,
                         runtime::open_client());  // PJRT_DEVICE, or the best
  const runtime::Device& device = client.addressable_devices()[0];
  HEKLA_ASSIGN_OR_RETURN(runtime::Executable step, client.compile(kStep));

  const std::vector<float> numbers = {1, 2, 3, 4};
  const HostArray a = HostArray::from<float>(DType::kF32, {4}, numbers);
  std::vector<runtime::Buffer> arguments(2);  // a and x, which begins at a
  HEKLA_ASSIGN_OR_RETURN(arguments[0], client.to_device(a, device));
  HEKLA_ASSIGN_OR_RETURN(arguments[1], client.to_device(a, device));
  for (int i = 0; i < 6; ++i) {  // nothing waits for the device
    HEKLA_ASSIGN_OR_RETURN(runtime::Launch launch, step.launch(arguments));
    arguments[1] = std::move(launch.outputs[0][0]);
  }
  HEKLA_ASSIGN_OR_RETURN(const HostArray x, arguments[1].to_host());  // waits
  for (int i = 0; i < 4; ++i) std::printf("%.5f ", x.as<float>()[i]);
  std::printf("on %s\n", device.kind().c_str());

  HEKLA_ASSIGN_OR_RETURN(const auto manager, checkpoint::CheckpointManager::open(folder, {}));
  checkpoint::State state;
  const auto roots = std::make_shared<runtime::Buffer>(std::move(arguments[1]));
  HEKLA_RETURN_IF_ERROR(checkpoint::add_buffer(&state, "roots", roots));
  HEKLA_RETURN_IF_ERROR(manager->save(6, std::move(state)));
  return manager->close();
}

int main(int argc, char** argv) {
  const hekla::Status status = run(argc > 1 ? argv[1] : "roots.ckpt");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
