#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that includes follow the house's table: who may include whom.

The first matching row of RULES is the rule of a file; a row lists what the file may include besides
its own folder, the standard library and installed libraries. Also reports tracked files of more than
1,000 lines. Exit status 1 when something is wrong.
"""

import pathlib
import re
import subprocess
import sys

# folder -> folders it may include, besides itself. Unit tests may also include testing/.
RULES = [
    ("plugin_api/conformance/", ["plugin_api/", "runtime/base/"]),
    ("plugin_api/", []),
    ("runtime/base/", []),
    ("runtime/collectives/", ["runtime/base/", "runtime/rendezvous/"]),
    # The same for buffers of devices.
    ("runtime/process_group/device_arrays/", ["plugin_api/", "runtime/base/", "runtime/client/",
                                              "runtime/plugin/", "runtime/process_group/"]),
    # What users call collectives by: over transports, and nothing of devices or programs. The
    # table of transports of others is plugin_api's.
    ("runtime/process_group/", ["plugin_api/hekla_group_backend.h", "runtime/base/",
                                "runtime/collectives/", "runtime/rendezvous/"]),
    # What programs are: for runtime/, which builds them, and backends/, which compile them.
    ("runtime/program/", ["runtime/base/"]),
    # How processes find each other: for checkpoints, process groups and the C API.
    ("runtime/rendezvous/", ["runtime/base/"]),
    ("runtime/", ["plugin_api/", "runtime/"]),
    ("backends/compiler/", ["runtime/base/", "runtime/program/"]),
    # Functions of the user's, which the C API registers and host steps call.
    ("backends/ffi/", ["plugin_api/", "runtime/base/", "runtime/program/"]),
    ("backends/pjrt/", ["plugin_api/", "backends/compiler/", "backends/ffi/", "runtime/base/",
                        "runtime/collectives/", "runtime/program/", "runtime/rendezvous/"]),
    # Shaders are included as generated headers; the evaluator runs the host steps of every device.
    ("backends/vulkan/", ["backends/compiler/", "backends/ffi/call.h", "backends/pjrt/",
                          "backends/reference/collectives_under_way.h",
                          "backends/reference/evaluator.h", "backends/reference/gang_exchange.h",
                          "backends/reference/launch_context.h",
                          "runtime/base/", "runtime/collectives/", "runtime/program/", "shaders/"]),
    ("backends/", ["backends/compiler/", "backends/ffi/call.h", "backends/lapack/library.h",
                   "backends/pjrt/",
                   "backends/reference/collectives_under_way.h",
                   "backends/reference/evaluator.h", "backends/reference/gang_exchange.h",
                   "backends/reference/launch_context.h",
                   "runtime/base/", "runtime/collectives/", "runtime/program/"]),
    ("shaders/", []),
    ("tools/", ["runtime/", "plugin_api/", "backends/compiler/", "backends/vulkan/snapshot"]),
    ("tests/", [""]),
    ("benchmarks/", [""]),
]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
MAX_LINES = 1000


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent
    names = subprocess.run(["git", "ls-files"], cwd=root, check=True, capture_output=True,
                           text=True).stdout.split()
    problems = []
    for name in names:
        path = root / name
        if path.suffix not in {".h", ".cc", ".c", ".py", ".comp", ".glsl"} or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        lines = text.count("\n")
        if lines > MAX_LINES:
            problems.append(f"{name}: {lines} lines; split it before {MAX_LINES}")
        rule = next(((folder, allowed) for folder, allowed in RULES if name.startswith(folder)), None)
        if path.suffix not in {".h", ".cc", ".c"} or rule is None:
            continue
        folder, allowed = rule
        # A backend may include its own folder, not its sisters'.
        own = folder if folder != "backends/" else "/".join(name.split("/")[:2]) + "/"
        for include in INCLUDE.findall(text):
            if include.startswith(own) or any(include.startswith(a) for a in allowed):
                continue
            problems.append(f"{name}: may not include \"{include}\"")
    for problem in problems:
        print(problem)
    print(f"{len(names)} files looked at, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
