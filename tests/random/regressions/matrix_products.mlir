// Products of each type that has matrix units somewhere, large enough for them, and convolutions, of numbers that the program makes.
module {
  func.func public @main() -> (tensor<96x80xbf16>, tensor<70x65xf32>, tensor<96x80xf16>, tensor<70x65xf32>, tensor<96x80xi32>, tensor<96x80xui32>, tensor<2x12x12x32xbf16>, tensor<2x12x12x32xf16>) {
    %x0_i = stablehlo.iota dim = 1 : tensor<96x112xi32>
    %x0_j = stablehlo.iota dim = 0 : tensor<96x112xi32>
    %x0_f = stablehlo.constant dense<3> : tensor<96x112xi32>
    %x0_m = stablehlo.constant dense<13> : tensor<96x112xi32>
    %x0_a = stablehlo.multiply %x0_i, %x0_f : tensor<96x112xi32>
    %x0_b = stablehlo.add %x0_a, %x0_j : tensor<96x112xi32>
    %x0_c = stablehlo.multiply %x0_b, %x0_b : tensor<96x112xi32>
    %x0_d = stablehlo.remainder %x0_c, %x0_m : tensor<96x112xi32>
    %x0 = stablehlo.convert %x0_d : (tensor<96x112xi32>) -> tensor<96x112xbf16>
    %y0_i = stablehlo.iota dim = 1 : tensor<112x80xi32>
    %y0_j = stablehlo.iota dim = 0 : tensor<112x80xi32>
    %y0_f = stablehlo.constant dense<5> : tensor<112x80xi32>
    %y0_m = stablehlo.constant dense<13> : tensor<112x80xi32>
    %y0_a = stablehlo.multiply %y0_i, %y0_f : tensor<112x80xi32>
    %y0_b = stablehlo.add %y0_a, %y0_j : tensor<112x80xi32>
    %y0_c = stablehlo.multiply %y0_b, %y0_b : tensor<112x80xi32>
    %y0_d = stablehlo.remainder %y0_c, %y0_m : tensor<112x80xi32>
    %y0 = stablehlo.convert %y0_d : (tensor<112x80xi32>) -> tensor<112x80xbf16>
    %r0 = stablehlo.dot_general %x0, %y0, contracting_dims = [1] x [0] : (tensor<96x112xbf16>, tensor<112x80xbf16>) -> tensor<96x80xbf16>
    %x1_i = stablehlo.iota dim = 1 : tensor<70x95xi32>
    %x1_j = stablehlo.iota dim = 0 : tensor<70x95xi32>
    %x1_f = stablehlo.constant dense<4> : tensor<70x95xi32>
    %x1_m = stablehlo.constant dense<13> : tensor<70x95xi32>
    %x1_a = stablehlo.multiply %x1_i, %x1_f : tensor<70x95xi32>
    %x1_b = stablehlo.add %x1_a, %x1_j : tensor<70x95xi32>
    %x1_c = stablehlo.multiply %x1_b, %x1_b : tensor<70x95xi32>
    %x1_d = stablehlo.remainder %x1_c, %x1_m : tensor<70x95xi32>
    %x1 = stablehlo.convert %x1_d : (tensor<70x95xi32>) -> tensor<70x95xbf16>
    %y1_i = stablehlo.iota dim = 1 : tensor<95x65xi32>
    %y1_j = stablehlo.iota dim = 0 : tensor<95x65xi32>
    %y1_f = stablehlo.constant dense<6> : tensor<95x65xi32>
    %y1_m = stablehlo.constant dense<13> : tensor<95x65xi32>
    %y1_a = stablehlo.multiply %y1_i, %y1_f : tensor<95x65xi32>
    %y1_b = stablehlo.add %y1_a, %y1_j : tensor<95x65xi32>
    %y1_c = stablehlo.multiply %y1_b, %y1_b : tensor<95x65xi32>
    %y1_d = stablehlo.remainder %y1_c, %y1_m : tensor<95x65xi32>
    %y1 = stablehlo.convert %y1_d : (tensor<95x65xi32>) -> tensor<95x65xbf16>
    %r1 = stablehlo.dot_general %x1, %y1, contracting_dims = [1] x [0] : (tensor<70x95xbf16>, tensor<95x65xbf16>) -> tensor<70x65xf32>
    %x2_i = stablehlo.iota dim = 1 : tensor<96x112xi32>
    %x2_j = stablehlo.iota dim = 0 : tensor<96x112xi32>
    %x2_f = stablehlo.constant dense<5> : tensor<96x112xi32>
    %x2_m = stablehlo.constant dense<13> : tensor<96x112xi32>
    %x2_a = stablehlo.multiply %x2_i, %x2_f : tensor<96x112xi32>
    %x2_b = stablehlo.add %x2_a, %x2_j : tensor<96x112xi32>
    %x2_c = stablehlo.multiply %x2_b, %x2_b : tensor<96x112xi32>
    %x2_d = stablehlo.remainder %x2_c, %x2_m : tensor<96x112xi32>
    %x2 = stablehlo.convert %x2_d : (tensor<96x112xi32>) -> tensor<96x112xf16>
    %y2_i = stablehlo.iota dim = 1 : tensor<112x80xi32>
    %y2_j = stablehlo.iota dim = 0 : tensor<112x80xi32>
    %y2_f = stablehlo.constant dense<7> : tensor<112x80xi32>
    %y2_m = stablehlo.constant dense<13> : tensor<112x80xi32>
    %y2_a = stablehlo.multiply %y2_i, %y2_f : tensor<112x80xi32>
    %y2_b = stablehlo.add %y2_a, %y2_j : tensor<112x80xi32>
    %y2_c = stablehlo.multiply %y2_b, %y2_b : tensor<112x80xi32>
    %y2_d = stablehlo.remainder %y2_c, %y2_m : tensor<112x80xi32>
    %y2 = stablehlo.convert %y2_d : (tensor<112x80xi32>) -> tensor<112x80xf16>
    %r2 = stablehlo.dot_general %x2, %y2, contracting_dims = [1] x [0] : (tensor<96x112xf16>, tensor<112x80xf16>) -> tensor<96x80xf16>
    %x3_i = stablehlo.iota dim = 1 : tensor<70x95xi32>
    %x3_j = stablehlo.iota dim = 0 : tensor<70x95xi32>
    %x3_f = stablehlo.constant dense<6> : tensor<70x95xi32>
    %x3_m = stablehlo.constant dense<13> : tensor<70x95xi32>
    %x3_a = stablehlo.multiply %x3_i, %x3_f : tensor<70x95xi32>
    %x3_b = stablehlo.add %x3_a, %x3_j : tensor<70x95xi32>
    %x3_c = stablehlo.multiply %x3_b, %x3_b : tensor<70x95xi32>
    %x3_d = stablehlo.remainder %x3_c, %x3_m : tensor<70x95xi32>
    %x3 = stablehlo.convert %x3_d : (tensor<70x95xi32>) -> tensor<70x95xf16>
    %y3_i = stablehlo.iota dim = 1 : tensor<95x65xi32>
    %y3_j = stablehlo.iota dim = 0 : tensor<95x65xi32>
    %y3_f = stablehlo.constant dense<8> : tensor<95x65xi32>
    %y3_m = stablehlo.constant dense<13> : tensor<95x65xi32>
    %y3_a = stablehlo.multiply %y3_i, %y3_f : tensor<95x65xi32>
    %y3_b = stablehlo.add %y3_a, %y3_j : tensor<95x65xi32>
    %y3_c = stablehlo.multiply %y3_b, %y3_b : tensor<95x65xi32>
    %y3_d = stablehlo.remainder %y3_c, %y3_m : tensor<95x65xi32>
    %y3 = stablehlo.convert %y3_d : (tensor<95x65xi32>) -> tensor<95x65xf16>
    %r3 = stablehlo.dot_general %x3, %y3, contracting_dims = [1] x [0] : (tensor<70x95xf16>, tensor<95x65xf16>) -> tensor<70x65xf32>
    %x4_i = stablehlo.iota dim = 1 : tensor<96x112xi32>
    %x4_j = stablehlo.iota dim = 0 : tensor<96x112xi32>
    %x4_f = stablehlo.constant dense<7> : tensor<96x112xi32>
    %x4_m = stablehlo.constant dense<13> : tensor<96x112xi32>
    %x4_a = stablehlo.multiply %x4_i, %x4_f : tensor<96x112xi32>
    %x4_b = stablehlo.add %x4_a, %x4_j : tensor<96x112xi32>
    %x4_c = stablehlo.multiply %x4_b, %x4_b : tensor<96x112xi32>
    %x4_d = stablehlo.remainder %x4_c, %x4_m : tensor<96x112xi32>
    %x4 = stablehlo.convert %x4_d : (tensor<96x112xi32>) -> tensor<96x112xi8>
    %y4_i = stablehlo.iota dim = 1 : tensor<112x80xi32>
    %y4_j = stablehlo.iota dim = 0 : tensor<112x80xi32>
    %y4_f = stablehlo.constant dense<9> : tensor<112x80xi32>
    %y4_m = stablehlo.constant dense<13> : tensor<112x80xi32>
    %y4_a = stablehlo.multiply %y4_i, %y4_f : tensor<112x80xi32>
    %y4_b = stablehlo.add %y4_a, %y4_j : tensor<112x80xi32>
    %y4_c = stablehlo.multiply %y4_b, %y4_b : tensor<112x80xi32>
    %y4_d = stablehlo.remainder %y4_c, %y4_m : tensor<112x80xi32>
    %y4 = stablehlo.convert %y4_d : (tensor<112x80xi32>) -> tensor<112x80xi8>
    %r4 = stablehlo.dot_general %x4, %y4, contracting_dims = [1] x [0] : (tensor<96x112xi8>, tensor<112x80xi8>) -> tensor<96x80xi32>
    %x5_i = stablehlo.iota dim = 1 : tensor<96x112xi32>
    %x5_j = stablehlo.iota dim = 0 : tensor<96x112xi32>
    %x5_f = stablehlo.constant dense<8> : tensor<96x112xi32>
    %x5_m = stablehlo.constant dense<13> : tensor<96x112xi32>
    %x5_a = stablehlo.multiply %x5_i, %x5_f : tensor<96x112xi32>
    %x5_b = stablehlo.add %x5_a, %x5_j : tensor<96x112xi32>
    %x5_c = stablehlo.multiply %x5_b, %x5_b : tensor<96x112xi32>
    %x5_d = stablehlo.remainder %x5_c, %x5_m : tensor<96x112xi32>
    %x5 = stablehlo.convert %x5_d : (tensor<96x112xi32>) -> tensor<96x112xui8>
    %y5_i = stablehlo.iota dim = 1 : tensor<112x80xi32>
    %y5_j = stablehlo.iota dim = 0 : tensor<112x80xi32>
    %y5_f = stablehlo.constant dense<10> : tensor<112x80xi32>
    %y5_m = stablehlo.constant dense<13> : tensor<112x80xi32>
    %y5_a = stablehlo.multiply %y5_i, %y5_f : tensor<112x80xi32>
    %y5_b = stablehlo.add %y5_a, %y5_j : tensor<112x80xi32>
    %y5_c = stablehlo.multiply %y5_b, %y5_b : tensor<112x80xi32>
    %y5_d = stablehlo.remainder %y5_c, %y5_m : tensor<112x80xi32>
    %y5 = stablehlo.convert %y5_d : (tensor<112x80xi32>) -> tensor<112x80xui8>
    %r5 = stablehlo.dot_general %x5, %y5, contracting_dims = [1] x [0] : (tensor<96x112xui8>, tensor<112x80xui8>) -> tensor<96x80xui32>
    %x6_i = stablehlo.iota dim = 3 : tensor<2x12x12x16xi32>
    %x6_j = stablehlo.iota dim = 2 : tensor<2x12x12x16xi32>
    %x6_f = stablehlo.constant dense<3> : tensor<2x12x12x16xi32>
    %x6_m = stablehlo.constant dense<13> : tensor<2x12x12x16xi32>
    %x6_a = stablehlo.multiply %x6_i, %x6_f : tensor<2x12x12x16xi32>
    %x6_b = stablehlo.add %x6_a, %x6_j : tensor<2x12x12x16xi32>
    %x6_c = stablehlo.multiply %x6_b, %x6_b : tensor<2x12x12x16xi32>
    %x6_d = stablehlo.remainder %x6_c, %x6_m : tensor<2x12x12x16xi32>
    %x6 = stablehlo.convert %x6_d : (tensor<2x12x12x16xi32>) -> tensor<2x12x12x16xbf16>
    %y6_i = stablehlo.iota dim = 3 : tensor<3x3x16x32xi32>
    %y6_j = stablehlo.iota dim = 2 : tensor<3x3x16x32xi32>
    %y6_f = stablehlo.constant dense<7> : tensor<3x3x16x32xi32>
    %y6_m = stablehlo.constant dense<13> : tensor<3x3x16x32xi32>
    %y6_a = stablehlo.multiply %y6_i, %y6_f : tensor<3x3x16x32xi32>
    %y6_b = stablehlo.add %y6_a, %y6_j : tensor<3x3x16x32xi32>
    %y6_c = stablehlo.multiply %y6_b, %y6_b : tensor<3x3x16x32xi32>
    %y6_d = stablehlo.remainder %y6_c, %y6_m : tensor<3x3x16x32xi32>
    %y6 = stablehlo.convert %y6_d : (tensor<3x3x16x32xi32>) -> tensor<3x3x16x32xbf16>
    %r6 = stablehlo.convolution(%x6, %y6) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x12x12x16xbf16>, tensor<3x3x16x32xbf16>) -> tensor<2x12x12x32xbf16>
    %x7_i = stablehlo.iota dim = 3 : tensor<2x12x12x16xi32>
    %x7_j = stablehlo.iota dim = 2 : tensor<2x12x12x16xi32>
    %x7_f = stablehlo.constant dense<3> : tensor<2x12x12x16xi32>
    %x7_m = stablehlo.constant dense<13> : tensor<2x12x12x16xi32>
    %x7_a = stablehlo.multiply %x7_i, %x7_f : tensor<2x12x12x16xi32>
    %x7_b = stablehlo.add %x7_a, %x7_j : tensor<2x12x12x16xi32>
    %x7_c = stablehlo.multiply %x7_b, %x7_b : tensor<2x12x12x16xi32>
    %x7_d = stablehlo.remainder %x7_c, %x7_m : tensor<2x12x12x16xi32>
    %x7 = stablehlo.convert %x7_d : (tensor<2x12x12x16xi32>) -> tensor<2x12x12x16xf16>
    %y7_i = stablehlo.iota dim = 3 : tensor<3x3x16x32xi32>
    %y7_j = stablehlo.iota dim = 2 : tensor<3x3x16x32xi32>
    %y7_f = stablehlo.constant dense<7> : tensor<3x3x16x32xi32>
    %y7_m = stablehlo.constant dense<13> : tensor<3x3x16x32xi32>
    %y7_a = stablehlo.multiply %y7_i, %y7_f : tensor<3x3x16x32xi32>
    %y7_b = stablehlo.add %y7_a, %y7_j : tensor<3x3x16x32xi32>
    %y7_c = stablehlo.multiply %y7_b, %y7_b : tensor<3x3x16x32xi32>
    %y7_d = stablehlo.remainder %y7_c, %y7_m : tensor<3x3x16x32xi32>
    %y7 = stablehlo.convert %y7_d : (tensor<3x3x16x32xi32>) -> tensor<3x3x16x32xf16>
    %r7 = stablehlo.convolution(%x7, %y7) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x12x12x16xf16>, tensor<3x3x16x32xf16>) -> tensor<2x12x12x32xf16>
    return %r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7 : tensor<96x80xbf16>, tensor<70x65xf32>, tensor<96x80xf16>, tensor<70x65xf32>, tensor<96x80xi32>, tensor<96x80xui32>, tensor<2x12x12x32xbf16>, tensor<2x12x12x32xf16>
  }
}
