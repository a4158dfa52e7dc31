// SPDX-License-Identifier: Apache-2.0
// `hekla ckpt inspect` and `ls`: what a step holds, what a run holds, as text and JSON.
#pragma once

#include <regex>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/base/status.h"
#include "tools/ckpt/step_parts.h"

namespace hekla::tools {

// Tensors whose names contain a match: name, dtype, shape, spec, bytes, pieces with box, file,
// writer; counts of pieces by size; the meshes, "devices" null where they stand in order,
// "granules" where they are not known.
nlohmann::json inspect_json(const checkpoint::StepReader& step, const checkpoint::StepIndex& index,
                            const std::regex& tensors);
// The same for people. `sharding`: each tensor's boxes, and a picture of those of rank 1 and 2
// with the axes that cut them.
std::string inspect_text(const checkpoint::StepReader& step, const checkpoint::StepIndex& index,
                         const std::regex& tensors, bool sharding);

// One entry per folder that is named like a step: step, path, valid, why not, bytes, tensors,
// metrics, reason, time, age_seconds, pinned, leased (null where nobody can tell). NOT_FOUND: no
// such folder.
Result<nlohmann::json> list_json(Io& io, const std::string& root);
std::string list_text(const nlohmann::json& steps);

}  // namespace hekla::tools
