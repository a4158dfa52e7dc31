func.func @main(%x: tensor<2x2xf32>) {
%0 = stablehlo.cholesky %x, lower = true : tensor<2x2xf32>
%1 = "stablehlo.triangular_solve"(%x, %x) <{left_side = true, lower = true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
return
}
