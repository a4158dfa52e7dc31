// Products of f32, and a convolution, that ask for each algorithm that matrix units may form by pieces, of numbers from -2 to 2 with all digits that the program makes.
module {
  func.func public @main() -> (tensor<96x80xbf16>, tensor<70x65xf32>, tensor<70x65xf32>, tensor<64x48xf32>, tensor<96x80xf32>, tensor<70x65xf32>, tensor<2x12x12x32xf32>) {
    %x0_i = stablehlo.iota dim = 1 : tensor<96x112xi32>
    %x0_j = stablehlo.iota dim = 0 : tensor<96x112xi32>
    %x0_f = stablehlo.constant dense<3> : tensor<96x112xi32>
    %x0_m = stablehlo.constant dense<16777213> : tensor<96x112xi32>
    %x0_s = stablehlo.constant dense<7919> : tensor<96x112xi32>
    %x0_a = stablehlo.multiply %x0_i, %x0_f : tensor<96x112xi32>
    %x0_b = stablehlo.add %x0_a, %x0_j : tensor<96x112xi32>
    %x0_c = stablehlo.multiply %x0_b, %x0_s : tensor<96x112xi32>
    %x0_e = stablehlo.multiply %x0_c, %x0_b : tensor<96x112xi32>
    %x0_d = stablehlo.remainder %x0_e, %x0_m : tensor<96x112xi32>
    %x0_n = stablehlo.convert %x0_d : (tensor<96x112xi32>) -> tensor<96x112xf32>
    %x0_k = stablehlo.constant dense<1.192093e-07> : tensor<96x112xf32>
    %x0 = stablehlo.multiply %x0_n, %x0_k : tensor<96x112xf32>
    %y0_i = stablehlo.iota dim = 1 : tensor<112x80xi32>
    %y0_j = stablehlo.iota dim = 0 : tensor<112x80xi32>
    %y0_f = stablehlo.constant dense<5> : tensor<112x80xi32>
    %y0_m = stablehlo.constant dense<16777213> : tensor<112x80xi32>
    %y0_s = stablehlo.constant dense<7919> : tensor<112x80xi32>
    %y0_a = stablehlo.multiply %y0_i, %y0_f : tensor<112x80xi32>
    %y0_b = stablehlo.add %y0_a, %y0_j : tensor<112x80xi32>
    %y0_c = stablehlo.multiply %y0_b, %y0_s : tensor<112x80xi32>
    %y0_e = stablehlo.multiply %y0_c, %y0_b : tensor<112x80xi32>
    %y0_d = stablehlo.remainder %y0_e, %y0_m : tensor<112x80xi32>
    %y0_n = stablehlo.convert %y0_d : (tensor<112x80xi32>) -> tensor<112x80xf32>
    %y0_k = stablehlo.constant dense<2.384186e-07> : tensor<112x80xf32>
    %y0 = stablehlo.multiply %y0_n, %y0_k : tensor<112x80xf32>
    %r0 = stablehlo.dot_general %x0, %y0, contracting_dims = [1] x [0], precision = [HIGH, HIGH] : (tensor<96x112xf32>, tensor<112x80xf32>) -> tensor<96x80xf32>
    %x1_i = stablehlo.iota dim = 1 : tensor<70x95xi32>
    %x1_j = stablehlo.iota dim = 0 : tensor<70x95xi32>
    %x1_f = stablehlo.constant dense<4> : tensor<70x95xi32>
    %x1_m = stablehlo.constant dense<16777213> : tensor<70x95xi32>
    %x1_s = stablehlo.constant dense<7919> : tensor<70x95xi32>
    %x1_a = stablehlo.multiply %x1_i, %x1_f : tensor<70x95xi32>
    %x1_b = stablehlo.add %x1_a, %x1_j : tensor<70x95xi32>
    %x1_c = stablehlo.multiply %x1_b, %x1_s : tensor<70x95xi32>
    %x1_e = stablehlo.multiply %x1_c, %x1_b : tensor<70x95xi32>
    %x1_d = stablehlo.remainder %x1_e, %x1_m : tensor<70x95xi32>
    %x1_n = stablehlo.convert %x1_d : (tensor<70x95xi32>) -> tensor<70x95xf32>
    %x1_k = stablehlo.constant dense<1.192093e-07> : tensor<70x95xf32>
    %x1 = stablehlo.multiply %x1_n, %x1_k : tensor<70x95xf32>
    %y1_i = stablehlo.iota dim = 1 : tensor<95x65xi32>
    %y1_j = stablehlo.iota dim = 0 : tensor<95x65xi32>
    %y1_f = stablehlo.constant dense<6> : tensor<95x65xi32>
    %y1_m = stablehlo.constant dense<16777213> : tensor<95x65xi32>
    %y1_s = stablehlo.constant dense<7919> : tensor<95x65xi32>
    %y1_a = stablehlo.multiply %y1_i, %y1_f : tensor<95x65xi32>
    %y1_b = stablehlo.add %y1_a, %y1_j : tensor<95x65xi32>
    %y1_c = stablehlo.multiply %y1_b, %y1_s : tensor<95x65xi32>
    %y1_e = stablehlo.multiply %y1_c, %y1_b : tensor<95x65xi32>
    %y1_d = stablehlo.remainder %y1_e, %y1_m : tensor<95x65xi32>
    %y1_n = stablehlo.convert %y1_d : (tensor<95x65xi32>) -> tensor<95x65xf32>
    %y1_k = stablehlo.constant dense<2.384186e-07> : tensor<95x65xf32>
    %y1 = stablehlo.multiply %y1_n, %y1_k : tensor<95x65xf32>
    %r1 = stablehlo.dot_general %x1, %y1, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 3, allow_imprecise_accumulation = false> : (tensor<70x95xf32>, tensor<95x65xf32>) -> tensor<70x65xf32>
    %x2_i = stablehlo.iota dim = 1 : tensor<70x95xi32>
    %x2_j = stablehlo.iota dim = 0 : tensor<70x95xi32>
    %x2_f = stablehlo.constant dense<5> : tensor<70x95xi32>
    %x2_m = stablehlo.constant dense<16777213> : tensor<70x95xi32>
    %x2_s = stablehlo.constant dense<7919> : tensor<70x95xi32>
    %x2_a = stablehlo.multiply %x2_i, %x2_f : tensor<70x95xi32>
    %x2_b = stablehlo.add %x2_a, %x2_j : tensor<70x95xi32>
    %x2_c = stablehlo.multiply %x2_b, %x2_s : tensor<70x95xi32>
    %x2_e = stablehlo.multiply %x2_c, %x2_b : tensor<70x95xi32>
    %x2_d = stablehlo.remainder %x2_e, %x2_m : tensor<70x95xi32>
    %x2_n = stablehlo.convert %x2_d : (tensor<70x95xi32>) -> tensor<70x95xf32>
    %x2_k = stablehlo.constant dense<1.192093e-07> : tensor<70x95xf32>
    %x2 = stablehlo.multiply %x2_n, %x2_k : tensor<70x95xf32>
    %y2_i = stablehlo.iota dim = 1 : tensor<95x65xi32>
    %y2_j = stablehlo.iota dim = 0 : tensor<95x65xi32>
    %y2_f = stablehlo.constant dense<7> : tensor<95x65xi32>
    %y2_m = stablehlo.constant dense<16777213> : tensor<95x65xi32>
    %y2_s = stablehlo.constant dense<7919> : tensor<95x65xi32>
    %y2_a = stablehlo.multiply %y2_i, %y2_f : tensor<95x65xi32>
    %y2_b = stablehlo.add %y2_a, %y2_j : tensor<95x65xi32>
    %y2_c = stablehlo.multiply %y2_b, %y2_s : tensor<95x65xi32>
    %y2_e = stablehlo.multiply %y2_c, %y2_b : tensor<95x65xi32>
    %y2_d = stablehlo.remainder %y2_e, %y2_m : tensor<95x65xi32>
    %y2_n = stablehlo.convert %y2_d : (tensor<95x65xi32>) -> tensor<95x65xf32>
    %y2_k = stablehlo.constant dense<2.384186e-07> : tensor<95x65xf32>
    %y2 = stablehlo.multiply %y2_n, %y2_k : tensor<95x65xf32>
    %r2 = stablehlo.dot_general %x2, %y2, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 6, allow_imprecise_accumulation = false> : (tensor<70x95xf32>, tensor<95x65xf32>) -> tensor<70x65xf32>
    %x3_i = stablehlo.iota dim = 1 : tensor<64x72xi32>
    %x3_j = stablehlo.iota dim = 0 : tensor<64x72xi32>
    %x3_f = stablehlo.constant dense<6> : tensor<64x72xi32>
    %x3_m = stablehlo.constant dense<16777213> : tensor<64x72xi32>
    %x3_s = stablehlo.constant dense<7919> : tensor<64x72xi32>
    %x3_a = stablehlo.multiply %x3_i, %x3_f : tensor<64x72xi32>
    %x3_b = stablehlo.add %x3_a, %x3_j : tensor<64x72xi32>
    %x3_c = stablehlo.multiply %x3_b, %x3_s : tensor<64x72xi32>
    %x3_e = stablehlo.multiply %x3_c, %x3_b : tensor<64x72xi32>
    %x3_d = stablehlo.remainder %x3_e, %x3_m : tensor<64x72xi32>
    %x3_n = stablehlo.convert %x3_d : (tensor<64x72xi32>) -> tensor<64x72xf32>
    %x3_k = stablehlo.constant dense<1.192093e-07> : tensor<64x72xf32>
    %x3 = stablehlo.multiply %x3_n, %x3_k : tensor<64x72xf32>
    %y3_i = stablehlo.iota dim = 1 : tensor<72x48xi32>
    %y3_j = stablehlo.iota dim = 0 : tensor<72x48xi32>
    %y3_f = stablehlo.constant dense<8> : tensor<72x48xi32>
    %y3_m = stablehlo.constant dense<16777213> : tensor<72x48xi32>
    %y3_s = stablehlo.constant dense<7919> : tensor<72x48xi32>
    %y3_a = stablehlo.multiply %y3_i, %y3_f : tensor<72x48xi32>
    %y3_b = stablehlo.add %y3_a, %y3_j : tensor<72x48xi32>
    %y3_c = stablehlo.multiply %y3_b, %y3_s : tensor<72x48xi32>
    %y3_e = stablehlo.multiply %y3_c, %y3_b : tensor<72x48xi32>
    %y3_d = stablehlo.remainder %y3_e, %y3_m : tensor<72x48xi32>
    %y3_n = stablehlo.convert %y3_d : (tensor<72x48xi32>) -> tensor<72x48xf32>
    %y3_k = stablehlo.constant dense<2.384186e-07> : tensor<72x48xf32>
    %y3 = stablehlo.multiply %y3_n, %y3_k : tensor<72x48xf32>
    %r3 = stablehlo.dot_general %x3, %y3, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 9, allow_imprecise_accumulation = false> : (tensor<64x72xf32>, tensor<72x48xf32>) -> tensor<64x48xf32>
    %x4_i = stablehlo.iota dim = 1 : tensor<96x112xi32>
    %x4_j = stablehlo.iota dim = 0 : tensor<96x112xi32>
    %x4_f = stablehlo.constant dense<7> : tensor<96x112xi32>
    %x4_m = stablehlo.constant dense<16777213> : tensor<96x112xi32>
    %x4_s = stablehlo.constant dense<7919> : tensor<96x112xi32>
    %x4_a = stablehlo.multiply %x4_i, %x4_f : tensor<96x112xi32>
    %x4_b = stablehlo.add %x4_a, %x4_j : tensor<96x112xi32>
    %x4_c = stablehlo.multiply %x4_b, %x4_s : tensor<96x112xi32>
    %x4_e = stablehlo.multiply %x4_c, %x4_b : tensor<96x112xi32>
    %x4_d = stablehlo.remainder %x4_e, %x4_m : tensor<96x112xi32>
    %x4_n = stablehlo.convert %x4_d : (tensor<96x112xi32>) -> tensor<96x112xf32>
    %x4_k = stablehlo.constant dense<1.192093e-07> : tensor<96x112xf32>
    %x4 = stablehlo.multiply %x4_n, %x4_k : tensor<96x112xf32>
    %y4_i = stablehlo.iota dim = 1 : tensor<112x80xi32>
    %y4_j = stablehlo.iota dim = 0 : tensor<112x80xi32>
    %y4_f = stablehlo.constant dense<9> : tensor<112x80xi32>
    %y4_m = stablehlo.constant dense<16777213> : tensor<112x80xi32>
    %y4_s = stablehlo.constant dense<7919> : tensor<112x80xi32>
    %y4_a = stablehlo.multiply %y4_i, %y4_f : tensor<112x80xi32>
    %y4_b = stablehlo.add %y4_a, %y4_j : tensor<112x80xi32>
    %y4_c = stablehlo.multiply %y4_b, %y4_s : tensor<112x80xi32>
    %y4_e = stablehlo.multiply %y4_c, %y4_b : tensor<112x80xi32>
    %y4_d = stablehlo.remainder %y4_e, %y4_m : tensor<112x80xi32>
    %y4_n = stablehlo.convert %y4_d : (tensor<112x80xi32>) -> tensor<112x80xf32>
    %y4_k = stablehlo.constant dense<2.384186e-07> : tensor<112x80xf32>
    %y4 = stablehlo.multiply %y4_n, %y4_k : tensor<112x80xf32>
    %r4 = stablehlo.dot_general %x4, %y4, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 3, allow_imprecise_accumulation = false> : (tensor<96x112xf32>, tensor<112x80xf32>) -> tensor<96x80xf32>
    %x5_i = stablehlo.iota dim = 1 : tensor<70x95xi32>
    %x5_j = stablehlo.iota dim = 0 : tensor<70x95xi32>
    %x5_f = stablehlo.constant dense<8> : tensor<70x95xi32>
    %x5_m = stablehlo.constant dense<16777213> : tensor<70x95xi32>
    %x5_s = stablehlo.constant dense<7919> : tensor<70x95xi32>
    %x5_a = stablehlo.multiply %x5_i, %x5_f : tensor<70x95xi32>
    %x5_b = stablehlo.add %x5_a, %x5_j : tensor<70x95xi32>
    %x5_c = stablehlo.multiply %x5_b, %x5_s : tensor<70x95xi32>
    %x5_e = stablehlo.multiply %x5_c, %x5_b : tensor<70x95xi32>
    %x5_d = stablehlo.remainder %x5_e, %x5_m : tensor<70x95xi32>
    %x5_n = stablehlo.convert %x5_d : (tensor<70x95xi32>) -> tensor<70x95xf32>
    %x5_k = stablehlo.constant dense<1.192093e-07> : tensor<70x95xf32>
    %x5 = stablehlo.multiply %x5_n, %x5_k : tensor<70x95xf32>
    %y5_i = stablehlo.iota dim = 1 : tensor<95x65xi32>
    %y5_j = stablehlo.iota dim = 0 : tensor<95x65xi32>
    %y5_f = stablehlo.constant dense<10> : tensor<95x65xi32>
    %y5_m = stablehlo.constant dense<16777213> : tensor<95x65xi32>
    %y5_s = stablehlo.constant dense<7919> : tensor<95x65xi32>
    %y5_a = stablehlo.multiply %y5_i, %y5_f : tensor<95x65xi32>
    %y5_b = stablehlo.add %y5_a, %y5_j : tensor<95x65xi32>
    %y5_c = stablehlo.multiply %y5_b, %y5_s : tensor<95x65xi32>
    %y5_e = stablehlo.multiply %y5_c, %y5_b : tensor<95x65xi32>
    %y5_d = stablehlo.remainder %y5_e, %y5_m : tensor<95x65xi32>
    %y5_n = stablehlo.convert %y5_d : (tensor<95x65xi32>) -> tensor<95x65xf32>
    %y5_k = stablehlo.constant dense<2.384186e-07> : tensor<95x65xf32>
    %y5 = stablehlo.multiply %y5_n, %y5_k : tensor<95x65xf32>
    %r5 = stablehlo.dot_general %x5, %y5, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<70x95xf32>, tensor<95x65xf32>) -> tensor<70x65xf32>
    %p_i = stablehlo.iota dim = 1 : tensor<288x16xi32>
    %p_j = stablehlo.iota dim = 0 : tensor<288x16xi32>
    %p_f = stablehlo.constant dense<11> : tensor<288x16xi32>
    %p_m = stablehlo.constant dense<16777213> : tensor<288x16xi32>
    %p_s = stablehlo.constant dense<7919> : tensor<288x16xi32>
    %p_a = stablehlo.multiply %p_i, %p_f : tensor<288x16xi32>
    %p_b = stablehlo.add %p_a, %p_j : tensor<288x16xi32>
    %p_c = stablehlo.multiply %p_b, %p_s : tensor<288x16xi32>
    %p_e = stablehlo.multiply %p_c, %p_b : tensor<288x16xi32>
    %p_d = stablehlo.remainder %p_e, %p_m : tensor<288x16xi32>
    %p_n = stablehlo.convert %p_d : (tensor<288x16xi32>) -> tensor<288x16xf32>
    %p_k = stablehlo.constant dense<1.192093e-07> : tensor<288x16xf32>
    %p = stablehlo.multiply %p_n, %p_k : tensor<288x16xf32>
    %q_i = stablehlo.iota dim = 1 : tensor<144x32xi32>
    %q_j = stablehlo.iota dim = 0 : tensor<144x32xi32>
    %q_f = stablehlo.constant dense<13> : tensor<144x32xi32>
    %q_m = stablehlo.constant dense<16777213> : tensor<144x32xi32>
    %q_s = stablehlo.constant dense<7919> : tensor<144x32xi32>
    %q_a = stablehlo.multiply %q_i, %q_f : tensor<144x32xi32>
    %q_b = stablehlo.add %q_a, %q_j : tensor<144x32xi32>
    %q_c = stablehlo.multiply %q_b, %q_s : tensor<144x32xi32>
    %q_e = stablehlo.multiply %q_c, %q_b : tensor<144x32xi32>
    %q_d = stablehlo.remainder %q_e, %q_m : tensor<144x32xi32>
    %q_n = stablehlo.convert %q_d : (tensor<144x32xi32>) -> tensor<144x32xf32>
    %q_k = stablehlo.constant dense<1.192093e-07> : tensor<144x32xf32>
    %q = stablehlo.multiply %q_n, %q_k : tensor<144x32xf32>
    %image = stablehlo.reshape %p : (tensor<288x16xf32>) -> tensor<2x12x12x16xf32>
    %window = stablehlo.reshape %q : (tensor<144x32xf32>) -> tensor<3x3x16x32xf32>
    %c = stablehlo.convolution(%image, %window) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision HIGH>, #stablehlo<precision HIGH>]} : (tensor<2x12x12x16xf32>, tensor<3x3x16x32xf32>) -> tensor<2x12x12x32xf32>
    %n = stablehlo.convert %r0 : (tensor<96x80xf32>) -> tensor<96x80xbf16>
    return %n, %r1, %r2, %r3, %r4, %r5, %c : tensor<96x80xbf16>, tensor<70x65xf32>, tensor<70x65xf32>, tensor<64x48xf32>, tensor<96x80xf32>, tensor<70x65xf32>, tensor<2x12x12x32xf32>
  }
}
