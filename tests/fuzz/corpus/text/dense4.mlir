func.func @main(%x: tensor<4xf32>) {
%c = stablehlo.constant dense<[0x7FC00000, -0.0]> : tensor<2xf32>
return
}
