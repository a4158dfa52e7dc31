func.func @main(%x: tensor<4xf32>) {
%0 = chlo.erf %x : tensor<4xf32> -> tensor<4xf32>
%1:2 = chlo.top_k(%x, k = 2) : tensor<4xf32> -> (tensor<2xf32>, tensor<2xi32>)
return
}
