// Taps on padding alone, and a kernel with infinities: a zero that was hidden twice was none, and 0 * inf was 0.
module {
  func.func public @main(%arg0: tensor<7x1x4x1x1xf16>, %arg1: tensor<4x1x3x4x3xf16>) -> (tensor<6x4x1x1x2xf16>) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [0, 2, 1, b, f]x[o, i, 1, 0, 2]->[0, f, b, 1, 2], window = {stride = [1, 1, 2], pad = [[-1, 3], [0, -1], [3, 1]], reverse = [false, true, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<7x1x4x1x1xf16>, tensor<4x1x3x4x3xf16>) -> tensor<6x4x1x1x2xf16>
    return %0 : tensor<6x4x1x1x2xf16>
  }
  func.func private @inputs() -> (tensor<7x1x4x1x1xf16>, tensor<4x1x3x4x3xf16>) {
    %0 = stablehlo.constant dense<[[[[[0.853515625]], [[0.97216796875]], [[1.6650390625]], [[-0.069580078125]]]], [[[[-1.8515625]], [[-0.52783203125]], [[0.23583984375]], [[-0.452880859375]]]], [[[[-1.4814453125]], [[-0.52734375]], [[-1.0224609375]], [[-1.38671875]]]], [[[[1.59375]], [[-0.5712890625]], [[1.53125]], [[1.68359375]]]], [[[[-1.775390625]], [[-1.21484375]], [[1.49609375]], [[-0.79541015625]]]], [[[[-1.5234375]], [[0.28271484375]], [[1.5224609375]], [[-1.244140625]]]], [[[[1.583984375]], [[0.101806640625]], [[1.435546875]], [[1.958984375]]]]]> : tensor<7x1x4x1x1xf16>
    %1 = stablehlo.constant dense<"0x003CB43F1E3AA238823AF0BC27B74056A7BF007C00B82CB30000003DE02C00BC0BA9007C0CBC7F32003CD8B41FBE2D2D4738FFB59FBD0000E63D86A10041A6BED63F543E642F34BA405621BDF6BD61B4007E40565B3DD4B6ADB2405600BC00BC0AB8B1DC007CF33D00BC71389EB70041C23EBB3C7C34007EA039B73E61B0B7BBB63F007ED6B8D5BC5CB97FBAC63D00002B3F97BF5CBE007EC33BD33FBC3C823F5EBF1538007E19B450322039E13DA23F453BEA36E63F6BB62DBE33B91C3D053F24BBB1DC008034BE01B800B822BD1BA900B8B836863E2B2F1BBE30381C3FE3BF463CA8383E38F435C8BD4139A13D4C379B337BBC47B9BDBBF33B95BEA339EBBDFF38093E0000C3BB008060BCE93C8F39743E98B73C2EAB30463BB6B69DBFAD3F"> : tensor<4x1x3x4x3xf16>
    return %0, %1 : tensor<7x1x4x1x1xf16>, tensor<4x1x3x4x3xf16>
  }
}
