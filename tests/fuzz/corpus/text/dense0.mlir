func.func @main(%x: tensor<4xf32>) {
%c = stablehlo.constant dense<1.0> : tensor<4xf32>
return
}
