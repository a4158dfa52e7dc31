#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job: installs what is missing, builds, runs the real programs of tests/programs on every
# device there is, compares each with the results of jaxlib's CPU, and prints the table. Then, on each
# device, trains the digits classifier with checkpoints, kills the training half-way and resumes it.
# Arguments go to both `hekla demo` and `hekla train-demo`, so they must be such that both know:
# --device, --client-option, --timeout, --json.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/install.sh
cmake --preset default >/dev/null
cmake --build --preset default -j "$(nproc)"
status=0
build/bin/hekla demo tests/programs "$@" || status=$?
build/bin/hekla train-demo tests/programs/digits_train_step "$@" || status=$?
exit "$status"
