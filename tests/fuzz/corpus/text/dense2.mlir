func.func @main(%x: tensor<4xf32>) {
%c = stablehlo.constant dense<[true, false]> : tensor<2xi1>
return
}
