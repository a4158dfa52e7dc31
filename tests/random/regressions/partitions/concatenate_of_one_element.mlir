// A dimension of one element that was cut was joined to the other without being gathered.
module {
  sdy.mesh @mesh = <["x"=3, "y"=2]>
  func.func public @main(%arg0: tensor<2x4xi8>, %arg1: tensor<2x1xi8> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) -> tensor<2x5xi8> {
    %0 = stablehlo.concatenate %arg0, %arg1, dim = 1 : (tensor<2x4xi8>, tensor<2x1xi8>) -> tensor<2x5xi8>
    return %0 : tensor<2x5xi8>
  }
  func.func private @inputs() -> (tensor<2x4xi8>, tensor<2x1xi8>) {
    %0 = stablehlo.constant dense<[[1, 2, 3, 4], [5, 6, 7, 8]]> : tensor<2x4xi8>
    %1 = stablehlo.constant dense<[[9], [10]]> : tensor<2x1xi8>
    return %0, %1 : tensor<2x4xi8>, tensor<2x1xi8>
  }
}
