// llvmpipe of LLVM 15 with AVX-512: the sign of a power of negative numbers was lost, by one masked instruction for a selection of bits.
module @power_bf16 {
  func.func public @main(%arg0: tensor<6xbf16>, %arg1: tensor<6xbf16>) -> (tensor<6xbf16>) {
    %0 = stablehlo.power %arg0, %arg1 : tensor<6xbf16>
    return %0 : tensor<6xbf16>
  }
  func.func private @inputs() -> (tensor<6xbf16>, tensor<6xbf16>) {
    %0 = stablehlo.constant dense<[-1.0, -3.0, 1.0, 2.0, -1.5, -2.0]> : tensor<6xbf16>
    %1 = stablehlo.constant dense<[-1.0, -3.0, 1.0, 2.0, -1.5, -1.0]> : tensor<6xbf16>
    return %0, %1 : tensor<6xbf16>, tensor<6xbf16>
  }
}
