// The result was cut by a factor that only one side has, its operand was whole.
module {
  sdy.mesh @mesh = <["x"=2, "y"=3]>
  func.func public @main(%arg0: tensor<3x2x5xi64>) -> (tensor<2x5x3xi64> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}, {"y"}]>}) {
    %0 = stablehlo.reshape %arg0 : (tensor<3x2x5xi64>) -> tensor<2x5x3xi64>
    return %0 : tensor<2x5x3xi64>
  }
  func.func private @inputs() -> (tensor<3x2x5xi64>) {
    %0 = stablehlo.constant dense<[[[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]], [[11, 12, 13, 14, 15], [16, 17, 18, 19, 20]], [[21, 22, 23, 24, 25], [26, 27, 28, 29, 30]]]> : tensor<3x2x5xi64>
    return %0 : tensor<3x2x5xi64>
  }
}
