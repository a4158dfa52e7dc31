func.func @main(%x: tensor<4xf32>) {
"x"() {a, "b c" = 1 : i8, c = -1.5 : f16, d = true, e = [1, unit], f = {g = 1}, h = @s::@"t u", i = array<i64: 1, -2>, j = array<i1: true>, k = array<f32: 1.0>, l = dense<[1, 2]> : tensor<2xi64>, m = affine_map<(d0) -> (d0)>, n = loc("x"), o = 18446744073709551615 : ui64, p = 0x7F800000 : f32, q = "\22\0A\n"} : () -> ()
return
}
