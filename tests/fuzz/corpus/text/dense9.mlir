func.func @main(%x: tensor<4xf32>) {
%c = stablehlo.constant dense<[1.0, 0x7F]> : tensor<2xf8E4M3FN>
return
}
