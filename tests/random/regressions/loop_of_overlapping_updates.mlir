// Each iteration writes over most of what the one before has written: no point may do its iterations by itself.
module {
  func.func public @main() -> tensor<17xf32> {
    %x = stablehlo.iota dim = 0 : tensor<17xf32>
    %m = stablehlo.iota dim = 0 : tensor<9xf32>
    %y = stablehlo.negate %m : tensor<9xf32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<17xf32>
     cond {
      %n = stablehlo.constant dense<3> : tensor<i32>
      %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %u = stablehlo.dynamic_update_slice %a, %y, %i : (tensor<17xf32>, tensor<9xf32>, tensor<i32>) -> tensor<17xf32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %j, %u : tensor<i32>, tensor<17xf32>
    }
    return %r#1 : tensor<17xf32>
  }
}
