#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows a quickstart of docs/ to the letter: makes its files, runs its commands, compares what is printed.

A comment in front of a fenced block says what the block is:
  <!-- new: FILE -->                 the contents of a file
  <!-- new: FILE, as SOURCE -->      the same, and they are those of SOURCE in the checkout
  <!-- run -->                       commands in the folder of the files, in the form of follow.py
  <!-- run in the checkout -->       commands in the checkout
  <!-- build -->                     likewise; left out with --without build, where there is no compiler
  <!-- install -->                   like run; left out with --without install, where --venv has it all
Every fenced block has such a comment: there is none that nobody runs. The folder of the files has
`dist` and `tools` of the checkout.

Exit status: 0 as the page says, 1 something else.
"""
import argparse
import os
import pathlib
import re
import sys
import tempfile

from follow import Departure, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"<!-- (new|run|build|install)((?:: | in )[^>]*)? -->\n```\w*\n(.*?)```", re.S)


def follow(page: pathlib.Path, folder: pathlib.Path, environment: dict, without=()) -> None:
    """Raises Departure, which says what is not as the page has it."""
    text = page.read_text()
    blocks = BLOCK.findall(text)
    if not blocks or 2 * len(blocks) != len(re.findall("^```", text, re.M)):
        raise Departure(f"{page.name}: a block is not marked")
    for name in ("dist", "tools"):
        (folder / name).symlink_to(ROOT / name)
    for kind, rest, content in blocks:
        if kind == "new":
            name, _, source = rest.removeprefix(": ").partition(", as ")
            if source and (ROOT / source).read_text() != content:
                raise Departure(f"{page.name}: {name} is not {source}")
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
        elif kind not in without:
            run(content, ROOT if rest or kind == "build" else folder, environment)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--without", action="append", default=[], choices=("build", "install"))
    parser.add_argument("--venv", type=pathlib.Path, help="`venv` of the page, as it would be installed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.venv:
            pathlib.Path(folder, "venv").symlink_to(arguments.venv.absolute())
        try:
            follow(arguments.page, pathlib.Path(folder), {**os.environ, "HOME": folder},
                   arguments.without)
        except Departure as departure:
            print(departure)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
