func.func @main(%x: tensor<4xf32>) {
%c = stablehlo.constant dense<"0x0001"> : tensor<2xui8>
return
}
