func.func @main(%x: tensor<4xf32>) {
check.expect_eq %x, %x : tensor<4xf32>, tensor<4xf32>
check.expect_almost_eq_const %x, dense<1.0> : tensor<4xf32>
check.expect_close %x, %x, max_ulp_difference = 3, min_ulp_difference = 0 : tensor<4xf32>, tensor<4xf32>
check.expect_eq_const %x, dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
return
}
