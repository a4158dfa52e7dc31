"builtin.module"() <{sym_name = "m"}> ({
"sdy.mesh"() <{mesh = #sdy.mesh<["x"=2]>, sym_name = "s"}> : () -> ()
"func.func"() <{function_type = (tensor<f32>) -> tensor<f32>, sym_name = "main", arg_attrs = [{a}], res_attrs = [{}]}> ({
^bb0(%a: tensor<f32>):
"func.return"(%a) : (tensor<f32>) -> ()
}) : () -> ()
}) {b = 1} : () -> ()
