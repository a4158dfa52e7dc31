// Indices of 2^63 and more became negative, and their rows the first instead of the last.
module {
  sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func public @main(%arg0: tensor<8xi32> {sdy.sharding = #sdy.sharding<@mesh, [{"y", "x"}]>}, %arg1: tensor<4xui64>) -> (tensor<4xi32>, tensor<8xi32>) {
    %0 = stablehlo.reshape %arg1 : (tensor<4xui64>) -> tensor<4x1xui64>
    %1 = "stablehlo.gather"(%arg0, %0) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>} : (tensor<8xi32>, tensor<4x1xui64>) -> tensor<4xi32>
    %2 = stablehlo.constant dense<[10, 20, 30, 40]> : tensor<4xi32>
    %3 = "stablehlo.scatter"(%arg0, %0, %2) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %s = stablehlo.add %a, %b : tensor<i32>
      stablehlo.return %s : tensor<i32>
    }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} : (tensor<8xi32>, tensor<4x1xui64>, tensor<4xi32>) -> tensor<8xi32>
    return %1, %3 : tensor<4xi32>, tensor<8xi32>
  }
  func.func private @inputs() -> (tensor<8xi32>, tensor<4xui64>) {
    %0 = stablehlo.constant dense<[1, 2, 3, 4, 5, 6, 7, 8]> : tensor<8xi32>
    %1 = stablehlo.constant dense<[9223372036854775808, 18446744073709551615, 2, 9]> : tensor<4xui64>
    return %0, %1 : tensor<8xi32>, tensor<4xui64>
  }
}
