// Rows that no update reaches: a load that nobody needs was staged for its loop.
module {
  func.func public @main(%x: tensor<6x3x5x3xi32>, %i: tensor<6x0x5xi64>, %u: tensor<2x6x3x5x5x1xi32>) -> (tensor<6x3x5x3xi32>) {
    %2 = "stablehlo.scatter"(%x, %i, %u) ({
    ^bb0(%arg9: tensor<i32>, %arg10: tensor<i32>):
      %3 = stablehlo.xor %arg9, %arg10 : tensor<i32>
      stablehlo.return %3 : tensor<i32>
    }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 2, 3, 5], index_vector_dim = 1>} : (tensor<6x3x5x3xi32>, tensor<6x0x5xi64>, tensor<2x6x3x5x5x1xi32>) -> tensor<6x3x5x3xi32>
    return %2 : tensor<6x3x5x3xi32>
  }
  func.func private @inputs() -> (tensor<6x3x5x3xi32>, tensor<6x0x5xi64>, tensor<2x6x3x5x5x1xi32>) {
    %0 = stablehlo.constant dense<3> : tensor<6x3x5x3xi32>
    %1 = stablehlo.constant dense<> : tensor<6x0x5xi64>
    %2 = stablehlo.constant dense<5> : tensor<2x6x3x5x5x1xi32>
    return %0, %1, %2 : tensor<6x3x5x3xi32>, tensor<6x0x5xi64>, tensor<2x6x3x5x5x1xi32>
  }
}
