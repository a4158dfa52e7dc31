func.func @main(%x: tensor<4xf32>) {
%c = stablehlo.constant dense<0.0> : tensor<f32>
%0 = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
%1:2 = stablehlo.reduce(%x init: %c), (%x init: %c) across dimensions = [0] {a} : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
reducer(%a: tensor<f32>, %b: tensor<f32>) (%d: tensor<f32>, %e: tensor<f32>) {
stablehlo.return %a, %e : tensor<f32>, tensor<f32>
}
return
}
