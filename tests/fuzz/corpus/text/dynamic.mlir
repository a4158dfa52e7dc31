func.func @main(%x: tensor<4xf32>) {
%s = stablehlo.constant dense<[2, 2]> : tensor<2xi32>
%i = stablehlo.constant dense<1> : tensor<1xi32>
%0 = stablehlo.dynamic_reshape %x, %s : (tensor<4xf32>, tensor<2xi32>) -> tensor<?x?xf32>
%1 = stablehlo.dynamic_iota %s, dim = 0 : (tensor<2xi32>) -> tensor<?x?xi32>
%2 = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [1] {known_expanding_dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<2xi32>) -> tensor<?x4xf32>
%c = stablehlo.constant dense<0.0> : tensor<f32>
%3 = stablehlo.dynamic_pad %x, %c, %i, %i, %i : (tensor<4xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
%4 = stablehlo.real_dynamic_slice %x, %i, %i, %i : (tensor<4xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
return
}
