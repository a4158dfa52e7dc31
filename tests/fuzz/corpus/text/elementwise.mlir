func.func @main(%x: tensor<4xf32>) {
%0 = stablehlo.add %x, %x {a} : tensor<4xf32>
%1 = stablehlo.convert %0 : (tensor<4xf32>) -> tensor<4xi32>
%2 = stablehlo.compare LT, %x, %0, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
%3 = stablehlo.select %2, %x, %0 : tensor<4xi1>, tensor<4xf32>
%4 = stablehlo.clamp %x, %x, %x : tensor<4xf32>
%5 = stablehlo.complex %x, %x : tensor<4xcomplex<f32>>
%6 = stablehlo.reduce_precision %x, format = e5m2 : tensor<4xf32>
%7 = stablehlo.exponential %x {result_accuracy = #stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<HIGHEST>>} : tensor<4xf32>
return
}
