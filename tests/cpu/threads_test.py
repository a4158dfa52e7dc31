# SPDX-License-Identifier: Apache-2.0
"""Results do not depend on the number of threads, not in one bit.

The real programs, the artifacts (tests/artifacts) and random ones with arrays large enough to be cut
run on the CPU with 1, 2 and 5 threads, each in its own process. Programs that the device refuses in
words (callbacks of a client, collectives) are named and not counted.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "artifacts"))
from artifacts import artifact_files  # noqa: E402

THREADS = ("1", "2", "5")
LEAST_COMPARED = 57  # the real programs, and all artifacts but nine
NO_RESULT = (2, 3)  # of `hekla run`: bad input; an error of compilation or launch


def run(command: list, threads: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "HEKLA_NUM_THREADS": threads}
    return subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)


def outputs_of(tool: str, arguments: list, threads: str):
    """What a program gives as {file name: bytes}, or the words of its refusal."""
    with tempfile.TemporaryDirectory() as folder:
        done = run([tool, "run", "--device", "cpu", "--output", folder, *arguments], threads)
        if done.returncode in NO_RESULT:
            return (done.stderr or done.stdout).strip().splitlines()[-1]
        if done.returncode < 0:
            raise RuntimeError(f"{arguments}: signal {-done.returncode}\n{done.stderr}")
        return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hekla", required=True)
    parser.add_argument("--random-programs", required=True)
    settings = parser.parse_args()

    cases = sorted(p.parent for p in (REPOSITORY / "tests" / "programs").glob("*/case.json"))
    assert len(cases) >= 9, "the real programs are gone"
    programs = [(case.name, ["--case", str(case)]) for case in cases]
    programs += [(path.name, [str(path), "--random", "7"]) for path in artifact_files("*.mlirbc")]
    failures = compared = 0
    for name, arguments in programs:
        first, *others = [outputs_of(settings.hekla, arguments, threads) for threads in THREADS]
        if isinstance(first, str):
            print(f"refused: {name}: {first}")
        is_case = arguments[0] == "--case"
        is_right = all(other == first for other in others) and not (is_case and not first)
        compared += not isinstance(first, str)
        failures += not is_right
        if not is_right:
            print(f"FAILED: {name}: results differ between {', '.join(THREADS)} threads")

    digests = set()
    for threads in THREADS:
        done = run([settings.random_programs, "--devices", "cpu", "--count", "40", "--seed", "77000",
                    "--max-elements", "60000", "--ops", "5"], threads)
        digest = re.search(r"digest ([0-9a-f]{16})", done.stdout)
        if done.returncode != 0 or digest is None:
            print(f"FAILED: random programs with {threads} threads:\n{done.stdout}{done.stderr}")
            failures += 1
            break
        digests.add(digest[1])
    if len(digests) > 1:
        print(f"FAILED: random programs give other bits with other numbers of threads: {digests}")
        failures += 1
    if compared < LEAST_COMPARED:
        print(f"FAILED: only {compared} programs ran, {LEAST_COMPARED} can")
        failures += 1
    print(f"{compared} programs and 40 random ones, {len(THREADS)} numbers of threads, "
          f"{failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
