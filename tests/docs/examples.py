#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the examples in docs/ are still what the tool prints; --update writes them anew.

A comment in front of a fenced block says where it comes from:
  <!-- file: docs/examples/layer.mlir -->                         the file
  <!-- hekla compile PROGRAM --emit plan -->                      what the command prints
  <!-- hekla compile PROGRAM --emit kernels | kernel 1 -->        the paragraph that begins so

Exit status: 0 as printed, 1 a block differs, 2 a command failed.
"""

import argparse
import difflib
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"<!-- (file: |hekla )(.+?) -->\n```\n(.*?)```", re.S)


def wanted(kind: str, source: str, tool: str) -> str:
    if kind == "file: ":
        return (ROOT / source).read_text()
    command, _, paragraph = source.partition(" | ")
    done = subprocess.run([tool, *command.split()], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        print(f"hekla {command}: {done.stderr.strip()}")
        sys.exit(2)
    if not paragraph:
        return done.stdout
    for text in done.stdout.split("\n\n"):
        if text.startswith(paragraph):
            return text.rstrip("\n") + "\n"
    print(f"hekla {command} prints no paragraph that begins with '{paragraph}'")
    sys.exit(2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=str(ROOT / "build" / "bin" / "hekla"))
    parser.add_argument("--update", action="store_true", help="write the blocks anew")
    arguments = parser.parse_args()
    differing = blocks = 0
    for page in sorted((ROOT / "docs").glob("*.md")):
        old = page.read_text()

        def renew(match: re.Match) -> str:
            nonlocal blocks
            blocks += 1
            text = wanted(match[1], match[2], arguments.tool)
            return f"<!-- {match[1]}{match[2]} -->\n```\n{text}```"
        new = BLOCK.sub(renew, old)
        if new == old:
            continue
        differing += 1
        if arguments.update:
            page.write_text(new)
            print(f"{page.relative_to(ROOT)}: written anew")
        else:
            sys.stdout.writelines(difflib.unified_diff(
                old.splitlines(True), new.splitlines(True), str(page.relative_to(ROOT)),
                "what is printed now"))
    print(f"{blocks} examples, {differing} pages differ")
    if blocks == 0:
        return 1
    return 1 if differing and not arguments.update else 0


if __name__ == "__main__":
    sys.exit(main())
