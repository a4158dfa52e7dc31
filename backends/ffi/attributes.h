// SPDX-License-Identifier: Apache-2.0
// The attributes of a custom call in the form of XLA's foreign functions. Internal to this folder.
//
// As XLA has them: booleans, integers and floats are scalars; dense elements and arrays of integers
// are arrays; strings are strings; dictionaries are dictionaries. Lists have no form there.
#pragma once

#include <memory>

#include "plugin_api/xla_ffi.h"
#include "runtime/base/status.h"
#include "runtime/program/ir/attribute.h"

namespace hekla::ffi {

class Attributes {
 public:
  Attributes();  // none
  Attributes(Attributes&&) noexcept;
  Attributes& operator=(Attributes&&) noexcept;
  ~Attributes();
  // UNIMPLEMENTED: an attribute that has no such form, by its name.
  static Result<Attributes> make(const ir::DictionaryValue& dictionary);
  // Valid as long as this object, moved or not. Handlers do not write there.
  const XLA_FFI_Attrs& view() const;

 private:
  struct Dictionary;
  struct Value;
  std::unique_ptr<Dictionary> dictionary_;
};

// INVALID for types that handlers cannot be given; TOKEN for kInvalid, which tokens have.
XLA_FFI_DataType to_data_type(DType dtype);

}  // namespace hekla::ffi
