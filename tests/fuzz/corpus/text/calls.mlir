func.func @main(%x: tensor<4xf32>) {
%0 = call @g(%x) : (tensor<4xf32>) -> tensor<4xf32>
%1:2 = stablehlo.custom_call @"t u"(%x) {api_version = 4 : i32, backend_config = {a = 1 : i64}, called_computations = [@g], operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>, dense<> : tensor<0xindex>]} : (tensor<4xf32>) -> (tensor<4xf32>, tensor<f32>)
%2 = stablehlo.composite "a.b" %x {composite_attributes = {k = 1 : i32}, decomposition = @g, version = 1 : i32} : (tensor<4xf32>) -> tensor<4xf32>
return
}
func.func private @g(%a: tensor<4xf32>) -> tensor<4xf32> {
return %a : tensor<4xf32>
}
