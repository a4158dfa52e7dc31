// SPDX-License-Identifier: Apache-2.0
// What the ranks of one machine read of a step at the same time.
//
// Each rank tells the others which bytes it is about to read; what two ranks of one machine read,
// both take through the page cache (StepReader::read), so that the disk gives it once. Pure
// functions of values.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/restore/step_reader.h"

namespace hekla::checkpoint {

// A rank's ranges, sorted and apart, as text; `machine` is what those that share a page cache have
// in common, without line breaks. Above some thousand ranges it says one for each shard.
std::string reads_text(std::string_view machine, std::span<const ShardRange> ranges);

// What `rank` reads and another rank of its machine reads too: sorted and apart. `texts` by rank;
// empty: that rank reads nothing. INTERNAL for a text that is none.
Result<std::vector<ShardRange>> shared_reads(std::span<const std::string> texts, int rank);

}  // namespace hekla::checkpoint
