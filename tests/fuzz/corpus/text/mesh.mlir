sdy.mesh @m = <["x"=2, "y"=4], device_ids=[0, 1]> {a = dense<0> : tensor<1xi64>}
func.func @main(%x: tensor<4xf32>) {
%0 = sdy.sharding_constraint %x <@m, [{"x", ?}p1]> : tensor<4xf32>
%1 = sdy.manual_computation(%x) in_shardings=[<@m, [{"x"}]>] out_shardings=[<@m, [{}]>] manual_axes={"x"} (%b: tensor<2xf32>) {
sdy.return %b : tensor<2xf32>
} : (tensor<4xf32>) -> tensor<4xf32>
return
}
