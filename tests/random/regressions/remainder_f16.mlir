// llvmpipe 26 with AVX-512: the selection of two values made of bits, both hidden from the compiler alike, was one of what they hide.
module @remainder_f16 {
  func.func public @main(%arg0: tensor<4xf16>, %arg1: tensor<4xf16>) -> (tensor<4xf16>) {
%r = stablehlo.remainder %arg0, %arg1 : tensor<4xf16>
    return %r : tensor<4xf16>
  }
  func.func private @inputs() -> (tensor<4xf16>, tensor<4xf16>) {
    %0 = stablehlo.constant dense<[0.791503906, 5.5, 1.0, 3.0]> : tensor<4xf16>
    %1 = stablehlo.constant dense<[0.72412109375, 2.0, 2.0, -2.0]> : tensor<4xf16>
    return %0, %1 : tensor<4xf16>, tensor<4xf16>
  }
}
