func.func @main(%x: tensor<4xf32>) {
%c = stablehlo.constant dense<[1, -8]> : tensor<2xi4>
return
}
