func.func @main(%x: tensor<1x4x1xf32>, %k: tensor<2x1x1xf32>) {
%0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad = [[1, 0]], lhs_dilate = [1], rhs_dilate = [1], reverse = [true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision HIGH>, #stablehlo<precision DEFAULT>]} : (tensor<1x4x1xf32>, tensor<2x1x1xf32>) -> tensor<1x4x1xf32>
%c = stablehlo.constant dense<0.0> : tensor<f32>
%1 = "stablehlo.reduce_window"(%x, %c) <{window_dimensions = array<i64: 1, 2, 1>, padding = dense<0> : tensor<3x2xi64>}> ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
stablehlo.return %a : tensor<f32>
}) : (tensor<1x4x1xf32>, tensor<f32>) -> tensor<1x3x1xf32>
return
}
