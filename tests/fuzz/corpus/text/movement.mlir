func.func @main(%x: tensor<4xf32>) {
%0 = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
%1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<2x4xf32>) -> tensor<4x2xf32>
%2 = stablehlo.reverse %0, dims = [1] : tensor<2x4xf32>
%3 = stablehlo.slice %x [0:4:2] : (tensor<4xf32>) -> tensor<2xf32>
%4 = stablehlo.concatenate %x, %x, dim = 0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
%5 = stablehlo.reshape %x : (tensor<4xf32>) -> tensor<2x2xf32>
%6 = stablehlo.iota dim = 0 : tensor<3xi32>
%c = stablehlo.constant dense<0.0> : tensor<f32>
%7 = stablehlo.pad %x, %c, low = [1], high = [-1], interior = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
%i = stablehlo.constant dense<0> : tensor<i32>
%8 = stablehlo.dynamic_slice %x, %i, sizes = [2] : (tensor<4xf32>, tensor<i32>) -> tensor<2xf32>
%9 = stablehlo.dynamic_update_slice %x, %8, %i : (tensor<4xf32>, tensor<2xf32>, tensor<i32>) -> tensor<4xf32>
%10 = stablehlo.broadcast %x, sizes = [2] : (tensor<4xf32>) -> tensor<2x4xf32>
%11 = stablehlo.bitcast_convert %x : (tensor<4xf32>) -> tensor<4xi32>
%12 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<4xf32>) -> tensor<i32>
%13 = stablehlo.set_dimension_size %x, %12, dim = 0 : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>>
return
}
