func.func @main(%x: tensor<4xf32>) {
%c = stablehlo.constant() <{value = dense<[1, 2]> : tensor<2xi8>}> : () -> tensor<2x!quant.uniform<i8<-127:127>:f32:0, {0.5, 0.25:3}>>
%d = stablehlo.uniform_quantize %x : (tensor<4xf32>) -> tensor<4x!quant.uniform<u8:f32, 1.0:-5>>
return
}
