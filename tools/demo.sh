#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job: installs what is missing, builds, runs the real programs of tests/programs on every
# device there is, compares each with the results of jaxlib's CPU, and prints the table.
# Arguments go to `hekla demo` (see `build/bin/hekla demo --help`).
set -euo pipefail
cd "$(dirname "$0")/.."
tools/install.sh
cmake --preset default >/dev/null
cmake --build --preset default -j "$(nproc)"
exec build/bin/hekla demo tests/programs "$@"
