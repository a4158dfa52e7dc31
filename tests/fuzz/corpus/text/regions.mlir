func.func @main(%x: tensor<4xf32>) {
%p = stablehlo.constant dense<true> : tensor<i1>
%0 = "stablehlo.if"(%p) ({
stablehlo.return %x : tensor<4xf32>
}, {
^bb0:
stablehlo.return %x : tensor<4xf32>
}) : (tensor<i1>) -> tensor<4xf32>
%1 = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
%2 = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
stablehlo.return %2 : tensor<i1>
}) : (tensor<4xf32>) -> tensor<4xf32>
"x"() ({}) : () -> ()
return
}
