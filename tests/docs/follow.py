#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows pages of docs/ to the letter, in a copy of the sources: makes the changes that they show,
runs the commands that they name, and compares what is printed.

A comment in front of a fenced block says what the block is:
  <!-- new: FILE -->       the contents of a file to make
  <!-- change: FILE -->    a change to a file in the form of a diff: lines that begin with a space stand
                           there, once, together with those that begin with '-', which go, and get those
                           that begin with '+'; a line '@@' begins another place
  <!-- run -->             commands, each after '$ '; lines below one are what it prints, all of it, and
                           none say that it ends with status 0; '...' stands for anything
  <!-- run with JAX -->    the same; `python` is the interpreter of --jax-python

Pages on one command line share the copy, so that one can go on where another ends. The copy lies in
build/follow; objects that do not change come from ccache. Exit status: 0 as the pages say, 1 something
else, 2 a page or a call that cannot be followed.
"""

import argparse
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"<!-- (new: |change: |run(?: with JAX)?)(\S*) -->\n```\w*\n(.*?)```", re.S)


class Departure(Exception):
    """A page says something else than what is."""


def copy_sources(target: pathlib.Path) -> None:
    """All tracked files as they are in the working tree, with their times."""
    if target.exists():
        shutil.rmtree(target)
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True,
                           text=True).stdout.split("\0")
    for name in filter(None, names):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)


def change(path: pathlib.Path, diff: str) -> None:
    if not path.is_file():
        raise Departure(f"{path.name} is to be changed, but is not there")
    text = path.read_text()
    for place in re.split(r"^@@.*\n", diff, flags=re.M):
        lines = place.splitlines(keepends=True)
        if not lines:
            continue
        for line in lines:
            if line[0] not in " +-\n":
                raise Departure(f"a line of a diff begins with neither ' ', '+' nor '-': {line.rstrip()}")
        # An editor may take the space of an empty line away.
        old = "".join(line[1:] or "\n" for line in lines if line[0] in " -\n")
        new = "".join(line[1:] or "\n" for line in lines if line[0] in " +\n")
        if text.count(old) != 1:
            raise Departure(f"these lines stand {text.count(old)} times in {path.name}, not once:\n{old}")
        text = text.replace(old, new)
    path.write_text(text)


def is_as_told(told: str, printed: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in told.split("..."))
    return re.fullmatch(pattern, printed, re.S) is not None


def run(commands: str, copy: pathlib.Path, environment: dict) -> None:
    for told in re.split(r"^\$ ", commands, flags=re.M)[1:]:
        command, _, output = told.partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command = command[:-1] + more
        start = time.monotonic()
        done = subprocess.run(["bash", "-c", command], cwd=copy, env=environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        print(f"  {time.monotonic() - start:6.1f} s  $ {command}", flush=True)
        if done.returncode != 0:
            raise Departure(f"{command}\nends with status {done.returncode}:\n{done.stdout[-6000:]}")
        if output and not is_as_told(output, done.stdout):
            raise Departure(f"{command}\nprints something else:\n" + "".join(difflib.unified_diff(
                output.splitlines(True), done.stdout.splitlines(True), "the page", "printed")))


def follow(page: pathlib.Path, copy: pathlib.Path, arguments, environment: dict) -> int:
    """Follows one page; returns how many of its blocks were left out for want of JAX."""
    print(page.relative_to(ROOT), flush=True)
    blocks = left_out = 0
    for kind, name, text in BLOCK.findall(page.read_text()):
        blocks += 1
        if kind == "new: ":
            path = copy / name
            if path.exists():
                raise Departure(f"{name} is new on the page, but is there")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif kind == "change: ":
            change(copy / name, text)
        elif kind == "run" or arguments.jax_python:
            run(text, copy, environment)
        else:
            left_out += 1
    if blocks == 0:
        raise Departure("there is nothing to follow")
    return left_out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=pathlib.Path, help="in order, such as docs/adding_an_op.md")
    parser.add_argument("--jax-python", type=pathlib.Path, metavar="PATH",
                        help="an interpreter with JAX; unset: blocks that need it are left out")
    parser.add_argument("--keep", action="store_true", help="leave the copy when all is as told")
    arguments = parser.parse_args()
    pages = [page.resolve() for page in arguments.pages]
    for page in pages:
        if not page.is_file() or ROOT not in page.parents:
            parser.error(f"{page} is no page of this project")
    copy = ROOT / "build" / "follow" / pages[0].stem
    copy_sources(copy)
    environment = dict(os.environ)
    if arguments.jax_python:
        folder = pathlib.Path(os.path.abspath(arguments.jax_python)).parent
        environment["PATH"] = f"{folder}{os.pathsep}{environment['PATH']}"
    left_out = 0
    try:
        for page in pages:
            left_out += follow(page, copy, arguments, environment)
    except Departure as departure:
        print(f"{departure}\n(the copy: {copy.relative_to(ROOT)})")
        return 1
    print(f"{len(pages)} pages, as they say; {left_out} blocks left out, which need JAX")
    if not arguments.keep:
        shutil.rmtree(copy)
    return 0


if __name__ == "__main__":
    sys.exit(main())
