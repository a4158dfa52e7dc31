#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs Hekla's tests from a bare Debian 12 machine on: installs what is missing, builds, tests.
# The last line is "N passed, N failed"; the exit status is 0 only when nothing failed.
#
#   ./tools/test.sh              checks, unit tests, client tests, of what is long a part, others with each commit
#   ./tools/test.sh --all        all of that
#   ./tools/test.sh --quick      the quick set: checks, fast unit tests, a few client tests
#   ./tools/test.sh --sanitizers   the unit tests once more under sanitizers, and the fuzzers
#   ./tools/test.sh --only unit,python-0.10.2    some stages; --list names them
set -euo pipefail
cd "$(dirname "$0")/.."
case " $* " in
  *" --list "* | *" --help "* | *" -h "*) exec python3 tools/run_tests.py "$@" ;;
esac
tools/install.sh
exec python3 tools/run_tests.py "$@"
