// A dimension of one element that was cut was spread without being gathered.
module {
  sdy.mesh @mesh = <["x"=4]>
  func.func public @main(%arg0: tensor<1x5xi32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(2)2}, {}]>}) -> (tensor<5x2xi32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)2}, {"x":(2)2}]>}) {
    %0 = stablehlo.broadcast_in_dim %arg0, dims = [1, 0] : (tensor<1x5xi32>) -> tensor<5x2xi32>
    return %0 : tensor<5x2xi32>
  }
  func.func private @inputs() -> (tensor<1x5xi32>) {
    %0 = stablehlo.constant dense<[[1, 2, 3, 4, 5]]> : tensor<1x5xi32>
    return %0 : tensor<1x5xi32>
  }
}
