#a = [1, "s"]
!t = tensor<2x!u>
!u = f16
#l0 = loc("a.py":1:2)
#l1 = loc(callsite(#l0 at fused<"m">[#l0, "n"(#l0)]))
func.func @main(%x: tensor<4xf32>) {
"x"() {a = #a, b = #a, t = !t} : () -> () loc(#l1)
return
}
