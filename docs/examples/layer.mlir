// A layer of a network: softmax(relu(x w + b)), rows of 32.
func.func @main(%x: tensor<8x64xf32>, %w: tensor<64x32xf32>, %b: tensor<32xf32>) -> tensor<8x32xf32> {
  %xw = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x64xf32>, tensor<64x32xf32>) -> tensor<8x32xf32>
  %bias = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<32xf32>) -> tensor<8x32xf32>
  %sum = stablehlo.add %xw, %bias : tensor<8x32xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<8x32xf32>
  %relu = stablehlo.maximum %sum, %zeros : tensor<8x32xf32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %max = stablehlo.reduce(%relu init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<8x32xf32>, tensor<f32>) -> tensor<8xf32>
  %maxes = stablehlo.broadcast_in_dim %max, dims = [0] : (tensor<8xf32>) -> tensor<8x32xf32>
  %shifted = stablehlo.subtract %relu, %maxes : tensor<8x32xf32>
  %e = stablehlo.exponential %shifted : tensor<8x32xf32>
  %total = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x32xf32>, tensor<f32>) -> tensor<8xf32>
  %totals = stablehlo.broadcast_in_dim %total, dims = [0] : (tensor<8xf32>) -> tensor<8x32xf32>
  %result = stablehlo.divide %e, %totals : tensor<8x32xf32>
  return %result : tensor<8x32xf32>
}
