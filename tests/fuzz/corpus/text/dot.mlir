func.func @main(%x: tensor<4xf32>) {
%0 = stablehlo.dot %x, %x, precision = [DEFAULT, HIGHEST] : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>
%1 = stablehlo.dot_general %x, %x, batching_dims = [0] x [0], contracting_dims = [] x [], precision = [HIGH, HIGH], algorithm = <lhs_precision_type = f32, rhs_precision_type = f32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
%2 = stablehlo.einsum %x, %x, config = "a,a->a" : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
return
}
