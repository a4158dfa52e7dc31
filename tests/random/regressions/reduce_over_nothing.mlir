// A sum over no dimensions: the generator looked at the last of its sizes.
module {
  func.func public @main(%arg0: tensor<4xf32>, %arg1: tensor<f32>) -> tensor<4xf32> {
    %0 = stablehlo.reduce(%arg0 init: %arg1) applies stablehlo.add across dimensions = [] : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func private @inputs() -> (tensor<4xf32>, tensor<f32>) {
    %0 = stablehlo.constant dense<[-1.5, 1.25, 0.125, 0.0]> : tensor<4xf32>
    %1 = stablehlo.constant dense<1.5> : tensor<f32>
    return %0, %1 : tensor<4xf32>, tensor<f32>
  }
}
