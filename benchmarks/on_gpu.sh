#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Everything that an hour with a GPU should tell: see on_gpu.py.
exec python3 "$(dirname "$0")/on_gpu.py" "$@"
