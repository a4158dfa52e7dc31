// A carried value that becomes one from outside of the loop: buffers of the two took turns.
module {
  func.func public @main(%arg0: tensor<2xi64>, %arg1: tensor<i64>, %arg2: tensor<i64>) -> (tensor<i64>) {
    %0 = stablehlo.reduce(%arg0 init: %arg2) across dimensions = [0] : (tensor<2xi64>, tensor<i64>) -> tensor<i64>
     reducer(%arg3: tensor<i64>, %arg4: tensor<i64>) {
      %1 = stablehlo.or %arg4, %arg3 : tensor<i64>
      stablehlo.return %1 : tensor<i64>
    }
    %2 = stablehlo.constant dense<0> : tensor<i32>
    %3:2 = stablehlo.while(%arg5 = %2, %arg6 = %arg1) : tensor<i32>, tensor<i64>
     cond {
      %4 = stablehlo.constant dense<4> : tensor<i32>
      %5 = stablehlo.compare LT, %arg5, %4 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %5 : tensor<i1>
    } do {
      %7 = stablehlo.constant dense<1> : tensor<i32>
      %8 = stablehlo.add %arg5, %7 : tensor<i32>
      stablehlo.return %8, %0 : tensor<i32>, tensor<i64>
    }
    return %3#1 : tensor<i64>
  }
  func.func private @inputs() -> (tensor<2xi64>, tensor<i64>, tensor<i64>) {
    %0 = stablehlo.constant dense<[-47, 20]> : tensor<2xi64>
    %1 = stablehlo.constant dense<54> : tensor<i64>
    %2 = stablehlo.constant dense<0> : tensor<i64>
    return %0, %1, %2 : tensor<2xi64>, tensor<i64>, tensor<i64>
  }
}
