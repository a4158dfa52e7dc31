func.func @main(%x: tensor<4xf32>) {
%0 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
%2 = stablehlo.add %a, %b : tensor<f32>
stablehlo.return %2 : tensor<f32>
}) : (tensor<4xf32>) -> tensor<4xf32>
%1 = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
return
}
