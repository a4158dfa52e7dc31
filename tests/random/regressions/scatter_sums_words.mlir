// Emulated 64-bit integers: the sum that each update reads back was read once, in front of the loop.
module {
  func.func public @main(%arg0: tensor<ui64>, %arg1: tensor<5000x0xi32>, %arg2: tensor<5000xui64>) -> (tensor<ui64>) {
    %0 = "stablehlo.scatter"(%arg0, %arg1, %arg2) ({
    ^bb0(%arg3: tensor<ui64>, %arg4: tensor<ui64>):
      %1 = stablehlo.add %arg3, %arg4 : tensor<ui64>
      stablehlo.return %1 : tensor<ui64>
    }) {scatter_dimension_numbers = #stablehlo.scatter<index_vector_dim = 1>} : (tensor<ui64>, tensor<5000x0xi32>, tensor<5000xui64>) -> tensor<ui64>
    return %0 : tensor<ui64>
  }
  func.func private @inputs() -> (tensor<ui64>, tensor<5000x0xi32>, tensor<5000xui64>) {
    %0 = stablehlo.constant dense<7> : tensor<ui64>
    %1 = stablehlo.constant dense<> : tensor<5000x0xi32>
    %2 = stablehlo.constant dense<7> : tensor<5000xui64>
    return %0, %1, %2 : tensor<ui64>, tensor<5000x0xi32>, tensor<5000xui64>
  }
}