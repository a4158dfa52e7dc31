// Three updates whose index vectors hold no number were taken for one window.
module {
  func.func public @main(%arg0: tensor<ui32>, %arg1: tensor<3x1xui32>) -> (tensor<ui32>) {
    %0 = stablehlo.constant dense<> : tensor<0x3x1xi32>
    %1 = "stablehlo.scatter"(%arg0, %0, %arg1) ({
    ^bb0(%arg2: tensor<ui32>, %arg3: tensor<ui32>):
      %2 = stablehlo.add %arg2, %arg3 : tensor<ui32>
      stablehlo.return %2 : tensor<ui32>
    }) {scatter_dimension_numbers = #stablehlo.scatter<>} : (tensor<ui32>, tensor<0x3x1xi32>, tensor<3x1xui32>) -> tensor<ui32>
    return %1 : tensor<ui32>
  }
  func.func private @inputs() -> (tensor<ui32>, tensor<3x1xui32>) {
    %0 = stablehlo.constant dense<28> : tensor<ui32>
    %1 = stablehlo.constant dense<[[1], [2], [3]]> : tensor<3x1xui32>
    return %0, %1 : tensor<ui32>, tensor<3x1xui32>
  }
}
