func.func @main(%x: tensor<4xf32>) {
%c = stablehlo.constant dense<"0x0000803F"> : tensor<4xf32>
return
}
