#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the bytes that a device sends in partitioned programs with XLA's.

FOLDER holds programs over several partitions as NAME.mlirbc and what XLA made of each as NAME.json:
num_partitions, xla_bytes, xla_bytes_if_reduce_scatter (as if its all-reduces that are sliced were
reduce-scatters) and gspmd.bytes_if_reduce_scatter. Nothing runs: bytes are counted in the program
of one device, `hekla compile --emit collectives`. The goal of a program is the smaller of the two
figures with reduce-scatter; the last line counts the programs that reach theirs.
"""

import argparse
import json
import pathlib
import subprocess
import sys

HEKLA = pathlib.Path(__file__).resolve().parent.parent / "build" / "bin" / "hekla"


def our_report(hekla: pathlib.Path, program: pathlib.Path, devices: int):
    """The report, or the first line of what is wrong."""
    done = subprocess.run([hekla, "compile", program, "--emit", "collectives", "--json", "--devices",
                           str(devices)], capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip().split("\n")[0]
    return json.loads(done.stdout), ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--hekla", type=pathlib.Path, default=HEKLA)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    args = parser.parse_args()
    rows = []
    for known in sorted(args.folder.glob("*.json")):
        program = known.with_suffix(".mlirbc")
        truth = json.loads(known.read_text())
        if not program.exists() or "xla_bytes" not in truth:
            continue
        report, error = our_report(args.hekla, program, truth["num_partitions"])
        row = {"name": known.stem, "xla": truth["xla_bytes"],
               "with_reduce_scatter": truth["xla_bytes_if_reduce_scatter"],
               "gspmd": truth["gspmd"]["bytes_if_reduce_scatter"]}
        row["goal"] = min(row["with_reduce_scatter"], row["gspmd"])
        if report is None:
            row["error"] = error
        else:
            row["ours"] = report["bytes"]
            row["runs"] = report["runs"]
            row["is_counted"] = all(one["is_counted"] for one in report["collectives"])
        rows.append(row)
    if args.json:
        print(json.dumps(rows, indent=1))
        return 0
    print(f"{'program':28}{'ours':>12}{'goal':>12}{'with RS':>12}{'GSPMD':>12}{'XLA':>12}  ours / goal")
    for row in rows:
        ours = f"{row['ours']:12.0f}" if "ours" in row else f"{'-':>12}"
        note = row.get("error", "")
        if "ours" in row:
            note = "at goal" if row["ours"] <= row["goal"] else (
                f"{row['ours'] / row['goal']:.2f}" if row["goal"] else "more than nothing")
            if not row["is_counted"]:
                note += ", a loop not counted"
        print(f"{row['name']:28}{ours}{row['goal']:12.0f}{row['with_reduce_scatter']:12.0f}"
              f"{row['gspmd']:12.0f}{row['xla']:12.0f}  {note}")
    reached = sum("ours" in row and row["ours"] <= row["goal"] for row in rows)
    print(f"{reached} of {len(rows)} programs send no more than their goal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
