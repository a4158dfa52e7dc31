func.func @main(%x: tensor<4xf32>) {
%c = stablehlo.constant dense<(1.0, -2.5e3)> : tensor<2xcomplex<f32>>
return
}
