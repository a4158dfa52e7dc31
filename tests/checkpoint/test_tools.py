# SPDX-License-Identifier: Apache-2.0
"""`hekla ckpt` from the outside: exit codes, JSON, and what other libraries read of its output."""

import json
import pathlib
import shutil
import subprocess
import time

import h5py
import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

import hekla.checkpoint as checkpoint
from steps import DTYPES, PACKED, Step, every_code, pack, same_bits, stored_bytes

SAFE = {"F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
        "F8_E8M0": ml_dtypes.float8_e8m0fnu, "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
        "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz, "BF16": ml_dtypes.bfloat16, "F16": np.float16,
        "F32": np.float32, "F64": np.float64, "C64": np.complex64, "BOOL": np.bool_,
        "I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64,
        "U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "U64": np.uint64}
LACKING = {"tf32", "complex<f64>", "f8E4M3B11FNUZ", "f8E4M3", "f8E3M4"}


@pytest.fixture(scope="session")
def hekla(build):
    def run(*arguments, code=0):
        result = subprocess.run([build / "bin" / "hekla", "ckpt", *map(str, arguments)],
                                capture_output=True, text=True, timeout=120)
        assert result.returncode == code, (result.returncode, result.stdout, result.stderr)
        return json.loads(result.stdout) if "--json" in arguments else result.stdout + result.stderr
    return run


def arrays() -> dict:
    """Name -> (dtype, array): every dtype of whole bytes, flat and as a matrix."""
    state = {}
    for dtype, _, numpy in DTYPES:
        state[f"flat.{dtype}"] = (dtype, every_code(numpy))
        state[f"matrix/{dtype}"] = (dtype, np.resize(every_code(numpy), (36, 1030)))
        state[f"scalar/{dtype}"] = (dtype, every_code(numpy)[3:4].reshape(()))
        state[f"empty/{dtype}"] = (dtype, every_code(numpy)[:0].reshape(0, 2))
    return state


@pytest.fixture(scope="module")
def run_folder(build, tmp_path_factory):
    """A run with one step; matrices are cut into three files."""
    step = Step(tmp_path_factory.mktemp("tools") / "run", build)
    for name, (dtype, array) in arrays().items():
        step.add_array(name, dtype, array, cuts=3 if name.startswith("matrix") else 0)
    for dtype, _, bits in PACKED:
        codes = (np.arange(35 * 9) * 5 + 1) % (1 << bits)
        step.add(f"packed/{dtype}", dtype, (35, 9), [
            ((0, 0), (35, 4), 0, pack(codes.reshape(35, 9)[:, :4], bits)),
            ((0, 4), (35, 5), 1, pack(codes.reshape(35, 9)[:, 4:], bits))])
    path = step.write("step-000000000007")
    assert path.is_dir()
    return step.folder


@pytest.fixture
def copy(run_folder, tmp_path):
    shutil.copytree(run_folder / "step-000000000007", tmp_path / "step-000000000007")
    return tmp_path / "step-000000000007"


def test_ls_and_inspect(hekla, run_folder):
    steps = hekla("ls", run_folder, "--json")["steps"]
    assert [(s["step"], s["valid"]) for s in steps] == [(7, True)]
    assert "step 7" in hekla("ls", run_folder)
    data = hekla("inspect", run_folder, "--tensor", "^matrix/f32$", "--json")
    (tensor,) = data["tensors"]
    assert tensor["shape"] == [36, 1030] and len(tensor["pieces"]) == 3
    text = hekla("inspect", run_folder / "step-000000000007", "--sharding", "--tensor", "matrix/f32")
    assert "AAAA" in text and "CCCC" in text and "[0:12,0:1030]" in text
    hekla("inspect", run_folder, "--tensor", "(", code=4)


def test_ls_says_who_reads_and_how_old(hekla, tmp_path):
    with checkpoint.CheckpointManager(tmp_path) as manager:
        for step in (1, 2):
            manager.save(step, {"x": np.ones(3)}, metrics={"loss": step})
        manager.pin(2)
        with checkpoint.open_step(tmp_path, 1):
            steps = hekla("ls", tmp_path, "--json")["steps"]
            assert "leased" in hekla("ls", tmp_path).splitlines()[0]
        assert [(s["leased"], s["pinned"]) for s in steps] == [(True, False), (False, True)]
        assert all(0 <= s["age_seconds"] < 600 for s in steps)
        assert "leased" not in hekla("ls", tmp_path) and "s ago)" in hekla("ls", tmp_path)


def test_scrub_looks_at_every_step_at_a_low_rate(hekla, tmp_path):
    with checkpoint.CheckpointManager(tmp_path) as manager:
        for step in (1, 2, 3):
            manager.save(step, {"x": np.full(1 << 18, step)})
    start = time.monotonic()
    report = hekla("verify", tmp_path, "--scrub", "--rate", "4MB", "--json")
    # 6 MB of payload in blocks of 1 MiB; the first of each step need not wait.
    assert time.monotonic() - start > 0.5
    assert report["ok"] and len(report["steps"]) == 3
    shard = tmp_path / "step-000000000002/data/shard-00000.h5"
    data = bytearray(shard.read_bytes())
    data[1 << 20] ^= 1
    shard.write_bytes(data)
    (tmp_path / "step-000000000001/COMMIT").unlink()
    report = hekla("verify", tmp_path, "--scrub", "--rate", "1GB", "--json", code=2)
    assert [step["ok"] for step in report["steps"]] == [False, False, True]
    hekla("verify", tmp_path, "--scrub", code=64)
    hekla("verify", tmp_path / "nowhere", "--scrub", "--rate", "1GB", code=3)


def test_wrong_usage_and_missing_steps(hekla, tmp_path):
    hekla("verify", code=64)
    hekla("nonsense", code=64)
    hekla("convert", "a", "b", code=64)
    hekla("verify", tmp_path, code=3)
    hekla("verify", tmp_path / "nowhere", code=3)
    assert "error" in hekla("verify", tmp_path, "--json", code=3)
    hekla("ls", tmp_path / "nowhere", code=3)


def test_verify_finds_every_kind_of_damage(hekla, copy):
    report = hekla("verify", copy, "--json")
    assert report["ok"] and report["blocks"] > 0
    hekla("verify", copy, "--meta", "--json")

    index = hekla("inspect", copy, "--tensor", "^matrix/f64$", "--json")["tensors"][0]
    piece = index["pieces"][1]

    def flipped(path, offset, *arguments):
        data = bytearray((copy / path).read_bytes())
        data[offset] ^= 1
        (copy / path).write_bytes(data)
        report = hekla("verify", copy, "--json", *arguments, code=2)
        data[offset] ^= 1
        (copy / path).write_bytes(data)
        return report.get("problems") or [report["error"]]

    (problem,) = flipped(piece["file"], piece["offset"] + piece["bytes"] - 1)
    assert problem["file"] == piece["file"]
    for words in ("block 0", "matrix/f64", "[12:24,0:1030]", str(piece["offset"])):
        assert words in problem["what"]
    for path, offset in [("COMMIT", 50), ("index.h5", 6000), ("model.h5", 6000),
                         (piece["file"], 20), (piece["file"], 4100), (piece["file"], 4095),
                         (piece["file"], (copy / piece["file"]).stat().st_size - 5000)]:
        for arguments in ([], ["--meta"]):
            assert flipped(path, offset, *arguments), (path, offset)
    assert hekla("verify", copy, "--json")["ok"]

    shard = copy / piece["file"]
    shard.rename(copy / "away")
    assert piece["file"] in hekla("verify", copy, code=2)
    (copy / piece["file"]).write_bytes((copy / "away").read_bytes()[:-4096])
    assert "bytes" in hekla("verify", copy, code=2)


def test_verify_names_swapped_shards(hekla, build, copy, tmp_path):
    """A shard of the same layout, of another save."""
    other = Step(tmp_path / "other", build)
    one = Step(tmp_path / "one", build)
    for step, value in ((one, 1.0), (other, 2.0)):
        step.add_array("w", "f32", np.full((99, 1000), value, np.float32), cuts=3)
    first, second = one.write(), other.write()
    hekla("verify", first)
    shutil.copy(second / "data/shard-00001.h5", first / "data/shard-00001.h5")
    assert "data/shard-00001.h5" in hekla("verify", first, code=2)


def test_repair_rebuilds_index_and_view(hekla, copy):
    before = {name: (copy / name).read_bytes() for name in ("index.h5", "model.h5")}
    (copy / "index.h5").unlink()
    (copy / "model.h5").write_bytes(b"not HDF5")
    hekla("verify", copy, code=2)
    assert len(hekla("repair", copy.parent, "--dry-run", "--json")["done"]) == 2
    assert not (copy / "index.h5").exists()
    assert "rebuilt" in hekla("repair", copy.parent)
    for name, data in before.items():
        assert (copy / name).read_bytes() == data
    hekla("verify", copy)
    assert "nothing to do" in hekla("repair", copy.parent)
    (copy / "model.h5").unlink()
    shard = copy / "data/shard-00001.h5"
    shard.write_bytes(shard.read_bytes()[:-1])
    assert "shard-00001.h5" in hekla("repair", copy.parent, code=2)
    # Nothing is deleted: the step is put aside.
    assert any(path.name.startswith(".bad-step") for path in copy.parent.iterdir())


def test_gc_adopts_and_deletes(hekla, copy):
    root = copy.parent
    dead = root / ".tmp-000000000009-dead"
    (dead / "data").mkdir(parents=True)
    finished = root / ".tmp-000000000007-6e6f6e6365"
    copy.rename(finished)
    assert len(hekla("gc", root, "--dry-run", "--json")["done"]) == 2
    assert dead.exists() and finished.exists()
    hekla("gc", root)
    assert not dead.exists() and not finished.exists() and copy.exists()
    hekla("verify", copy)
    assert "nothing to do" in hekla("gc", root)
    hekla("gc", root / "nowhere", code=3)


def test_consolidate_gives_one_plain_file(hekla, run_folder, tmp_path):
    out = tmp_path / "all.h5"
    hekla("consolidate", run_folder, out)
    with h5py.File(out) as file:
        for name, (_, array) in arrays().items():
            dataset = file[name]
            assert dataset.shape == array.shape and not dataset.is_virtual
            assert stored_bytes(dataset) == array.tobytes(), name
        for dtype, _, bits in PACKED:
            codes = (np.arange(35 * 9) * 5 + 1) % (1 << bits)
            assert file[f"packed/{dtype}"][...].tobytes() == pack(codes, bits)
    assert [path.name for path in tmp_path.iterdir()] == ["all.h5"]


@pytest.mark.parametrize("arguments", [["--gzip", 4], ["--chunk", "4KiB"],
                                       ["--chunk", "48000", "--gzip", 1]], ids=str)
def test_consolidate_in_chunks(hekla, build, run_folder, tmp_path, arguments):
    chunk = {"4KiB": 4096, "48000": 48000}.get(arguments[1], 1 << 20)

    def check(path, arrays):
        with h5py.File(path) as file:
            for name, array in arrays.items():
                dataset = file[name]
                assert dataset.shape == array.shape and not dataset.is_virtual
                assert stored_bytes(dataset) == array.tobytes(), name
                if array.nbytes < 64 << 10:
                    assert dataset.chunks is None
                    continue
                assert np.prod(dataset.chunks) * array.itemsize <= chunk, dataset.chunks
                if "--gzip" in arguments:
                    assert dataset.compression == "gzip" and dataset.shuffle
                    assert dataset.compression_opts == arguments[-1]
                else:
                    assert dataset.compression is None and not dataset.shuffle
    out = tmp_path / "all.h5"
    hekla("consolidate", run_folder, out, *arguments)
    check(out, {name: array for name, (_, array) in arrays().items()})
    with h5py.File(out) as file:
        for dtype, _, bits in PACKED:
            codes = (np.arange(35 * 9) * 5 + 1) % (1 << bits)
            assert file[f"packed/{dtype}"][...].tobytes() == pack(codes, bits)
    # Shapes that chunks do not divide, many chunks, values that shrink and that do not.
    random = np.random.default_rng(3)
    state = {"ramp": np.arange(3_000_017, dtype=np.int32),
             "noise": random.integers(0, 256, (1000, 1001), np.uint8),
             "half": np.concatenate([np.zeros(400_000, np.float64), random.normal(size=400_001)]),
             "deep": np.resize(np.arange(77, dtype=np.complex128), (3, 5, 7, 11, 13))}
    step = Step(tmp_path / "run", build)
    for name, array in state.items():
        step.add_array(name, {"i": "i32", "u": "ui8", "f": "f64", "c": "complex<f64>"}[
            array.dtype.kind], array)
    more = tmp_path / "more.h5"
    hekla("consolidate", step.write(), more, *arguments)
    check(more, state)
    if "--gzip" in arguments:
        with h5py.File(more) as file:
            assert file["ramp"].id.get_storage_size() < state["ramp"].nbytes / 2
            assert file["noise"].id.get_storage_size() >= state["noise"].nbytes
    hekla("consolidate", run_folder, tmp_path / "x.h5", "--chunk", "100", code=4)
    hekla("consolidate", run_folder, tmp_path / "x.h5", "--gzip", "12", code=64)
    assert not (tmp_path / "x.h5").exists()


def safe_arrays(path: pathlib.Path) -> dict:
    """Name -> array, by PyPI's safetensors."""
    tensors = {}
    for name, entry in safetensors.deserialize(path.read_bytes()):
        dtype = SAFE.get(entry["dtype"], np.uint8)
        data = np.frombuffer(bytes(entry["data"]), dtype)
        tensors[name] = data.reshape(entry["shape"]) if entry["dtype"] in SAFE else data
    return tensors


def test_safetensors_there_and_back(hekla, run_folder, tmp_path):
    out = tmp_path / "model.safetensors"
    report = hekla("convert", run_folder, out, "--to", "safetensors", "--json")
    lacking = {name for name, (dtype, _) in arrays().items() if dtype in LACKING}
    assert lacking <= set(report["as_bytes"])
    read = safe_arrays(out)
    for name, (dtype, array) in arrays().items():
        if dtype in LACKING:
            assert read[name].tobytes() == array.tobytes()
        else:
            assert same_bits(read[name], array), name
    # Its own loader accepts the file.
    with safetensors.safe_open(out, "numpy") as file:
        assert file.metadata()["format"] == "pt"
        assert same_bits(file.get_tensor("matrix/f32"), arrays()["matrix/f32"][1])

    back = tmp_path / "back"
    written = hekla("convert", out, back, "--from", "safetensors", "--step", 9, "--json")
    assert written["files"] == [str(back / "step-000000000009")]
    hekla("verify", back)
    assert hekla("diff", run_folder, back, "--json")["equal"]
    hekla("convert", out, back, "--from", "safetensors", "--step", 9, code=4)  # exists
    hekla("convert", out, back, "--from", "safetensors", "--step", 10)
    assert [step["step"] for step in hekla("ls", back, "--json")["steps"]] == [9, 10]


def test_many_safetensors_files(hekla, run_folder, tmp_path):
    out = tmp_path / "out"
    report = hekla("convert", run_folder, out, "--to", "safetensors", "--max-shard", "300KB", "--json")
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert len(report["files"]) == len(set(index["weight_map"].values())) + 1 > 5
    assert index["metadata"]["total_size"] == report["bytes"]
    for file in set(index["weight_map"].values()):
        assert index["weight_map"].items() >= dict.fromkeys(safe_arrays(out / file), file).items()
    hekla("convert", out, tmp_path / "run", "--from", "safetensors")
    assert hekla("diff", run_folder, tmp_path / "run", "--json")["equal"]


def test_safetensors_written_by_its_own_library(hekla, tmp_path):
    state = {"a.b": np.arange(12, dtype=np.float32).reshape(3, 4), "z": np.array(5, np.int64),
             "größe/重み": np.ones((0, 3), np.float16)}
    safetensors.numpy.save_file(state, tmp_path / "in.safetensors", {"note": "x"})
    hekla("convert", tmp_path / "in.safetensors", tmp_path / "run", "--from", "safetensors",
          "--step", 3)
    with h5py.File(tmp_path / "run" / "step-000000000003" / "model.h5") as file:
        for name, array in state.items():
            assert same_bits(np.asarray(file[name][()]), array)


def raw_safetensors(header, data=b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


A = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}


@pytest.mark.parametrize("content,words", [
    (b"", "ends"), (b"\xff" * 8, "bytes"), ((1 << 40).to_bytes(8, "little") + b"{}", "limit"),
    (raw_safetensors(b"[]"), "object"), (raw_safetensors(b"{"), "object"),
    (raw_safetensors(b"{" + b'"a":{"b":' * 10000), "deeply"),
    (raw_safetensors({"a": A}, b"123"), "end at 4"),
    (raw_safetensors({"a": A}, b"12345"), "end at 4"),
    (raw_safetensors({"a": A, "b": {**A, "data_offsets": [5, 9]}}, b"1" * 9), "begins at 5"),
    (raw_safetensors({"a": A, "b": {**A, "data_offsets": [2, 6]}}, b"1" * 6), "begins at 2"),
    (raw_safetensors({"a": {**A, "shape": [5]}}, b"1234"), "takes 5"),
    (raw_safetensors({"a": {**A, "shape": [-4]}}, b"1234"), "no size"),
    (raw_safetensors({"a": {**A, "shape": [1 << 62, 1 << 62]}}, b"1234"), "'a'"),
    (raw_safetensors({"a": {**A, "shape": [1e30]}}, b"1234"), "no size"),
    (raw_safetensors(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
                     b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'), "twice"),
    (raw_safetensors({"__metadata__": {"a": 1}}), "no text"),
    (raw_safetensors({"a": {"dtype": "U8"}}), "needs"),
])
def test_bad_safetensors_are_refused(hekla, tmp_path, content, words):
    (tmp_path / "bad.safetensors").write_bytes(content)
    text = hekla("convert", tmp_path / "bad.safetensors", tmp_path / "run", "--from", "safetensors",
                 code=2)
    assert words in text
    assert not (tmp_path / "run").exists()


def test_reshard_keeps_every_bit(hekla, run_folder, tmp_path):
    out = tmp_path / "out"
    hekla("reshard", run_folder, out, "--mesh", "(data:2,model:4)", "--spec",
          "packed/*=(None,model)", "--spec", "(data,model)")
    hekla("verify", out)
    data = hekla("inspect", out, "--tensor", "^matrix/f32$", "--json")
    (tensor,) = data["tensors"]
    assert len(tensor["pieces"]) == 8 and data["world_size"] == 8
    report = hekla("diff", run_folder, out, "--json", code=1)
    assert {entry["what"][:4] for entry in report["differences"]} == {"spec"}
    hekla("reshard", run_folder, tmp_path / "x", "--mesh", "(data:0)", "--spec", "()", code=4)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_diff_says_what_differs(hekla, build, tmp_path):
    a, b = Step(tmp_path / "a", build), Step(tmp_path / "b", build)
    values = np.linspace(-1, 1, 70000).astype(np.float32)
    changed = values.copy()
    changed[500] = np.nextafter(np.nextafter(changed[500], np.float32(2)), np.float32(2))
    changed[501] = np.nan
    a.add_array("w", "f32", values)
    b.add_array("w", "f32", changed)
    a.add_array("shape", "f32", values[:4])
    b.add_array("shape", "f32", values[:5])
    a.add_array("gone", "i8", np.zeros(3, np.int8))
    b.add_array("new", "i8", np.zeros(3, np.int8))
    a.add_array("same", "bf16", every_code(ml_dtypes.bfloat16))
    b.add_array("same", "bf16", every_code(ml_dtypes.bfloat16))
    report = hekla("diff", a.write(), b.write(), "--json", code=1)
    by_name = {entry["tensor"]: entry for entry in report["differences"]}
    assert set(by_name) == {"w", "shape", "gone", "new"}
    assert by_name["w"]["different"] == 2 and by_name["w"]["first"] == 500
    assert by_name["w"]["max_ulp"] == 2
    assert by_name["w"]["max_absolute"] == float(changed[500]) - float(values[500])
    assert "only in the first" in by_name["gone"]["what"]
    text = hekla("diff", a.folder / "step", b.folder / "step", "--ulp", "--tensor", "^w$", code=1)
    assert "2 of 70000 elements" in text and "2 ulp" in text


def test_bench_measures_and_cleans_up(hekla, tmp_path):
    report = hekla("bench", tmp_path / "bench", "--size", "128MiB", "--ranks", 3, "--repeat", 1,
                   "--json")
    assert report["bytes"] == 128 << 20
    for name in ("save", "restore"):
        assert report[name]["share_of_raw"] > 0
    assert not (tmp_path / "bench").exists()
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("x")
    hekla("bench", tmp_path / "used", code=4)
    assert (tmp_path / "used" / "file").exists()
