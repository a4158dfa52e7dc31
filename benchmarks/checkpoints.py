#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hekla.checkpoint, Orbax and torch.distributed.checkpoint on one state and one disk.

Each library has a process of its own; they are interleaved, round by round, with raw direct I/O among
them, so that a busy disk slows all. For states of JAX, torch and NumPy arrays it prints (medians of
the rounds):

  blocked   time that the caller of the asynchronous save stands still
  durable   from the call until the step is committed and every file and folder is synced
  CPU       processor time of that, for each GB
  peak      most memory of the process above what it had with its state, before the checkpointer
            was made; of restores with the state that came back
  restore   into arrays of the same kind, files not in the page cache; Hekla verifies every byte
  read      bytes that the disk gave during that (read_bytes of /proc/self/io), over the state's
  p99       99th percentile of a training step while one save follows the other, over the geometric
            mean of those of the segments without saves before and after; progress lines say how
            much these two differ

then the bytes when a state comes back cut in another way, over the bytes held: what the disk gave,
and what was asked of the kernel (rchar). Processes that read through the page cache get from it what
another one has read; on hosts of their own each would ask its disk.

Not like for like: raw I/O (2 threads, 8 MiB a call; fio beside it) keeps no names, digests or
commit. Orbax compresses (zstd) by default, as Hekla does in the rows "Hekla zstd". Neither it nor
torch.distributed.checkpoint, whose default staging copies the state first, verifies a digest of
what it restores. Hekla copies NumPy and torch arrays through 256 MiB of staging memory, so its
caller waits for the disk when the state is larger; JAX arrays it holds. A step of training is a
jitted product on --step-threads cores, and what is saved is not changed by it. Memory is taken and
freed before each restore, because a virtual machine's host may have taken free pages back, which
costs seconds for each GB.

The peers come from a virtual environment, --venv, which is made so:

  python3 -m venv .venv/checkpoints
  .venv/checkpoints/bin/pip install jax==0.10.2 numpy orbax-checkpoint torch

torch's CPU build is enough. What is not installed is named and left out. Hekla comes from build/.

  python3 benchmarks/checkpoints.py --folder DIR_ON_THE_DISK
  python3 benchmarks/checkpoints.py --folder DIR --gib 2 --rounds 7 --json out.json --svg out.svg

Files are made below --folder (three times the state) and removed. Exit status: 0, or 1 when a side
failed or gave back other values.
"""
import argparse
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent
HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = {"hekla": "numpy", "orbax": "orbax.checkpoint", "dcp": "torch.distributed.checkpoint"}
NAMES = {"hekla": "Hekla", "hekla-zstd": "Hekla zstd", "orbax": "Orbax", "dcp": "torch DCP",
         "raw": "raw I/O"}
SIDES = {"jax": ("hekla", "hekla-zstd", "orbax"), "torch": ("hekla", "hekla-zstd", "dcp"),
         "numpy": ("hekla", "hekla-zstd", "orbax")}


def progress(text):
    print(text, file=sys.stderr, flush=True)


class Failed(Exception):
    pass


class Child:
    def __init__(self, python, side, options, timeout, environment=None):
        self.side, self.timeout = side, timeout
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [python, str(HERE / "checkpoint_sides.py"), side, json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT / "build" / "python"),
                 **(environment or {})})

    def result(self):
        timer = threading.Timer(self.timeout, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        if not line:
            self.log.seek(0)
            words = self.log.read().decode(errors="replace").strip().splitlines() or ["no message"]
            raise Failed(f"{self.side} ended or took over {self.timeout:.0f} s: {words[-1][:300]}")
        found = json.loads(line)
        if "error" in found:
            raise Failed(f"{self.side}: {found['error']}")
        return found

    def send(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def call(self, **request):
        self.send(**request)
        return self.result()

    def close(self):
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


def installed(python, side):
    module = PACKAGES[side]
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False,
                          env={**os.environ, "JAX_PLATFORMS": "cpu"}).returncode == 0


def fio(folder, total, read):
    """Seconds that fio takes; None where it is not installed."""
    if shutil.which("fio") is None:
        return None
    command = ["fio", "--name=raw", f"--filename={folder}/fio",
               f"--rw={'read' if read else 'write'}", "--direct=1", "--ioengine=libaio",
               "--iodepth=4", "--bs=4M", f"--size={total}", "--end_fsync=1",
               "--output-format=json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    job = found["jobs"][0]["read" if read else "write"]
    return job["runtime"] / 1e3


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)]


def measure_kind(kind, sides, python, arguments):
    total = int(arguments.gib * 2**30)
    folder = arguments.folder / kind
    raw_folder = folder / "raw"
    children, rounds = {}, []
    try:
        for side in ("raw", *sides):
            # One at a time: what the arrays are made from is gone before the next begins.
            progress(f"{kind}: {NAMES[side]} makes its state")
            children[side] = Child(python, side, {
                "kind": kind, "bytes": total, "folder": str(folder / side),
                "step_threads": arguments.step_threads,
                "background_bandwidth": arguments.background_bandwidth}, arguments.timeout,
                {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OPENBLAS_NUM_THREADS": "1"}
                if arguments.step_threads == 1 else None)
            children[side].result()
            children[side].call(do="open")
        for number in range(arguments.rounds + 1):
            row = {}
            order = list(children) if number % 2 == 0 else list(children)[::-1]
            for side in order:
                child = children[side]
                row[side] = {"save": child.call(do="save", step=number)}
                if side == "raw":
                    row["fio"] = {"save": fio(raw_folder, total, False)}
            for side in order:
                row[side]["restore"] = children[side].call(do="restore", step=number)
                children[side].call(do="remove", step=number)
                if side == "raw" and row["fio"]["save"] is not None:
                    row["fio"]["restore"] = fio(raw_folder, total, True)
                    (raw_folder / "fio").unlink()
            progress(f"{kind}: round {number} of {arguments.rounds}: durable " + ", ".join(
                f"{NAMES[side]} {row[side]['save']['durable_s']:.2f} s" for side in children)
                + ("; not counted" if number == 0 else ""))
            rounds.append(row)
        result = {"bytes": total, "rounds": rounds,
                  "table": {side: summary(rounds, side) for side in children}}
        if rounds[0]["fio"]["save"] is not None:
            result["fio"] = {key: statistics.median(row["fio"][key] for row in rounds[1:])
                             for key in ("save", "restore")}
        for side in sides if arguments.segments > 0 else ():
            result["table"][side]["train"] = train(children[side], side, kind, arguments)
        return result
    finally:
        for child in children.values():
            child.close()
        shutil.rmtree(folder, ignore_errors=True)


def train(child, side, kind, arguments):
    """Segments with saves, each between two without."""
    times = {False: [], True: []}
    ratios, controls, saves, step = [], [], 0, 1000
    for _ in range(arguments.segments):
        p99 = []
        for with_saves in (False, True, False):
            found = child.call(do="train", seconds=arguments.train_seconds, saves=with_saves,
                               first_step=step)
            saves += found["saves"]
            step += found["saves"] + 1
            times[with_saves] += found["times"]
            p99.append(percentile(found["times"], 0.99))
        ratios.append(p99[1] / math.sqrt(p99[0] * p99[2]))
        controls.append(p99[2] / p99[0])
    result = {"p99_without_s": percentile(times[False], 0.99),
              "p99_with_s": percentile(times[True], 0.99), "p99_ratio": statistics.median(ratios),
              "p99_ratios": ratios, "p99_controls": controls,
              "mean_ratio": statistics.fmean(times[True]) / statistics.fmean(times[False]),
              "worst_with_s": max(times[True]), "saves": saves, "steps": len(times[True])}
    progress(f"{kind}: {NAMES[side]} trains: p99 {result['p99_without_s'] * 1e3:.1f} ms, with "
             f"{saves} saves {result['p99_with_s'] * 1e3:.1f} ms; ratios {min(ratios):.2f} to "
             f"{max(ratios):.2f}, without saves {min(controls):.2f} to {max(controls):.2f}")
    return result


def summary(rounds, side):
    """Medians over the rounds but the first, which warms up; the first has the peak too."""
    counted = rounds[1:]

    def middle(part, key):
        return statistics.median(row[side][part][key] for row in counted)
    result = {"durable_s": middle("save", "durable_s"), "save_cpu_s": middle("save", "cpu_s"),
              "restore_s": middle("restore", "seconds"),
              "restore_cpu_s": middle("restore", "cpu_s"),
              "read_bytes": middle("restore", "read_bytes"),
              "durable_spread": [f(row[side]["save"]["durable_s"] for row in counted)
                                 for f in (min, max)],
              "restore_spread": [f(row[side]["restore"]["seconds"] for row in counted)
                                 for f in (min, max)]}
    # Against raw I/O of the same round: what slows the disk slows both.
    result["of_raw_write"] = statistics.median(
        row["raw"]["save"]["durable_s"] / row[side]["save"]["durable_s"] for row in counted)
    result["of_raw_read"] = statistics.median(
        row["raw"]["restore"]["seconds"] / row[side]["restore"]["seconds"] for row in counted)
    if side != "raw":
        result["blocked_s"] = middle("save", "blocked_s")
        result["settle_s"] = middle("save", "settle_s")
        for part in ("save", "restore"):
            result[f"{part}_peak_bytes"] = max(row[side][part]["peak_bytes"] for row in rounds)
        result["stored_bytes"] = middle("save", "stored_bytes")
        result["equal"] = all(row[side]["restore"]["equal"] for row in rounds)
    return result


def print_kind(kind, result):
    gigabytes = result["bytes"] / 1e9
    print(f"\nstate of {kind} arrays, {gigabytes:.2f} GB in matrices of 64 MiB")
    print(f"{'':10} {'blocked ms':>10} {'durable s':>18} {'of raw':>7} {'CPU s/GB':>8} "
          f"{'peak MB':>8} {'restore s':>18} {'of raw':>7} {'CPU s/GB':>8} {'peak MB':>8} "
          f"{'read':>5} "
          f"{'p99':>5} {'worst step ms':>13}")
    for side, row in result["table"].items():
        def spread(key):
            low, high = row[f"{key}_spread"]
            return f"{row[f'{key}_s']:.2f} ({low:.2f}-{high:.2f})"
        blocked = f"{row['blocked_s'] * 1e3:.1f}" if "blocked_s" in row else "-"
        peaks = [f"{row[f'{part}_peak_bytes'] / 1e6:.0f}" if f"{part}_peak_bytes" in row else "-"
                 for part in ("save", "restore")]
        training = row.get("train")
        print(f"{NAMES[side]:10} {blocked:>10} {spread('durable'):>18} "
              f"{row['of_raw_write'] * 100:5.0f} % {row['save_cpu_s'] / gigabytes:8.3f} "
              f"{peaks[0]:>8} {spread('restore'):>18} {row['of_raw_read'] * 100:5.0f} % "
              f"{row['restore_cpu_s'] / gigabytes:8.3f} {peaks[1]:>8} "
              f"{row['read_bytes'] / result['bytes']:5.2f} "
              + (f"{training['p99_ratio']:5.2f} {training['worst_with_s'] * 1e3:13.1f}"
                 if training else f"{'-':>5} {'-':>13}")
              + ("" if row.get("equal", True) else "  OTHER VALUES"))
    if "fio" in result:
        print(f"fio        write {result['fio']['save']:.2f} s, read "
              f"{result['fio']['restore']:.2f} s (its own clock, layout of the file not counted)")


def group(python, side, world, options, arguments):
    """Processes of a group, all started before any is waited for."""
    children = [Child(python, side, {**options, "rank": rank, "world": world}, arguments.timeout)
                for rank in range(world)]
    try:
        for child in children:
            child.result()
        for name in ("open", options["do"]):
            for child in children:
                child.send(do=name)
            results = [child.result() for child in children]
        return results
    finally:
        for child in children:
            child.close()


def measure_reshard(python, sides, arguments):
    """Rows of four to rows of three (devices: two, JAX cuts evenly), and to columns of two; by
    processes, and by devices of one."""
    total = int(arguments.gib * 2**28)  # a quarter of the state
    rows = []
    plans = []
    for by_process, peer in ((True, "dcp"), (False, "orbax")):
        what = "processes" if by_process else "devices"
        for cut, parts in (("rows", 3 if by_process else 2), ("columns", 2)):
            for side in ("hekla", "hekla-zstd", peer):
                if side in sides:
                    plans.append((f"4 {what}, rows, to {parts}, {cut}", side, cut, parts,
                                  by_process))
    for title, side, cut, parts, by_process in plans:
        progress(f"{title}: {NAMES[side]}")
        folder = arguments.folder / "reshard"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        options = {"folder": str(folder / "steps"), "bytes": total, "kind": "torch"}

        def run(do, cut, parts):
            own = {**options, "do": do, "cut": cut, "store": str(folder / f"store-{do}")}
            if by_process:
                return group(python, f"{side}-cut", parts, own, arguments)
            flags = f"--xla_force_host_platform_device_count={parts}"
            child = Child(python, "jax-cut", {**own, "devices": parts, "library": side},
                          arguments.timeout, {"XLA_FLAGS": flags})
            try:
                child.result()
                child.call(do="open")
                return [child.call(do=do)]
            finally:
                child.close()
        run("save", "rows", 4)
        helper = Child(python, "raw", {"folder": str(folder / "none"), "bytes": 8 << 20},
                       arguments.timeout)
        helper.result()
        helper.call(do="drop_cache", folder=str(folder))
        helper.close()
        found = run("restore", cut, parts)
        held = sum(one["bytes_held"] for one in found)
        rows.append({"title": title, "side": side,
                     "read_ratio": sum(one["read_bytes"] for one in found) / held,
                     "rchar_ratio": sum(one["rchar"] for one in found) / held,
                     "seconds": max(one["seconds"] for one in found),
                     "equal": all(one["equal"] for one in found)})
        shutil.rmtree(folder, ignore_errors=True)
    return rows


def print_reshard(rows):
    print(f"\n{'restored in another cut':38} {'':10} {'disk / held':>11} {'asked / held':>12} "
          f"{'seconds':>8}")
    for row in rows:
        print(f"{row['title']:38} {NAMES[row['side']]:10} {row['read_ratio']:11.2f} "
              f"{row['rchar_ratio']:12.2f} {row['seconds']:8.2f}{'' if row['equal'] else '  OTHER VALUES'}")


METRICS = [("time blocked, ms", lambda row, gb: row.get("blocked_s", 0) * 1e3),
           ("time to durable, s", lambda row, gb: row["durable_s"]),
           ("CPU of a save, s/GB", lambda row, gb: row["save_cpu_s"] / gb),
           ("memory above the state, MB", lambda row, gb: row.get("save_peak_bytes", 0) / 1e6),
           ("restore, s", lambda row, gb: row["restore_s"])]


def svg(document):
    """A group of bars for each kind of state and metric; shorter is better."""
    left, width, line = 210, 420, 17
    colors = {"raw": "#999", "hekla": "#2a7f3f", "hekla-zstd": "#86c08f", "orbax": "#3567a8", "dcp": "#d08a1d"}
    parts, y = [], 46
    for kind, result in document["kinds"].items():
        gigabytes = result["bytes"] / 1e9
        parts.append(f'<text x="12" y="{y}" font-weight="bold">{kind} arrays, '
                     f'{gigabytes:.2f} GB</text>')
        y += line
        for title, value in METRICS:
            values = {side: value(row, gigabytes) for side, row in result["table"].items()}
            values = {side: v for side, v in values.items() if v > 0}
            parts.append(f'<text x="{left - 90}" y="{y + 4}" text-anchor="end">{title}</text>')
            for side, v in values.items():
                bar = max(1.0, v / max(values.values()) * width)
                parts.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">'
                             f'{NAMES[side]}</text>')
                parts.append(f'<rect x="{left}" y="{y - 6}" width="{bar:.1f}" height="12" '
                             f'fill="{colors[side]}"/>')
                parts.append(f'<text x="{left + bar + 4:.1f}" y="{y + 4}" font-size="11">'
                             f'{v:.3g}</text>')
                y += line
            y += 6
        y += 10
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 80}" height="{y}" '
            'font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>',
            '<text x="12" y="20" font-size="14">Checkpoints of one state on one disk '
            '(shorter is better)</text>']
    return "\n".join([*head, *parts, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, required=True,
                        help="an empty or new folder on the disk to be measured")
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / ".venv" / "checkpoints",
                        help="environment with the peers (default: %(default)s)")
    parser.add_argument("--kinds", default="jax,torch,numpy",
                        help="comma-separated: jax, torch, numpy")
    parser.add_argument("--peers", default="orbax,dcp", help="comma-separated: orbax, dcp; or none")
    parser.add_argument("--gib", type=float, default=1.0, help="size of the state (default: 1)")
    parser.add_argument("--rounds", type=int, default=5,
                        help="counted rounds, after one to warm up")
    parser.add_argument("--segments", type=int, default=3,
                        help="training segments with saves, each between two without; 0: none")
    parser.add_argument("--train-seconds", type=float, default=5, help="of each segment")
    parser.add_argument("--background-bandwidth", type=int,
                        help="Hekla's bytes per second while nobody waits; 0: as fast as it goes "
                        "(default: the manager's)")
    parser.add_argument("--step-threads", type=int, choices=(0, 1), default=1,
                        help="1: a step takes one core, and one is free, as beside an accelerator; "
                        "0: all of them")
    parser.add_argument("--no-reshard", action="store_true", help="leave the last table out")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one operation")
    parser.add_argument("--json", type=pathlib.Path, help="file for all figures")
    parser.add_argument("--svg", type=pathlib.Path, help="file for the chart")
    arguments = parser.parse_args()
    kinds = arguments.kinds.split(",")
    for kind in kinds:
        if kind not in SIDES:
            parser.error(f"there is no kind {kind}; there are {', '.join(SIDES)}")
    python = str(arguments.venv / "bin" / "python")
    if not pathlib.Path(python).exists():
        parser.error(f"there is no environment {arguments.venv}; --help says how to make it")
    if arguments.folder.exists() and any(arguments.folder.iterdir()):
        parser.error(f"{arguments.folder} is not empty")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    sides = {"hekla", "hekla-zstd"}
    for side in filter(None, arguments.peers.replace("none", "").split(",")):
        if installed(python, side):
            sides.add(side)
        else:
            print(f"{NAMES[side]} is left out: {arguments.venv} has no {PACKAGES[side]}; --help "
                  "says how to install it")
    document = {"kinds": {}, "failed": []}
    for kind in kinds:
        try:
            result = measure_kind(kind, [s for s in SIDES[kind] if s in sides], python, arguments)
        except Failed as error:
            print(f"{kind}: {error}", flush=True)
            document["failed"].append(str(error))
            continue
        document["kinds"][kind] = result
        print_kind(kind, result)
    if not arguments.no_reshard:
        try:
            document["reshard"] = measure_reshard(python, sides, arguments)
            print_reshard(document["reshard"])
        except Failed as error:
            print(f"restore in another cut: {error}", flush=True)
            document["failed"].append(str(error))
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    if arguments.svg:
        arguments.svg.write_text(svg(document))
    shutil.rmtree(arguments.folder, ignore_errors=True)
    wrong = [row for result in document["kinds"].values() for row in result["table"].values()
             if not row.get("equal", True)]
    wrong += [row for row in document.get("reshard", []) if not row["equal"]]
    return 1 if document["failed"] or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
