func.func @main(%x: tensor<4xf32>) {
%c = stablehlo.constant dense<[[1, -2], [0x3, 4]]> : tensor<2x2xi8>
return
}
