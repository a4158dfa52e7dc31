func.func @main(%x: tensor<4xf32>) {
%t = stablehlo.create_token : !stablehlo.token
%u = stablehlo.after_all %t, %t : !stablehlo.token
%v = stablehlo.tuple %x, %u : tuple<tensor<4xf32>, !stablehlo.token>
%w = stablehlo.get_tuple_element %v[0] : (tuple<tensor<4xf32>, !stablehlo.token>) -> tensor<4xf32>
%y:2 = stablehlo.optimization_barrier %x, %w : tensor<4xf32>, tensor<4xf32>
%r = stablehlo.replica_id : tensor<ui32>
%q = stablehlo.fft %x, type = RFFT, length = [4] : (tensor<4xf32>) -> tensor<3xcomplex<f32>>
return
}
