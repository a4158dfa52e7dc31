func.func @main(%x: tensor<4xf32>) {
"x"() {a = tensor<?x4xf32, #stablehlo.bounds<8, ?>>, b = tensor<*xi2>, c = tuple<tensor<f32>, !stablehlo.token>, d = (f32) -> (), e = memref<2xbf16>, f = !stablehlo.future<tensor<f32>>, g = none, h = index, i = !foo.bar<[1]>, j = !shape.witness} : () -> ()
return
}
