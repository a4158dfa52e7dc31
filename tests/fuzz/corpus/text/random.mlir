func.func @main(%x: tensor<4xf32>) {
%s = stablehlo.constant dense<1> : tensor<2xui64>
%0:2 = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)
%c = stablehlo.constant dense<0.0> : tensor<f32>
%d = stablehlo.constant dense<[2]> : tensor<1xi64>
%1 = stablehlo.rng %c, %c, %d, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<2xf32>
return
}
