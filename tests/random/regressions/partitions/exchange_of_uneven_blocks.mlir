// Two exchanges became one whose blocks did not lie in each other: elements were lost.
module {
  sdy.mesh @mesh = <["x"=6]>
  func.func public @main(%arg0: tensor<3x2x5xi16> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}, {}]>}) -> (tensor<2x3x5xi16> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {"x":(2)3}]>}) {
    %0 = stablehlo.transpose %arg0, dims = [1, 0, 2] : (tensor<3x2x5xi16>) -> tensor<2x3x5xi16>
    return %0 : tensor<2x3x5xi16>
  }
  func.func private @inputs() -> (tensor<3x2x5xi16>) {
    %0 = stablehlo.constant dense<[[[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]], [[11, 12, 13, 14, 15], [16, 17, 18, 19, 20]], [[21, 22, 23, 24, 25], [26, 27, 28, 29, 30]]]> : tensor<3x2x5xi16>
    return %0 : tensor<3x2x5xi16>
  }
}
