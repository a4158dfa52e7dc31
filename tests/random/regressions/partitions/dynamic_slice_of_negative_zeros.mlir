// A sum of what partitions have and of zeros: an imaginary part of -0 became 0.
module {
  sdy.mesh @mesh = <["x"=4]>
  func.func public @main(%arg0: tensor<8xcomplex<f32>> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}, %arg1: tensor<i32>) -> (tensor<1xcomplex<f32>> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
    %0 = stablehlo.dynamic_slice %arg0, %arg1, sizes = [1] : (tensor<8xcomplex<f32>>, tensor<i32>) -> tensor<1xcomplex<f32>>
    return %0 : tensor<1xcomplex<f32>>
  }
  func.func private @inputs() -> (tensor<8xcomplex<f32>>, tensor<i32>) {
    %0 = stablehlo.constant dense<(-0.0, -0.0)> : tensor<8xcomplex<f32>>
    %1 = stablehlo.constant dense<3> : tensor<i32>
    return %0, %1 : tensor<8xcomplex<f32>>, tensor<i32>
  }
}
