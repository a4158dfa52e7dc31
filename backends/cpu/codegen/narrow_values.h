// SPDX-License-Identifier: Apache-2.0
// NarrowValues: which integers of 32 bits are computed in lanes of 8 or 16 bits, as many times as
// many at once: what is loaded as such and stored as such, or compared, on the way.
//
// A narrow value is one that its lanes hold whole, extended by its sign or by zeros, or one of
// which nobody looks at higher bits. An operation is done in narrow lanes where its arguments lie
// in them already (or are the same in all lanes) and what comes out of it goes on in them: nothing
// is made narrow by instructions of its own but what is stored. Pure; nothing fails.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/compiler/kernel/bounds.h"
#include "backends/cpu/codegen/lane_analysis.h"

namespace hekla::cpu {

class NarrowValues {
 public:
  static constexpr int kWide = 32;

  // Both must outlive this.
  NarrowValues(const kernel::Function& f, const LaneAnalysis& analysis);

  // Bits of the lanes of a varying i32: 8, 16 or kWide. Others: kWide.
  int width(kernel::Value v) const { return at(v).width; }
  // How a narrow value is extended; of comparisons in narrow lanes whether they hold their
  // arguments as signed numbers, else as unsigned ones, which compare alike.
  bool is_signed(kernel::Value v) const { return at(v).is_signed; }
  // Bits of the lanes that the i32 arguments of an instruction are taken in.
  int argument_width(kernel::Value v) const { return at(v).argument_width; }
  // The value of which a narrow one is the low bits, extended by their sign; kNoValue for others.
  kernel::Value cut_from(kernel::Value v) const {
    return at(v).width == kWide ? kernel::kNoValue : at(v).cut_from;
  }
  // The widest lanes of varying values, floats counted; 8, 16 or kWide.
  int widest() const;

 private:
  struct Facts {
    kernel::Bounds bounds;
    int width = kWide;
    int argument_width = kWide;
    bool is_signed = false;
    bool is_blocked = false;  // found not to pay
    int needed_bits = 0;      // the low bits that anybody looks at
    kernel::Value cut_from = kernel::kNoValue;
    kernel::Value only_cut = kernel::kNoValue;  // its one user, where that is a cut
  };

  const Facts& at(kernel::Value v) const { return facts_[static_cast<size_t>(v)]; }
  Facts& at(kernel::Value v) { return facts_[static_cast<size_t>(v)]; }
  const kernel::Bounds& bounds(kernel::Value v) const { return at(analysis_.resolved(v)).bounds; }
  void find_bounds(int32_t region);
  int64_t remainder_of(kernel::Value v) const;
  void add_choices(kernel::Value v, kernel::Value carried, kernel::Bounds& all) const;
  void find_cuts();
  void need(kernel::Value v, int bits);
  void find_needs(int32_t region);
  void find_widths(int32_t region);
  void find_width(kernel::Value v);
  void find_loop(kernel::Value loop);
  // The least width from `from` on in which all of these are whole, by the same sign; kWide: none.
  bool all_fit(const std::vector<kernel::Value>& values, int width, bool is_signed) const;
  int common_width(const std::vector<kernel::Value>& values, int from) const;
  // The widest of narrow arguments; kWide where one is neither narrow nor the same in all lanes.
  int argument_lanes(const kernel::Instruction& inst, size_t first) const;
  bool is_narrow_or_uniform(kernel::Value v) const;
  bool is_whole(kernel::Value v, int width) const;
  bool block_what_widens();
  bool is_narrow_use(kernel::Value user) const;
  bool is_skipped(kernel::Value v) const;

  const kernel::Function& f_;
  const LaneAnalysis& analysis_;
  std::vector<Facts> facts_;
};

}  // namespace hekla::cpu
