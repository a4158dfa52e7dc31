func.func @main(%x: tensor<4xf32>) {
%c = stablehlo.constant dense_resource<r> : tensor<2xi32>
return
}
{-#
dialect_resources: { builtin: { r: "0x040000000100000002000000" } }
#-}
