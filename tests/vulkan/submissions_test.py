# SPDX-License-Identifier: Apache-2.0
"""A launch is one queue submission: the real programs, each launched twice, by the device's counters.

A loop whose iterations the data decide may take more submissions in its first launch; later ones know.
What a host step splits takes one more for each. Each program's results are checked, its barriers are
proved, and with --validation the validation layer must find nothing. A few programs run once more with
the kernels of a discrete GPU. Skipped (77) without a Vulkan device.
"""
import argparse
import json
import pathlib
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
NO_DEVICE = 3
# Quick ones whose kernels share points among lanes, or go through shared memory.
AS_ON_A_GPU = ("digits_train_step", "k_means", "monte_carlo", "wave_equation")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hekla", required=True)
    parser.add_argument("--validation", action="store_true")
    settings = parser.parse_args()
    cases = sorted(p.parent for p in (REPOSITORY / "tests" / "programs").glob("*/case.json"))
    assert len(cases) >= 9, "the real programs are gone"
    failures = 0
    runs = [(case, []) for case in cases]
    runs += [(case, ["vulkan_device_type=discrete"]) for case in cases if case.name in AS_ON_A_GPU]
    assert len(runs) == len(cases) + len(AS_ON_A_GPU), "a program has another name"
    for case, options in runs:
        command = [settings.hekla, "run", "--device", "vulkan", "--case", str(case), "--repeat", "2",
                   "--stats", "--json", "--client-option", "cache_dir=", "check_barriers=1",
                   f"vulkan_validation={int(settings.validation)}", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode == NO_DEVICE:
            print(done.stderr)
            return 77
        counters = json.loads(done.stdout)["counters"] if done.stdout else {}
        launches = counters.get("launches", 0)
        wanted = launches + counters.get("host steps", 0)
        is_right = (done.returncode == 0 and 2 <= launches and counters["submissions"] <= wanted
                    and "Vulkan validation:" not in done.stderr)
        print(f"{'ok' if is_right else 'FAILED'}: {case.name} {' '.join(options)}: {counters}")
        if not is_right:
            print(done.stderr)
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
