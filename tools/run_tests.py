#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the stages of Hekla's test set and counts what passed and what failed.

Use tools/test.sh, which installs the packages first. Each stage prints one progress line when it
starts and one with its counts and seconds when it ends; its output goes to build/test-logs/STAGE.log
and is shown when the stage fails. The last line is "N passed, N failed".
"""

import argparse
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

import drivers

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "test-logs"
# Per jaxlib: (platform, way of loading, which tests). All of it with the newest release on every
# device; of the others the quick set, for their dialect of the C API, which is the same code on all
# devices. Loaded by the library's name alone, for what JAX offers then, with the oldest and the
# newest; without what is the same however it was loaded.
JAX_RUNS = {
    "0.10.2": [("reference", "shim", "all"), ("tbb", "shim", "all"), ("tbb", "names", "quick"),
               ("vulkan", "shim", "all")],
    "0.9.2": [("tbb", "shim", "quick")],
    "0.8.3": [("reference", "names", "quick"), ("tbb", "shim", "quick")],
}
NEWEST = "0.10.2"
# The quick set, with a release that needs a newer Python than Debian 12's, in a root of Debian sid.
SID_JAX = "0.11.2"
SID_JAX_RUNS = [("vulkan", "shim"), ("tbb", "shim"), ("reference", "names")]
JAX_QUICK = [("reference", "shim", "quick"), ("tbb", "shim", "quick")]
# Of tests/torch, likewise.
TORCH_RUNS = [("tbb", []), ("vulkan", ["-m", "quick"]), ("reference", ["-m", "quick"])]
TORCH_QUICK = [("tbb", ["-m", "quick"])]
JOBS = str(os.cpu_count() or 2)
REAL_PROGRAMS = sorted(path.parent.name for path in (ROOT / "tests" / "programs").glob("*/case.json"))
# All of tests/jax on SwiftShader and with SID_JAX too, instead of the quick set: ten minutes on two
# cores, and half an hour.
ALL_OF_JAX = os.environ.get("HEKLA_ALL_OF_JAX") == "1"
# Of what is long and many one in so many runs, others with each commit. That is: one of the sanitizers,
# and programs of tests under it; cases of the unit tests that take longest; sets of random programs; one
# of JAX's older releases; what is outside the quick sets of clients, three times as much of JAX's newest
# release on the CPU device, and six times as much of what is in them; from SHARE_OF_STAGES on some stages
# (drawn_stages) and devices of PyTorch/XLA. Without HEKLA_TEST_SHARE all where the caller says what is to
# run, and else so much that two cores of a bare machine take 25 minutes, half of them to build.
SHARE_OF_STAGES = 12
SHARE = int(os.environ.get("HEKLA_TEST_SHARE", 1 if sys.argv[1:] else 48))
# Seconds since 1970 from which on no more stages begin, nor parts of those under sanitizers.
UNTIL = float(os.environ.get("HEKLA_TEST_UNTIL", "inf"))
KEPT_PROGRAMS = ROOT / "tests" / "random" / "regressions"
# What runs in a root of Debian sid.
SID_PROGRAMS = ["build/bin/hekla", "build/lib/hekla/pjrt_vulkan.so",
                "build/tests/vulkan_codegen_device_test", "build/tests/kernel_math_vulkan_test",
                "build/tests/vulkan_transfer_test", "build/tests/random_programs"]


class Counter:
    def __init__(self):
        self.passed = 0
        self.failed = 0

    def add_junit(self, path: pathlib.Path) -> None:
        """Adds the cases of one JUnit file; skipped cases count as neither."""
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed += 1
            elif case.find("skipped") is None and case.get("status") != "notrun":
                self.passed += 1


@functools.cache
def seed() -> int:
    """Decides what is drawn, by the commit: so a run can be had again, and all comes up in its turn."""
    ran = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return int(ran.stdout.strip() or "0", 16)


def drawn(things: list) -> list:
    """At least one of them."""
    share = min(SHARE, len(things))
    return things[seed() % share::share] if share else []


def drawn_one(things: list):
    return things[seed() % len(things)]


def drawn_tests(times: int = 1) -> list:
    """pytest's arguments for `times` as many of the tests as SHARE says."""
    share = max(1, SHARE // times)
    return [f"--drawn={share}:{seed() % share}"]


def keep_bytecode() -> None:
    """What Python compiles of JAX and PyTorch is kept, whatever the caller's environment says of it.

    Hundreds of processes import them, and to compile them again takes twice the time of all else in
    an import (torch_xla: 6 of 10 s, JAX: 1.3 of 2).
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(ROOT / "build" / "python-bytecode")


def run(command: list, log, env: dict | None = None) -> int:
    log.write(f"$ {' '.join(map(str, command))}\n")
    log.flush()
    return subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})}).returncode


# What stages install for themselves, by stage. Begun with the first stage, one after the other: most
# of it is download, which the compiler does not wait for.
INSTALLED = {**{f"python-{version}": ["--python", version] for version in JAX_RUNS},
             "torch": ["--torch"], "swiftshader": ["--swiftshader"]}
UNDER_WAY = {}  # by stage: a future


def begin_installs(stages: list, pool: concurrent.futures.Executor, log) -> None:
    for stage in stages:
        if stage in INSTALLED:
            UNDER_WAY[stage] = pool.submit(run, ["nice", "tools/install.sh", *INSTALLED[stage]], log)


def install(stage: str, log) -> int:
    """What the stage needs; in the stage's log, once more, where it could not be had early."""
    if stage in UNDER_WAY:
        UNDER_WAY.pop(stage).result()
    return run(["tools/install.sh", *INSTALLED[stage]], log)


BUILT = set()  # presets of which everything is built


def build(preset: str, log, targets: list = ()) -> int:
    """All of a preset's targets, or some; nothing where an earlier stage has built it all."""
    if preset in BUILT:
        return 0
    chosen = ["--target", *targets] if targets else []
    status = (run(["cmake", "--preset", preset], log) or
              run(["cmake", "--build", "--preset", preset, "-j", JOBS, *chosen], log))
    if status == 0 and not targets:
        BUILT.add(preset)
    return status


def ctest(folder: str, log, counter: Counter, label_arguments: list, env: dict | None = None) -> int:
    """Runs ctest in a build folder; GoogleTest programs report each case, others count as one."""
    reports = LOGS / f"{folder}-gtest"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    junit = LOGS / f"{folder}-ctest.xml"
    # One more than cores: saves wait for the disk, faults and deadlines for their time.
    jobs = int(JOBS) + (folder == "build")
    status = run(["ctest", "--test-dir", folder, "-j", str(jobs), "--output-on-failure", "--timeout", "1200",
                  "--output-junit", str(junit), *label_arguments], log,
                 {"GTEST_OUTPUT": f"xml:{reports}/", **(env or {})})
    reported = {path.stem for path in reports.glob("*.xml")}
    for path in reports.glob("*.xml"):
        counter.add_junit(path)
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        name = case.get("name", "")
        failed = case.find("failure") is not None or case.get("status") == "fail"
        if name not in reported:
            counter.failed += failed
            counter.passed += not failed
    return status


def stage_checks(log, counter, quick):
    status = 0
    for command in (["tools/check_format.sh"], ["python3", "tools/check_includes.py"]):
        code = run(command, log)
        counter.passed += code == 0
        counter.failed += code != 0
        status |= code
    return status


def stage_unit(log, counter, quick):
    if build("default", log):
        return 1
    if SHARE == 1:
        return ctest("build", log, counter, ["-LE", "slow"] if quick else [])
    # GoogleTest's own sharding draws cases; other programs do not know of it.
    code = ctest("build", log, counter, ["-L", "long", *(["-LE", "slow"] if quick else [])],
                 {"GTEST_TOTAL_SHARDS": str(SHARE), "GTEST_SHARD_INDEX": str(seed() % SHARE)})
    random = programs_of(ROOT / "build", "^random_programs_(?!.*kept)").get("random_programs", [])
    others = "|".join(set(random) - set(drawn(sorted(random))))
    return code | ctest("build", log, counter, ["-LE", "slow|long" if quick else "long",
                                                *(["-E", f"^({others})$"] if others else [])])


def pytest(python, junit: pathlib.Path, arguments: list, log, counter: Counter,
           env: dict | None = None) -> int:
    junit.unlink(missing_ok=True)
    # Workers that are done take tests of the others, which else wait for the slowest one.
    status = run([python, "-m", "pytest", "-q", "-n", JOBS, "--dist", "worksteal",
                  "-p", "no:cacheprovider", f"--junitxml={junit}", *arguments], log, env)
    if junit.exists():
        counter.add_junit(junit)
    return status


def python_stage(version: str):
    def stage(log, counter, quick):
        code = install(f"python-{version}", log) or build("default", log)
        if code:
            return code
        python = ROOT / ".venv" / f"jax-{version}" / "bin" / "python"
        status = 0
        # What jaxlib's CPU gives in a test is the same beside each of our devices: half a gigabyte.
        with tempfile.TemporaryDirectory(prefix="expected-", dir=LOGS) as expected:
            for platform, plugin, tests in JAX_QUICK if quick else JAX_RUNS[version]:
                select = ["-m", "quick"] if tests == "quick" else []
                status |= pytest(python, LOGS / f"pytest-{version}-{platform}-{plugin}.xml",
                                 ["tests/jax", f"--platform={platform}", f"--plugin={plugin}",
                                  *select, *drawn_tests(3 if platform == "tbb" else 1)],
                                 log, counter, {"HEKLA_EXPECTED": expected})
        if version == NEWEST:
            status |= quickstart("quickstart_jax.md", python, log, counter)
            status |= pytest(python, LOGS / "pytest-checkpoint.xml", ["tests/checkpoint"], log, counter)
            status |= pytest(python, LOGS / "pytest-evaluator.xml", ["tests/evaluator"], log, counter)
        if not quick and version == NEWEST:
            status |= pytest(python, LOGS / "pytest-torch_xla.xml", ["tests/torch_xla"], log, counter)
        return status
    return stage


def stage_sid_jax(log, counter, quick):
    """JAX of today, on the build of this system."""
    code = run(["tools/install.sh", "--sid-python", SID_JAX], log) or build("default", log)
    if code:
        return code
    drivers.lend_libraries([ROOT / "build/bin/hekla", *(ROOT / "build/lib/hekla").glob("*.so")])
    status = 0
    for platform, plugin in SID_JAX_RUNS:
        report = f"/tmp/pytest-{platform}-{plugin}.xml"
        there = drivers.SID_PYTHON / report.lstrip("/")
        run([*drivers.as_root(), "rm", "-f", there], log)
        status |= run(drivers.in_sid_python(
            ["python3", "-m", "pytest", "-q", "-n", JOBS, "--dist", "worksteal", "-p", "no:cacheprovider",
             f"--junitxml={report}", "tests/jax", f"--platform={platform}", f"--plugin={plugin}",
             *([] if ALL_OF_JAX else ["-m", "quick"])], drivers.mesa26()), log)
        if there.exists():
            counter.add_junit(there)
    return status


def stage_torch(log, counter, quick):
    """PyTorch/XLA as a client; see tests/torch."""
    code = install("torch", log) or build("default", log)
    if code:
        return code
    names = (ROOT / "tests" / "requirements-torch.txt").read_text(encoding="utf-8")
    version = re.search("^torch==(.*)$", names, re.MULTILINE)[1]
    python = ROOT / ".venv" / f"torch-{version}" / "bin" / "python"
    status = quickstart("quickstart_pytorch.md", python, log, counter)
    runs = TORCH_QUICK if quick else TORCH_RUNS
    if SHARE >= SHARE_OF_STAGES and not quick:
        runs = [runs[0], drawn_one(runs[1:])]
    for platform, select in runs:
        status |= pytest(python, LOGS / f"pytest-torch-{platform}.xml",
                         ["tests/torch", f"--platform={platform}", *select, *drawn_tests()], log, counter)
    return status


# Tests with more than one thread, all that ThreadSanitizer can say something about.
THREADED_TESTS = ("^process_group_test$|^(async|base|checkpoint_(c_api|commit|device|io|manager|save)|collectives|"
                  "conformance|gang|io|pjrt_gang|rendezvous|"
                  "cpu_(jit|execute|plugin)|runtime|vulkan_(backend|launch|memory|pipeline|queue|transfer))_")
# Not under AddressSanitizer, where each takes half a minute or more: the real programs in the
# evaluator, the instruction set that a named one is already, searches for reshards that go to their
# limit, ends of processes and power cuts, which other tests of saves meet as failing calls. Nor forks,
# at the end of whose children LeakSanitizer waits for threads that are not there.
NOT_ADDRESS = ("-*PowerCutsLeave*:KillSweep.*:All/Levels.*/native:Reshard.PlansOfManyAxesAreFound:"
               "All/RealPrograms.PlanComputesWhatTheEvaluatorDoes/*:*/PluginConformance.Holds/fork_*")
# Not under ThreadSanitizer: what other tests do once, done again for every fault and power cut, and
# processes that were forked and start threads, which it does not support.
NOT_THREADED = ("-PowerCut.*:*Faults.*:*.EveryFailingCall*:PreemptedProcesses.*:"
                "*/PluginConformance.Holds/fork_*")


def count_programs(command: list, log, counter: Counter, env: dict) -> int:
    """Runs `hekla run --all ... --json`; each program counts as one."""
    log.write(f"$ {' '.join(map(str, command))}\n")
    log.flush()
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True,
                         stdin=subprocess.DEVNULL, env={**os.environ, **env}, check=False)
    try:
        rows = json.loads(ran.stdout)
    except json.JSONDecodeError:
        log.write(ran.stdout)
        rows = []
    for row in rows:
        log.write(f"{row['program']}: {row['status']} {row['message']}\n")
        counter.passed += row["status"] == "ok"
        counter.failed += row["status"] != "ok"
    log.flush()
    if len(rows) != len(REAL_PROGRAMS):
        log.write(f"{len(rows)} programs ran, not {len(REAL_PROGRAMS)}\n")
        counter.failed += 1
        log.flush()
    return ran.returncode or len(rows) != len(REAL_PROGRAMS)


def gtest(command: list, report: pathlib.Path, log, counter: Counter, env: dict) -> int:
    """Runs a program of GoogleTest, which writes its report when it ends well."""
    report.unlink(missing_ok=True)
    status = run(command, log, env)
    if report.exists():
        counter.add_junit(report)
    else:
        counter.failed += 1
    return status


def random_programs(log, counter: Counter, count: int, env: dict,
                    wrap=lambda command: command) -> int:
    """Programs that once differed, and random ones (HEKLA_RANDOM_PROGRAMS; `count` unless set). Each
    of the two counts as one."""
    command = ["build/tests/random_programs", "--devices", "vulkan"]
    kept = sorted(str(path.relative_to(ROOT)) for path in KEPT_PROGRAMS.glob("*.mlir"))
    codes = [run(wrap([*command, *arguments]), log, env) for arguments in
             (kept, ["--count", os.environ.get("HEKLA_RANDOM_PROGRAMS", str(count))])]
    counter.passed += codes.count(0)
    counter.failed += len(codes) - codes.count(0)
    return max(codes)


RUN_PROGRAMS = ["build/bin/hekla", "run", "--all", "tests/programs", "--device", "vulkan", "--json"]


def stage_swiftshader(log, counter, quick):
    """Another implementation of Vulkan: the real programs, kernels against the interpreter, random
    programs, JAX."""
    code = (run(["tools/install.sh", "--swiftshader", "--python", NEWEST], log) or
            build("default", log))
    if code:
        return code
    env = drivers.swiftshader()
    # What is generated today is compiled today.
    shutil.rmtree(env["HEKLA_CACHE_DIR"], ignore_errors=True)
    status = count_programs(RUN_PROGRAMS, log, counter, env)
    for test in ("vulkan_codegen_device_test", "vulkan_transfer_test"):
        report = LOGS / f"swiftshader-{test}.xml"
        status |= gtest([f"build/tests/{test}", f"--gtest_output=xml:{report}"], report, log, counter, env)
    status |= random_programs(log, counter, 30, env)
    python = ROOT / ".venv" / f"jax-{NEWEST}" / "bin" / "python"
    status |= pytest(python, LOGS / "pytest-swiftshader.xml",
                     ["tests/jax", "--platform=vulkan", *drawn_tests(),
                      *(["-m", "quick"] if quick or not ALL_OF_JAX else [])], log, counter, env)
    return status


def stage_mesa26(log, counter, quick):
    """llvmpipe of Debian sid in a root of its own: the real programs, kernels, random programs."""
    code = run(["tools/install.sh", "--sid"], log) or build("default", log)
    if code:
        return code
    drivers.copy_into_sid([ROOT / path for path in SID_PROGRAMS],
                          [ROOT / "tests" / "programs", KEPT_PROGRAMS])
    env = drivers.mesa26()
    status = count_programs(drivers.in_sid(RUN_PROGRAMS, env), log, counter, {})
    # Among transfers, how two devices share memory: drivers differ in it.
    for test in ("vulkan_codegen_device_test", "kernel_math_vulkan_test", "vulkan_transfer_test"):
        report = drivers.SID / "tmp" / f"{test}.xml"
        status |= gtest(drivers.in_sid([f"build/tests/{test}", f"--gtest_output=xml:/tmp/{test}.xml"],
                                       env), report, log, counter, {})
    status |= validate_modules(log, counter)
    status |= attention_on_matrix_units(log, counter, env)
    # f32 in pieces, of f16, which this driver has: of one program whose numbers have its range.
    products = ROOT / "tests" / "vulkan" / "products_by_pieces.mlir"
    drivers.copy_into_sid([], [products])
    code = run(drivers.in_sid(["build/tests/random_programs", "--devices", "vulkan", "--small-limits",
                               "--matrix-pieces", "f16", products], env), log)
    counter.passed += code == 0
    counter.failed += code != 0
    status |= code
    return status | random_programs(log, counter, 60, {},
                                    lambda command: drivers.in_sid(command, env))


def attention_on_matrix_units(log, counter, env):
    """Attention of sizes around the blocks of matrix units, by all its kernels. Counts as one."""
    folder = ROOT / "build" / "attention"
    shutil.rmtree(folder, ignore_errors=True)
    code = run([sys.executable, "tests/vulkan/attention_table.py", str(folder)], log)
    if code == 0:
        drivers.copy_into_sid([], [folder])
        programs = sorted(str(path.relative_to(ROOT)) for path in folder.glob("*.mlir"))
        code = run(drivers.in_sid(["build/tests/random_programs", "--devices", "vulkan", *programs], env), log)
    counter.passed += code == 0
    counter.failed += code != 0
    return code


def validate_modules(log, counter):
    """Shaders on matrix units, by SID's validator: the system's does not know their instructions."""
    kept = ROOT / "build" / "modules"
    shutil.rmtree(kept, ignore_errors=True)
    code = run(["build/tests/vulkan_codegen_test", "--gtest_filter=*KeptForAValidator"], log,
               {"HEKLA_KEPT_MODULES": str(kept)})
    if code:
        counter.failed += 1
        return code
    drivers.copy_into_sid([], [kept])
    modules = sorted(kept.glob("*.spv"))
    command = ["sh", "-c", "for f; do spirv-val --target-env vulkan1.3 --scalar-block-layout $f || "
               "{ echo $f; exit 1; }; done", "sh", *modules]
    status = run(drivers.in_sid(command, {}), log) | (not modules)
    log.write(f"{len(modules)} modules on matrix units are valid: {status == 0}\n")
    counter.passed += status == 0
    counter.failed += status != 0
    return status


def stage_ucx(log, counter, quick):
    """UCX in Gloo's place between machines: its library, transports over it, gangs of processes."""
    targets = ["collectives_transport_test", "gang_processes_test"]
    code = (run(["tools/install.sh", "--ucx"], log) or
            run(["cmake", "--preset", "default", "-DHEKLA_WITH_UCX=ON"], log) or
            build("default", log, targets))
    if code:
        return code
    status = 0
    for test in targets:
        report = LOGS / f"ucx-{test}.xml"
        status |= gtest([f"build/tests/{test}", "--gtest_filter=*ucx*:Ucx*", f"--gtest_output=xml:{report}"],
                        report, log, counter, {})
    return status


def stage_absent_gpus(log, counter, quick):
    """Real drivers of GPUs that are not there: each pipeline of the real programs, of benchmarks and
    of kernels for GPUs is created, with what the driver tells of it, and a launch ends in words."""
    code = run(["tools/install.sh", "--sid"], log) or build("default", log)
    if code:
        return code
    drivers.copy_into_sid([ROOT / path for path in SID_PROGRAMS],
                          [ROOT / "tests" / "programs", KEPT_PROGRAMS])
    # What drivers tell of each pipeline is held to limits; benchmarks' programs where there is a JAX.
    python = ROOT / ".venv" / f"jax-{NEWEST}" / "bin" / "python"
    status = counted_script("tests/vulkan/pipeline_table.py", log, counter,
                            ["--jax-python", python] if python.exists() else [])
    for name in drivers.ABSENT_GPUS:
        env = drivers.absent_gpu(name)
        # No dispatch runs there: a loop that waits for what it computes would not end.
        command = ["timeout", "60", "build/bin/hekla", "run", "--case", "tests/programs/k_means",
                   "--device", "vulkan"]
        ran = subprocess.run(drivers.in_sid(command, env), capture_output=True, text=True,
                             check=False)
        log.write(f"{name}: a launch of k_means ends with status {ran.returncode}\n{ran.stderr}")
        log.flush()
        is_told = "does not run what it is given" in ran.stderr
        counter.passed += is_told
        counter.failed += not is_told
        status |= not is_told
    return status


def programs_of(folder: pathlib.Path, tests: str) -> dict:
    """The programs of a configured build folder that its tests run, and each one's tests of names that
    match; those that take long come first. Tests that run none are under ''."""
    programs, costs = {}, {}
    for path in folder.rglob("CTestTestfile.cmake"):
        text = path.read_text(encoding="utf-8")
        for name, command in re.findall(r"^add_test\(\[=\[(.*?)\]=\] (.*)\)$", text, re.MULTILINE):
            if not re.search(tests, name):
                continue
            built = re.search(rf"{re.escape(str(folder))}/(?:bin|tests)/([^\"/]+)\"", command)
            program = built[1] if built else ""
            programs.setdefault(program, []).append(name)
            cost = re.search(rf"\[=\[{re.escape(name)}\]=\] PROPERTIES +COST \"(\d+)\"", text)
            costs[program] = max(costs.get(program, 0), int(cost[1]) if cost else 0)
    return {program: programs[program]
            for program in sorted(programs, key=lambda program: (-costs[program], program))}


def install_clang(log) -> int:
    return run(["tools/install.sh", "--clang"], log)


def sanitizer_stage(preset: str, tests: str = ".", cases: str = "*"):
    def stage(log, counter, quick):
        env = {"GTEST_FILTER": cases,
               "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1",
               "UBSAN_OPTIONS": "print_stacktrace=1",
               "TSAN_OPTIONS": "halt_on_error=1:allocator_may_return_null=1:suppressions="
                               f"{ROOT / 'tests' / 'thread_sanitizer.supp'}"}
        code = install_clang(log) or run(["cmake", "--preset", preset], log)
        if code:
            return code
        programs = drawn(list(programs_of(ROOT / f"build-{preset}", tests).items()))
        # Built and run in a few parts, each with long ones and short ones, so that the time may end between.
        parts = 1 + len(programs) // 12 if UNTIL < float("inf") else 1
        for part in range(parts):
            if time.time() > UNTIL:
                print(f"{preset}: the time was up after {part} of {parts} parts of its programs", flush=True)
                break
            some = dict(programs[part::parts])
            # The tool opens plugins, which ninja does not know.
            targets = ["pjrt_cpu", "pjrt_reference", "pjrt_vulkan", *(program for program in some if program)]
            names = "|".join(name for names in some.values() for name in names)
            if build(preset, log, targets):
                return 1
            code |= ctest(f"build-{preset}", log, counter, ["-LE", "nosanitizer", "-R", f"^({names})$"], env)
        return code
    return stage


def stage_fuzz(log, counter, quick):
    """Each fuzzer over its corpus and then for HEKLA_FUZZ_SECONDS (10 unless set)."""
    seconds = os.environ.get("HEKLA_FUZZ_SECONDS", "10")
    status = install_clang(log) or build("asan", log, ["fuzzers"])
    if status:
        return status
    def fuzz(fuzzer: pathlib.Path) -> int:
        name = fuzzer.name.removesuffix("_fuzzer")
        work = ROOT / "build-asan" / "corpus" / name
        work.mkdir(parents=True, exist_ok=True)
        words = ROOT / "tests" / "fuzz" / f"{name}.dict"
        return run([fuzzer, f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048",
                    *([f"-dict={words}"] if words.exists() else []),
                    f"-artifact_prefix={work.parent}/", work, ROOT / "tests" / "fuzz" / "corpus" / name],
                   log)

    fuzzers = sorted((ROOT / "build-asan" / "fuzz").glob("*_fuzzer"))
    with concurrent.futures.ThreadPoolExecutor(int(JOBS)) as pool:
        codes = list(pool.map(fuzz, fuzzers))
    counter.passed += codes.count(0)
    counter.failed += len(codes) - codes.count(0)
    return max(codes, default=0)


def counted_script(script: str, log, counter: Counter, arguments: list = ()) -> int:
    """Runs a script of Python whose last line is "N passed, N failed", with or without ", N skipped"."""
    code = run([sys.executable, script, *arguments], log)
    last = pathlib.Path(log.name).read_text(encoding="utf-8", errors="replace").splitlines()[-1]
    match = re.fullmatch(r"(\d+) passed, (\d+) failed(, \d+ skipped)?", last)
    if match:
        counter.passed += int(match[1])
        counter.failed += int(match[2])
    return code


def stage_foreign(log, counter, quick):
    """The programs and the client's tests on other people's plugins; see tests/foreign."""
    return build("default", log) or counted_script("tests/foreign/test_foreign.py", log, counter)


def stage_install(log, counter, quick):
    """What `cmake --install` makes of the build, for C++ programs; see tests/install."""
    return build("default", log) or counted_script("tests/install/check_prefix.py", log, counter)


def stage_wheel(log, counter, quick):
    """The wheel, in bare roots of Debian 12 and sid; see tests/install."""
    return (run(["tools/install.sh", "--wheel", "--roots", "--torch"], log) or
            counted_script("tests/install/check_wheel.py", log, counter))


def quickstart(page: str, python: pathlib.Path, log, counter: Counter) -> int:
    """The files and commands of a quickstart, with the build tree instead of an installed wheel."""
    code = run([sys.executable, "tests/docs/quickstart.py", f"docs/{page}", "--without", "build",
                "--without", "install", "--venv", python.parent.parent], log,
               {"PYTHONPATH": str(ROOT / "build" / "python")})
    counter.passed += code == 0
    counter.failed += code != 0
    return code


def follow_stage(*pages: str):
    """Pages of docs/ that say how to add something, followed to the letter in a copy of the sources."""
    def stage(log, counter, quick):
        code = run(["tools/install.sh", "--python", NEWEST], log)
        code = code or run([sys.executable, "tests/docs/follow.py", "--jax-python",
                            f".venv/jax-{NEWEST}/bin/python", *(f"docs/{page}" for page in pages)], log)
        counter.passed += len(pages) if code == 0 else 0
        counter.failed += code != 0
        return code
    return stage


STAGES = {
    "checks": stage_checks,
    "unit": stage_unit,
    **{f"python-{version}": python_stage(version) for version in JAX_RUNS},
    "torch": stage_torch,
    "foreign": stage_foreign,
    "install": stage_install,
    "wheel": stage_wheel,
    "swiftshader": stage_swiftshader,
    "adding-a-backend": follow_stage("adding_a_backend.md"),
    "adding-an-op": follow_stage("adding_an_op.md", "adding_a_kernel.md"),
    "adding-a-step": follow_stage("adding_a_step.md"),
    "mesa26": stage_mesa26,
    f"python-{SID_JAX}": stage_sid_jax,
    "absent-gpus": stage_absent_gpus,
    "ucx": stage_ucx,
    "asan": sanitizer_stage("asan", cases=NOT_ADDRESS),
    "tsan": sanitizer_stage("tsan", THREADED_TESTS, NOT_THREADED),
    "fuzz": stage_fuzz,
}
QUICK = ["checks", "unit", f"python-{NEWEST}"]
# What runs tests of the others once more, in builds of its own.
SANITIZERS = ["asan", "tsan", "fuzz"]


def drawn_stages() -> list:
    """All, or of JAX's older releases one; from SHARE_OF_STAGES on one with SwiftShader and what builds
    and loads others' code among them."""
    older = [name for name in ALL if name.startswith("python-") and name != f"python-{NEWEST}"]
    if SHARE == 1:
        return ALL
    if SHARE >= SHARE_OF_STAGES:
        older += ["swiftshader", "foreign", "install", "adding-a-backend"]
    return [name for name in ALL if name not in older or name == drawn_one(older)]


def drawn_sanitizers() -> list:
    """All, or those of one compiler's build."""
    if SHARE == 1:
        return SANITIZERS
    return ["tsan"] if seed() // SHARE % 2 else ["asan", "fuzz"]


# With drivers, or a Python, that take a root of Debian sid, 600 MB and 1.7 GB.
OTHER_DRIVERS = ["mesa26", "absent-gpus", f"python-{SID_JAX}"]
# With another engine of messages, which few have installed.
ENGINES = ["ucx"]
# Compiles all but the tests and the drivers once more: minutes.
LONG = ["adding-an-op", "adding-a-step"]
# In roots of two distributions, 300 MB each.
ROOTS = ["wheel"]
ALL = [name for name in STAGES if name not in SANITIZERS + OTHER_DRIVERS + ENGINES + LONG + ROOTS]


def processor_seconds() -> float:
    """Of all processes that have ended, daemons apart."""
    times = os.times()
    return times.children_user + times.children_system


def run_stages(names: list, quick: bool) -> int:
    total, left_out = Counter(), 0
    for number, name in enumerate(names, 1):
        if time.time() > UNTIL:
            print(f"[{number}/{len(names)}] {name}: left out, the time was up", flush=True)
            left_out += 1
            continue
        print(f"[{number}/{len(names)}] {name} ...", flush=True)
        start, used = time.monotonic(), processor_seconds()
        counter = Counter()
        log_path = LOGS / f"{name}.log"
        with open(log_path, "w", encoding="utf-8") as log:
            status = STAGES[name](log, counter, quick)
        if status and counter.failed == 0:
            counter.failed = 1  # the build broke, or a runner ended before it could count
        seconds, used = time.monotonic() - start, processor_seconds() - used
        print(f"[{number}/{len(names)}] {name}: {counter.passed} passed, {counter.failed} failed, "
              f"{seconds:.0f} s, {used:.0f} s of processors", flush=True)
        if counter.failed:
            lines = log_path.read_text(encoding="utf-8", errors="replace").splitlines()
            print("\n".join(lines[-120:]))
            print(f"(whole log: {log_path.relative_to(ROOT)})", flush=True)
        total.passed += counter.passed
        total.failed += counter.failed
    print(f"{total.passed} passed, {total.failed} failed")
    return 1 if total.failed or not total.passed and not left_out else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="tools/test.sh",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every stage but those that only --sanitizers and "
                        "--only name, with all that is long, more than an hour of two cores; without any option "
                        "a 36th of that, others with each commit")
    parser.add_argument("--quick", action="store_true", help=f"the stages {', '.join(QUICK)}, "
                        "without slow tests")
    parser.add_argument("--sanitizers", action="store_true",
                        help=f"the stages {', '.join(SANITIZERS)}: the unit tests once more under "
                        "AddressSanitizer with UBSan and under ThreadSanitizer, and the fuzzers")
    parser.add_argument("--only", metavar="STAGES", help="comma-separated stages")
    parser.add_argument("--list", action="store_true", help="print the stages and stop")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(STAGES))
        return 0
    names = (arguments.only.split(",") if arguments.only else QUICK if arguments.quick
             else drawn_sanitizers() if arguments.sanitizers else drawn_stages())
    unknown = [name for name in names if name not in STAGES]
    if unknown:
        parser.error(f"no stage '{unknown[0]}'; there are: {', '.join(STAGES)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    keep_bytecode()
    with (open(LOGS / "environments.log", "w", encoding="utf-8") as log,
          concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool):
        begin_installs(names, pool, log)
        return run_stages(names, arguments.quick)


if __name__ == "__main__":
    sys.exit(main())
