// Parts were folded in the order of the axes, not of the parts.
module {
  sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func public @main(%arg0: tensor<8x3xi32> {sdy.sharding = #sdy.sharding<@mesh, [{"y", "x"}, {}]>}, %arg1: tensor<8x3xi32> {sdy.sharding = #sdy.sharding<@mesh, [{"y", "x"}, {}]>}) -> (tensor<3xi32>, tensor<3xi32>) {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = "stablehlo.reduce"(%arg0, %arg1, %one, %zero) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<i32>, %d: tensor<i32>):
      %p = stablehlo.multiply %a, %c : tensor<i32>
      %q = stablehlo.multiply %b, %c : tensor<i32>
      %r = stablehlo.add %q, %d : tensor<i32>
      stablehlo.return %p, %r : tensor<i32>, tensor<i32>
    }) {dimensions = array<i64: 0>} : (tensor<8x3xi32>, tensor<8x3xi32>, tensor<i32>, tensor<i32>) -> (tensor<3xi32>, tensor<3xi32>)
    return %0#0, %0#1 : tensor<3xi32>, tensor<3xi32>
  }
  func.func private @inputs() -> (tensor<8x3xi32>, tensor<8x3xi32>) {
    %0 = stablehlo.constant dense<[[2, 6, 6], [2, 4, 2], [6, 6, 2], [4, 2, 6], [6, 2, 4], [2, 6, 6], [2, 4, 2], [6, 6, 2]]> : tensor<8x3xi32>
    %1 = stablehlo.constant dense<[[0, 8, 7], [8, 0, 5], [1, 10, 10], [1, 5, 0], [8, 7, 8], [0, 5, 1], [10, 10, 1], [5, 0, 8]]> : tensor<8x3xi32>
    return %0, %1 : tensor<8x3xi32>, tensor<8x3xi32>
  }
}
