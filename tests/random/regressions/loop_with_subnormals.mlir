// Devices that take f32 subnormal numbers for zero, and say so, are right about this: a loop that halves the least normal number.
module @loop_with_subnormals {
  func.func public @main(%arg0: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xi1>, tensor<4xf32>) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %r:2 = stablehlo.while(%i = %zero, %x = %arg0) : tensor<i32>, tensor<4xf32>
      cond {
        %limit = stablehlo.constant dense<3> : tensor<i32>
        %p = stablehlo.compare LT, %i, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %half = stablehlo.constant dense<0.5> : tensor<4xf32>
        %next = stablehlo.add %i, %one : tensor<i32>
        %y = stablehlo.multiply %x, %half : tensor<4xf32>
        stablehlo.return %next, %y : tensor<i32>, tensor<4xf32>
      }
    %nothing = stablehlo.constant dense<0.0> : tensor<4xf32>
    %p = stablehlo.compare GT, %r#1, %nothing : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
    %e = stablehlo.log %r#1 : tensor<4xf32>
    return %r#1, %p, %e : tensor<4xf32>, tensor<4xi1>, tensor<4xf32>
  }
  func.func private @inputs() -> tensor<4xf32> {
    %0 = stablehlo.constant dense<[1.17549435e-38, 1.0e-37, 1.0, 1.0e-40]> : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
