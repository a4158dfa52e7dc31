func.func @main(%x: tensor<4xf32>) {
%c = stablehlo.constant dense<[]> : tensor<0xi4>
return
}
