// A format without NaN stores a zero for it, whose sign is the other than the NaN's: that of the quotient computed with integers
// (SwiftShader) was positive, that of processors is negative.
module @divide_narrow_by_zero {
  func.func public @main(%arg0: tensor<4xf6E2M3FN>, %arg1: tensor<4xf6E2M3FN>) -> tensor<4xf6E2M3FN> {
    %0 = stablehlo.divide %arg0, %arg1 : tensor<4xf6E2M3FN>
    return %0 : tensor<4xf6E2M3FN>
  }
  func.func private @inputs() -> (tensor<4xf6E2M3FN>, tensor<4xf6E2M3FN>) {
    %0 = stablehlo.constant dense<[0.0, -0.0, 1.0, 0.0]> : tensor<4xf6E2M3FN>
    %1 = stablehlo.constant dense<[0.0, 0.0, 0.0, -0.0]> : tensor<4xf6E2M3FN>
    return %0, %1 : tensor<4xf6E2M3FN>, tensor<4xf6E2M3FN>
  }
}
