// A carried value that nobody needs, computed by the host: its operand was asked for and had no memory.
module {
  func.func public @main(%arg8: tensor<1x7xi32>) -> (tensor<i32>) {
      %1 = stablehlo.constant dense<0> : tensor<i32>
      %2:2 = stablehlo.while(%arg10 = %1, %arg11 = %arg8) : tensor<i32>, tensor<1x7xi32>
       cond {
        %3 = stablehlo.constant dense<2> : tensor<i32>
        %4 = stablehlo.compare LT, %arg10, %3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %4 : tensor<i1>
      } do {
        %5 = stablehlo.broadcast_in_dim %arg10, dims = [] : (tensor<i32>) -> tensor<7x7xi32>
        %6 = "stablehlo.einsum"(%arg11, %5) {einsum_config = "ab,bc->ac"} : (tensor<1x7xi32>, tensor<7x7xi32>) -> tensor<1x7xi32>
        %13 = stablehlo.constant dense<1> : tensor<i32>
        %14 = stablehlo.add %arg10, %13 : tensor<i32>
        stablehlo.return %14, %6 : tensor<i32>, tensor<1x7xi32>
      }
    return %2#0 : tensor<i32>
  }
  func.func private @inputs() -> tensor<1x7xi32> {
    %0 = stablehlo.constant dense<[[0, 1, 2, 3, 4, 5, 6]]> : tensor<1x7xi32>
    return %0 : tensor<1x7xi32>
  }
}
