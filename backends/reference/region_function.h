// SPDX-License-Identifier: Apache-2.0
// RegionFunction: a region of the IR as a ScalarFunction.
//
// Regions whose operations are all elementwise run on whole blocks of elements; others run once per
// element. Borrows the plan, the interpreter and the frame for one operation.
#pragma once

#include "backends/reference/interpreter.h"
#include "backends/reference/scalar_function.h"

namespace hekla::reference {

class RegionFunction : public ScalarFunction {
 public:
  RegionFunction(const BlockPlan& plan, Interpreter& interpreter, Frame& frame);

  const std::vector<DType>& input_dtypes() const override { return input_dtypes_; }
  const std::vector<DType>& output_dtypes() const override { return output_dtypes_; }
  Status apply(int64_t count, std::span<const std::byte* const> inputs,
               std::span<std::byte* const> outputs) override;
  std::optional<BinaryBody> binary_body() const override;

 private:
  Status apply_block(int64_t count, std::span<const std::byte* const> inputs,
                     std::span<std::byte* const> outputs);
  Status apply_each(int64_t count, std::span<const std::byte* const> inputs,
                    std::span<std::byte* const> outputs);
  // A scalar from outside of the region, or a constant, as `count` elements.
  Result<HostArray> broadcast(const HostArray& scalar, int64_t count);

  const BlockPlan& plan_;
  Interpreter& interpreter_;
  Frame& frame_;
  std::vector<DType> input_dtypes_;
  std::vector<DType> output_dtypes_;
  bool runs_on_blocks_ = false;
};

// One elementwise operation on arrays of any one shape; `op` gives code and attributes.
Result<HostArray> execute_elementwise(const ir::Operation& op, std::vector<Datum>& operands);

}  // namespace hekla::reference
