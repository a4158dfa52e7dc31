module @m attributes {a.n = 2 : i32} {
func.func public @main(%a: tensor<f32> {x.y = "z"} loc("p")) -> (tensor<f32> {r}) attributes {k} {
return %a : tensor<f32> loc("f.py":1:2)
} loc(unknown)
func.func private @d(tensor<i1>)
}
