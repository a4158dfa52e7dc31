#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hekla's runtime on other people's PJRT plugins; see README.md. Exit status 1 when a check fails."""

import json
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HEKLA_BUILD_DIR", ROOT / "build"))
HEKLA = BUILD / "bin" / "hekla"
PLACE = ROOT / ".venv" / "foreign"
# name, package, version: each is one library named *.so with GetPjrtApi.
PACKAGES = [
    ("xla-0.81", "xla-cpu-pjrt", "0.0.1"),
    ("xla-0.106", "fastatomstruct-xla-cpu", "2026.6.23"),
    ("xla-0.115", "lammps-jax-pjrt-cpu", "0.11.2"),
]


def libraries_of(wheel: pathlib.Path, folder: pathlib.Path) -> list:
    """Unpacks the shared libraries of a wheel once; those that look like plugins come first."""
    if not (folder / "complete").exists():
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if ".so" in pathlib.PurePath(name).name:
                    archive.extract(name, folder)
        (folder / "complete").touch()
    found = sorted(folder.rglob("*.so"))
    return [path for path in found if b"GetPjrtApi" in path.read_bytes()]


def install() -> dict:
    """Names and libraries of the PyPI packages."""
    PLACE.mkdir(parents=True, exist_ok=True)
    plugins = {}
    for name, package, version in PACKAGES:
        folder = PLACE / name
        if not (folder / "complete").exists():
            wheels = PLACE / "wheels" / name
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                            "--disable-pip-version-check", "--only-binary=:all:",
                            "-d", wheels, f"{package}=={version}"], check=True)
            libraries_of(next(wheels.glob("*.whl")), folder)
        plugins[name] = next(path for path in folder.rglob("*.so"))
    return plugins


class Counter:
    passed = failed = skipped = 0

    def add(self, ok: bool, text: str) -> None:
        self.passed += ok
        self.failed += not ok
        if not ok:
            print(f"FAILED: {text}", flush=True)


def run_programs(plugins: dict, counter: Counter, env: dict) -> None:
    command = [HEKLA, "run", "--all", ROOT / "tests" / "programs", "--json"]
    for name in plugins:
        command += ["--device", name]
    run = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    try:
        rows = json.loads(run.stdout)
    except json.JSONDecodeError:
        counter.add(False, f"hekla run --all: {run.stdout[-500:]}{run.stderr[-500:]}")
        return
    for row in rows:
        message = row["message"]
        text = f"{row['device']:<10} {row['program']:<20} {row['status']} {message[:200]}"
        if row["status"] == "error" and "the program is StableHLO" in message:
            counter.skipped += 1
            print(f"skipped: {text}")
        else:
            counter.add(row["status"] == "ok", text)
            print(f"{'ok' if row['status'] == 'ok' else 'FAILED'}: {text}")


def run_unit_tests(plugins: dict, counter: Counter, env: dict) -> None:
    report = PLACE / "client_test.xml"
    report.unlink(missing_ok=True)
    subprocess.run([BUILD / "tests" / "runtime_client_test", "--gtest_filter=*ClientTest*",
                    f"--gtest_output=xml:{report}"], stdout=subprocess.DEVNULL, check=False,
                   env={**env, "HEKLA_FOREIGN_PLUGINS": ":".join(map(str, plugins.values()))})
    if not report.exists():
        counter.add(False, "runtime_client_test ended without a report")
        return
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        skipped = case.find("skipped") is not None
        counter.skipped += skipped
        if not skipped:
            counter.add(case.find("failure") is None, f"{case.get('classname')}.{case.get('name')}")


def probe_wheels(counter: Counter, env: dict) -> None:
    """Whatever the library does, `hekla plugins` lives and says it in one of its known words."""
    for wheel in filter(None, os.environ.get("HEKLA_FOREIGN_WHEELS", "").split(":")):
        folder = PLACE / pathlib.Path(wheel).name.split("-")[0]
        for library in libraries_of(pathlib.Path(wheel), folder):
            run = subprocess.run([HEKLA, "plugins", library, "--json"], capture_output=True,
                                 text=True, env=env, check=False)
            try:
                state = json.loads(run.stdout)[0]["state"]
            except (json.JSONDecodeError, LookupError):
                state = f"no answer, status {run.returncode}"
            print(f"{library.name}: {state}")
            counter.add(run.returncode in (0, 3) and ": " in state, f"{library.name}: {state}")


def main() -> int:
    if not HEKLA.exists():
        sys.exit(f"{HEKLA} is not built")
    plugins = install()
    names = ":".join(f"{name}={path}" for name, path in plugins.items())
    env = {**os.environ, "HEKLA_PLUGIN_PATH": names}
    counter = Counter()
    run_programs(plugins, counter, env)
    run_unit_tests(plugins, counter, env)
    probe_wheels(counter, env)
    print(f"{counter.passed} passed, {counter.failed} failed, {counter.skipped} skipped")
    return 1 if counter.failed else 0


if __name__ == "__main__":
    sys.exit(main())
