func.func @main(%x: tensor<4xf32>) {
%c = stablehlo.constant dense<true> : tensor<i1>
%0:2 = stablehlo.while(%i = %x, %j = %c) : tensor<4xf32>, tensor<i1> attributes {a}
cond {
stablehlo.return %j : tensor<i1>
} do {
%1 = func.call @g(%i) : (tensor<4xf32>) -> tensor<4xf32>
stablehlo.return %1, %c : tensor<4xf32>, tensor<i1>
}
return
}
func.func private @g(%a: tensor<4xf32>) -> tensor<4xf32> {
return %a : tensor<4xf32>
}
