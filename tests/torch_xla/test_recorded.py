# SPDX-License-Identifier: Apache-2.0
"""Programs that PyTorch/XLA sent to a plugin, run by `hekla run` and compared with XLA's results.

The recordings lie outside the repository: in $HEKLA_ARTIFACTS/torch_xla, or in
../shared/artifacts/torch_xla beside the checkout. Each is turned into a case folder (case.json, see
tests/programs/README.md) with its recorded or rule-made arguments. The tolerances are those that the
recordings' README gives: f32 1e-4 relative plus 1e-6 of the largest element, sums 1e-3, bf16
programs 3e-2 of the element or of the largest one. The largest element is that of all results:
gradients in front of a batch normalisation are zero but for rounding, and have no scale of their own.
"""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HEKLA_BUILD_DIR", ROOT / "build"))
ARTIFACTS = pathlib.Path(os.environ.get("HEKLA_ARTIFACTS", ROOT.parent / "shared" / "artifacts"))
RECORDINGS = ARTIFACTS / "torch_xla"
DEVICES = os.environ.get("HEKLA_TEST_DEVICES", "reference,cpu,vulkan").split(",")

# As StableHLO, and as torch_xla sends them unless it is told otherwise.
FORMS = ["mlir.bc", "hlo.pb"]

# Programs that cannot run yet, with the tool's exit status and words; the test fails when one of
# them starts to.
KNOWN_GAPS = {
    "all_gather_pinned_rank0": ("all_reduce over two replicas", 3, ""),
    "all_gather_pinned_rank1": ("all_reduce over two replicas", 3, ""),
    "all_reduce": ("all_reduce over two replicas", 3, ""),
    # They compile; `hekla run` gives each device whole arrays and does not cut them.
    "spmd": ("arrays cut for four devices", 2, "must be i64[16], is i64[32]"),
    "spmd_fsdp_gpt": ("arrays cut for four devices", 2, "must be f32[16,32], is f32[64,32]"),
}
# Programs that run but differ by more than the tolerance, and on which devices; the test fails when
# one of them agrees.
KNOWN_DIFFERENCES = {
    "bf16_gpt": ({"cpu", "vulkan"}, "the recording sums bf16 in bf16, these devices in f32: 62 "
                                    "instead of 60.5 in the first sum; gradients that cancel show it"),
    "gpt": ({"reference", "vulkan"}, "the sum of one gradient of 32 elements differs by 1.04e-3 of its "
                                     "absolute sum: computed in f64 it is 1.25537e-3, recorded 1.25630e-3, "
                                     "here 1.25488e-3 and 1.25480e-3"),
    "resnet18": ({"reference", "cpu", "vulkan"},
                 "batch norm over two rule-made samples leaves gradients of 1e-9, which are rounding; "
                 "their sums differ by 6e-3"),
}
BF16_PROGRAMS = {"amp_bf16_cnn", "bf16_gpt"}
# The check data are one XLA version's choice for algorithm "default": Philox.
NUMPY = {"f32": np.float32, "f64": np.float64, "i64": np.int64, "i32": np.int32, "ui8": np.uint8,
         "ui32": np.uint32, "ui64": np.uint64, "i1": np.bool_, "bf16": np.uint16}


def programs():
    return sorted(path.name.removesuffix(".mlir.bc") for path in RECORDINGS.glob("*.mlir.bc"))


def runs():
    return [(name, form) for name in programs() for form in FORMS]


def main_types(program: pathlib.Path):
    """(dtype, shape) of the parameters and of the results of @main."""
    text = subprocess.run([BUILD / "bin" / "hekla", "compile", program, "--emit", "vhlo-json"],
                          check=True, capture_output=True, text=True).stdout
    def of_type(text):
        *dims, dtype = text.removeprefix("tensor<").removesuffix(">").split("x")
        return dtype, [int(d) for d in dims]
    functions = json.loads(text)["module"]["regions"][0][0]["ops"]
    main = next(f for f in functions if f["props"]["sym_name"] == {"str": "main"})
    block = main["regions"][0][0]
    kinds = {number: of_type(kind) for number, kind in block["args"]}
    arguments = list(kinds.values())
    for op in block["ops"]:
        kinds.update({number: of_type(kind) for number, kind in op.get("results", [])
                      if kind.startswith("tensor<")})
    return arguments, [kinds[number] for number in block["ops"][-1].get("operands", [])]


def to_bf16_bits(values: np.ndarray) -> np.ndarray:
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def rule_made(index: int, dtype: str, shape: list) -> np.ndarray:
    k = np.arange(int(np.prod(shape)), dtype=np.uint64)
    mixed = k * np.uint64(2654435761) + np.uint64(index * 40503 + 12345)
    u = (mixed % np.uint64(2**32)).astype(np.float64) / 2**32
    if dtype == "i1":
        return (u < 0.5).reshape(shape)
    if dtype in ("f32", "f64", "bf16"):
        values = (0.02 + 0.08 * u).astype(np.float32).reshape(shape)
        return to_bf16_bits(values) if dtype == "bf16" else values.astype(NUMPY[dtype])
    return (k % np.uint64(4)).astype(NUMPY[dtype]).reshape(shape)


def tolerances(name: str, dtype: str, largest: float):
    if name in BF16_PROGRAMS:
        return {"rtol": 3e-2, "atol": 3e-2 * largest, "sum_rtol": 3e-2}
    if dtype in ("f32", "f64", "bf16"):
        return {"rtol": 1e-4, "atol": 1e-6 * largest, "sum_rtol": 1e-3}
    return {"rtol": 0, "atol": 0, "sum_rtol": 0}


def largest_float(values: np.ndarray, dtype: str) -> float:
    if dtype == "bf16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    if values.dtype.kind != "f":
        return 0.0
    return float(np.abs(values[np.isfinite(values)]).max(initial=0))


def json_number(value):
    value = float(value)
    return value if np.isfinite(value) else str(value)


def make_case(name: str, form: str, folder: pathlib.Path) -> None:
    (folder / "program").write_bytes((RECORDINGS / f"{name}.{form}").read_bytes())
    parameters, results = main_types(RECORDINGS / f"{name}.mlir.bc")
    inputs, outputs = [], []
    data = RECORDINGS / f"{name}.npz"
    recorded = np.load(data) if data.exists() else None
    for i, (dtype, shape) in enumerate(parameters):
        values = recorded[f"arg{i}_dev0"] if recorded is not None else rule_made(i, dtype, shape)
        np.save(folder / f"in{i}.npy", values)
        inputs.append({"file": f"in{i}.npy", "dtype": dtype})
    if recorded is not None:
        wanted = [recorded[f"out{i}_dev0"] for i in range(len(results))]
        largest = max(largest_float(want, dtype) for want, (dtype, _) in zip(wanted, results))
        for i, (want, (dtype, shape)) in enumerate(zip(wanted, results)):
            np.save(folder / f"out{i}.npy", want)
            outputs.append({"file": f"out{i}.npy", "dtype": dtype, "shape": shape,
                            **tolerances(name, dtype, largest)})
    else:
        checks = [check for check in json.loads((RECORDINGS / f"{name}.checks.json").read_text())
                  if check["device"] == 0]
        largest = max((abs(float(v)) for check in checks for v in check["at"].values()
                       if results[check["out"]][0] in ("f32", "f64", "bf16")), default=0)
        for check in checks:
            dtype, shape = results[check["out"]]
            at = check["at"]
            outputs.append({
                "samples": {"dtype": dtype, "shape": shape, "indices": [int(k) for k in at],
                            "values": [json_number(v) for v in at.values()]},
                "sum": json_number(check["sum"]), "abs_sum": json_number(check["abs_sum"]),
                **tolerances(name, dtype, largest)})
    (folder / "case.json").write_text(json.dumps({
        "name": name, "description": "recorded from torch_xla", "program": "program",
        "inputs": inputs, "outputs": outputs, "donated": [], "made_with": {"jaxlib": "0.7.1"}}))


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="the recordings are not there")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name,form", runs())
def test_recorded_program_gives_the_recorded_results(name, form, device, tmp_path):
    if name == "resnet18" and (device == "reference") != (form == "mlir.bc"):
        pytest.skip("takes as long as all others: one form on each device")
    if name in KNOWN_GAPS:
        several = ["--partitions", "4", "--client-option", "num_devices=4"] if "spmd" in name else []
        run = subprocess.run([BUILD / "bin" / "hekla", "run", RECORDINGS / f"{name}.{form}",
                              "--device", device, "--random", "1", *several],
                             capture_output=True, text=True)
        gap, status, words = KNOWN_GAPS[name]
        assert run.returncode == status and words in run.stderr, f"the gap has closed: {gap}\n{run.stderr}"
        return
    make_case(name, form, tmp_path)
    run = subprocess.run([BUILD / "bin" / "hekla", "run", "--case", tmp_path, "--device", device],
                         capture_output=True, text=True)
    devices, reason = KNOWN_DIFFERENCES.get(name, ((), ""))
    if device in devices:
        assert run.returncode == 1, f"no difference any more: {reason}"
        return
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="the recordings are not there")
def test_collectives_of_two_replicas(tmp_path):
    """The recording that has no StableHLO form, as torch_xla cannot convert its all-to-all."""
    recorded = np.load(RECORDINGS / "collectives.npz")
    (tmp_path / "program").write_bytes((RECORDINGS / "collectives.hlo.pb").read_bytes())
    def arrays(kind, device):
        return [recorded[name] for name in sorted(recorded.files)
                if name.startswith(kind) and name.endswith(f"_dev{device}")]
    def described(array, file):
        (tmp_path / file).write_bytes(np.ascontiguousarray(array).tobytes())
        return {"dtype": "f32", "dims": list(array.shape), "file": file}
    inputs = [[described(array, f"in{device}.{i}") for i, array in enumerate(arrays("arg", device))]
              for device in range(2)]
    (tmp_path / "cases.json").write_text(json.dumps(
        [{"program": "program", "replicas": 2, "partitions": 1, "inputs": inputs}]))
    subprocess.run([BUILD / "tests" / "evaluate_batch", tmp_path], check=True)
    result = json.loads((tmp_path / "results.json").read_text())[0]
    assert "error" not in result, result
    for device, outputs in enumerate(result["outputs"]):
        wanted = arrays("out", device)
        assert len(outputs) == len(wanted) == 5
        for output, want in zip(outputs, wanted):
            got = np.fromfile(tmp_path / output["file"], np.float32).reshape(output["dims"])
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
