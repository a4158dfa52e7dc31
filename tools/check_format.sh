#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails when a tracked C++ file is not formatted as .clang-format says, or lacks the licence line.
set -euo pipefail
cd "$(dirname "$0")/.."
status=0
mapfile -t files < <(git ls-files '*.h' '*.cc' '*.c')
for file in "${files[@]}"; do
  if ! head -n 1 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0'; then
    echo "$file: the first line is not the licence line"
    status=1
  fi
done
clang-format --dry-run --Werror "${files[@]}" || status=1
exit $status
