// An i32 index that is widened and clamped: Mesa 22.3 compared it without its sign.
module {
  func.func public @main(%arg0: tensor<i32>, %arg1: tensor<3x2xf32>, %arg2: tensor<2x1xf32>, %arg3: tensor<i64>) -> tensor<3x2xf32> {
    %0 = stablehlo.convert %arg0 : (tensor<i32>) -> tensor<i64>
    %1 = stablehlo.dynamic_update_slice %arg1, %arg2, %arg3, %0 : (tensor<3x2xf32>, tensor<2x1xf32>, tensor<i64>, tensor<i64>) -> tensor<3x2xf32>
    return %1 : tensor<3x2xf32>
  }
  func.func private @inputs() -> (tensor<i32>, tensor<3x2xf32>, tensor<2x1xf32>, tensor<i64>) {
    %0 = stablehlo.constant dense<-21> : tensor<i32>
    %1 = stablehlo.constant dense<1.0> : tensor<3x2xf32>
    %2 = stablehlo.constant dense<2.0> : tensor<2x1xf32>
    %3 = stablehlo.constant dense<1> : tensor<i64>
    return %0, %1, %2, %3 : tensor<i32>, tensor<3x2xf32>, tensor<2x1xf32>, tensor<i64>
  }
}
