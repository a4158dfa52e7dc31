// 100,000 updates of each of two elements, more than a loop of llvmpipe may have turns; the second
// result is for nobody, but the reducer looks at it.
module @scatter_long_runs {
  func.func public @main(%arg0: tensor<3xi32>, %arg1: tensor<3xi32>) -> tensor<3xi32> {
    %number = stablehlo.iota dim = 0 : tensor<200000xi32>
    %two = stablehlo.constant dense<2> : tensor<200000xi32>
    %seven = stablehlo.constant dense<7> : tensor<200000xi32>
    %key = stablehlo.remainder %number, %two : tensor<200000xi32>
    %keys = stablehlo.reshape %key : (tensor<200000xi32>) -> tensor<200000x1xi32>
    %value = stablehlo.remainder %number, %seven : tensor<200000xi32>
    %0:2 = "stablehlo.scatter"(%arg0, %arg1, %keys, %value, %number) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>, %x: tensor<i32>, %y: tensor<i32>):
      %sum = stablehlo.add %a, %x : tensor<i32>
      %mixed = stablehlo.xor %b, %sum : tensor<i32>
      %other = stablehlo.add %mixed, %y : tensor<i32>
      %both = stablehlo.add %sum, %b : tensor<i32>
      stablehlo.return %both, %other : tensor<i32>, tensor<i32>
    }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} : (tensor<3xi32>, tensor<3xi32>, tensor<200000x1xi32>, tensor<200000xi32>, tensor<200000xi32>) -> (tensor<3xi32>, tensor<3xi32>)
    return %0#0 : tensor<3xi32>
  }
  func.func private @inputs() -> (tensor<3xi32>, tensor<3xi32>) {
    %0 = stablehlo.constant dense<[5, -3, 8]> : tensor<3xi32>
    %1 = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi32>
    return %0, %1 : tensor<3xi32>, tensor<3xi32>
  }
}
