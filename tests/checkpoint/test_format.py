# SPDX-License-Identifier: Apache-2.0
"""h5py and ml_dtypes as readers of what the checkpoint's format writes: values bit for bit."""

import hashlib
import json
import os
import shutil
import subprocess

import h5py
import ml_dtypes
import numpy as np
import pytest

from conftest import ROOT

# StableHLO's name, logical_dtype, and what NumPy has for it in memory.
DTYPES = [
    ("i1", "bool", np.bool_),
    ("i8", "int8", np.int8), ("i16", "int16", np.int16),
    ("i32", "int32", np.int32), ("i64", "int64", np.int64),
    ("ui8", "uint8", np.uint8), ("ui16", "uint16", np.uint16),
    ("ui32", "uint32", np.uint32), ("ui64", "uint64", np.uint64),
    ("f16", "float16", np.float16), ("f32", "float32", np.float32), ("f64", "float64", np.float64),
    ("tf32", "tf32", np.float32),
    ("complex<f32>", "complex64", np.complex64), ("complex<f64>", "complex128", np.complex128),
    ("bf16", "bfloat16", ml_dtypes.bfloat16),
    ("f8E5M2", "float8_e5m2", ml_dtypes.float8_e5m2),
    ("f8E4M3FN", "float8_e4m3fn", ml_dtypes.float8_e4m3fn),
    ("f8E4M3FNUZ", "float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz),
    ("f8E4M3B11FNUZ", "float8_e4m3b11fnuz", ml_dtypes.float8_e4m3b11fnuz),
    ("f8E5M2FNUZ", "float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz),
    ("f8E8M0FNU", "float8_e8m0fnu", ml_dtypes.float8_e8m0fnu),
    ("f8E4M3", "float8_e4m3", ml_dtypes.float8_e4m3),
    ("f8E3M4", "float8_e3m4", ml_dtypes.float8_e3m4),
]
PACKED = [("i4", "int4", 4), ("ui4", "uint4", 4), ("i2", "int2", 2), ("ui2", "uint2", 2),
          ("f4E2M1FN", "float4_e2m1fn", 4), ("f6E2M3FN", "float6_e2m3fn", 6),
          ("f6E3M2FN", "float6_e3m2fn", 6)]
STORED_AS_BYTES = {"f8E4M3FN", "f8E4M3FNUZ", "f8E4M3B11FNUZ", "f8E5M2FNUZ", "f8E8M0FNU", "f8E4M3",
                   "f8E3M4"}
BY_VALUE = {"bf16": np.float32, "f8E5M2": np.float16}  # what h5py shows


def every_code(dtype) -> np.ndarray:
    """Bit patterns of a dtype: all of them up to 16 bits, random ones and edges above."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return np.arange(256) % 3 == 1
    if dtype.itemsize <= 2:
        return np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype)
    random = np.random.default_rng(7).integers(0, 256, 4096 * dtype.itemsize, np.uint8).view(dtype)
    if dtype.kind in "fc":
        with np.errstate(all="ignore"):
            random[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(dtype).tiny / 2]
    return random


def pack(codes: np.ndarray, bits: int) -> bytes:
    """Codes of `bits` bits, the first one in the lowest bits: by one big integer."""
    whole = 0
    for i, code in enumerate(codes.ravel().tolist()):
        whole |= code << (i * bits)
    return whole.to_bytes((codes.size * bits + 7) // 8, "little")


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


class Step:
    def __init__(self, folder, build, files=3):
        self.folder, self.build, self.files = folder, build, files
        self.tensors, self.pieces = [], []
        folder.mkdir(exist_ok=True)

    def add(self, name, dtype, shape, boxes):
        """boxes: (start, size, file, bytes)."""
        number = len(self.tensors)
        self.tensors.append({"name": name, "dtype": dtype, "shape": list(shape)})
        for start, size, file, data in boxes:
            path = self.folder / f"piece{len(self.pieces)}.bin"
            path.write_bytes(data)
            self.pieces.append({"tensor": number, "start": list(start), "size": list(size),
                                "file": file, "data": str(path)})

    def add_array(self, name, dtype, array, cuts=0):
        """An array in one piece, or cut along its first dimension over the files."""
        boxes = []
        for i, rows in enumerate(np.array_split(np.arange(array.shape[0]), cuts) if cuts else [None]):
            part = array if rows is None else array[rows]
            start = [0] * array.ndim
            if rows is not None:
                start[0] = int(rows[0])
            boxes.append((start, part.shape, i % self.files, np.ascontiguousarray(part).tobytes()))
        self.add(name, dtype, array.shape, boxes)

    def run(self, name="step", env=None):
        description = self.folder / "description.json"
        description.write_text(json.dumps({"step": 7, "files": self.files, "tensors": self.tensors,
                                           "pieces": self.pieces}))
        return subprocess.run([self.build / "tests" / "write_checkpoint", description,
                               self.folder / name], capture_output=True, text=True, timeout=60,
                              env={**os.environ, **(env or {})})

    def write(self, name="step", env=None):
        result = self.run(name, env)
        assert result.returncode == 0, result.stderr
        return self.folder / name


@pytest.fixture(scope="module")
def step(build, tmp_path_factory):
    """One step with every dtype, whole and cut in three."""
    step = Step(tmp_path_factory.mktemp("format") / "work", build)
    for dtype, _, numpy in DTYPES:
        array = every_code(numpy)
        step.add_array(f"whole/{dtype}", dtype, array)
        step.add_array(f"cut/{dtype}", dtype, array.reshape(-1, 2), cuts=3)
        step.add_array(f"large/{dtype}", dtype, np.resize(array, (160, 1000)), cuts=2)
        step.add_array(f"scalar/{dtype}", dtype, array[5:6].reshape(()))
        step.add_array(f"empty/{dtype}", dtype, array[:0].reshape(0, 3))
    for dtype, _, bits in PACKED:
        codes = (np.arange(35 * 8) * 5 + 1) % (1 << bits)
        step.add(f"whole/{dtype}", dtype, (35, 8), [((0, 0), (35, 8), 1, pack(codes, bits))])
        step.add(f"cut/{dtype}", dtype, (35, 8),
                 [((0, 0), (17, 8), 0, pack(codes[:17 * 8], bits)),
                  ((17, 0), (18, 8), 2, pack(codes[17 * 8:], bits))])
        step.add(f"columns/{dtype}", dtype, (35, 8),
                 [((0, 0), (35, 4), 0, pack(codes.reshape(35, 8)[:, :4], bits)),
                  ((0, 4), (35, 4), 1, pack(codes.reshape(35, 8)[:, 4:], bits))])
    path = step.write()
    moved = step.folder.parent / "moved away"
    shutil.move(path, moved)
    return moved


def raw(dataset: h5py.Dataset) -> bytes:
    """The stored bytes, without h5py's conversion."""
    file_type = dataset.id.get_type()
    out = np.empty(dataset.shape, f"V{file_type.get_size()}")
    if out.size:
        dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, out, mtype=file_type)
    return out.tobytes()


@pytest.mark.parametrize("dtype,logical,numpy", DTYPES, ids=[d[0] for d in DTYPES])
def test_view_shows_every_value(step, dtype, logical, numpy):
    array = every_code(numpy)
    expected = {"whole": array, "cut": array.reshape(-1, 2), "large": np.resize(array, (160, 1000)),
                "scalar": array[5:6].reshape(()), "empty": array[:0].reshape(0, 3)}
    with h5py.File(step / "model.h5") as file:
        for group, values in expected.items():
            dataset = file[f"{group}/{dtype}"]
            assert dataset.shape == values.shape
            assert dataset.attrs["logical_dtype"] == logical
            assert raw(dataset) == values.tobytes()
            shown = dataset[...] if dataset.shape else np.asarray(dataset[()])
            if dtype in STORED_AS_BYTES:
                assert same_bits(shown, values.view(np.uint8))
            elif dtype in BY_VALUE:
                assert shown.dtype == BY_VALUE[dtype]
                np.testing.assert_array_equal(shown, values.astype(BY_VALUE[dtype]))
            else:
                assert same_bits(shown, values)


@pytest.mark.parametrize("dtype,logical,bits", PACKED, ids=[d[0] for d in PACKED])
def test_view_shows_packed_bytes(step, dtype, logical, bits):
    codes = (np.arange(35 * 8) * 5 + 1) % (1 << bits)
    with h5py.File(step / "model.h5") as file:
        for group in ("whole", "cut"):
            dataset = file[f"{group}/{dtype}"]
            assert dataset[...].tobytes() == pack(codes, bits)
            assert dataset.attrs["logical_dtype"] == logical
            # A link shows the piece, a virtual dataset the tensor; they are the same here.
            assert list(dataset.attrs["logical_shape"]) == [35, 8]
        columns = file[f"columns/{dtype}"]
        assert columns.shape is None and "consolidate" in columns.attrs["warning"]


@pytest.mark.parametrize("dtype,logical,numpy", DTYPES, ids=[d[0] for d in DTYPES])
def test_shards_hold_the_pieces(step, dtype, logical, numpy):
    array = every_code(numpy).reshape(-1, 2)
    parts = np.array_split(array, 3)
    for number, part in enumerate(parts):
        with h5py.File(step / f"data/shard-{number:05}.h5") as file:
            dataset = file[f"state/cut/{dtype}/p{number}"]
            assert dataset.attrs["logical_dtype"] == logical
            assert raw(dataset) == part.tobytes()


def test_index_describes_the_step(step):
    with h5py.File(step / "index.h5") as file:
        ends = file["tensors/name/end"][...]
        names = file["tensors/name/utf8"][...].tobytes()
        first = names[:ends[0]].decode()
        assert first == "whole/i1"
        assert file["pieces/tensor"].shape == file["pieces/box_start"].shape[:1]
        # Every piece's bytes lie where the index says.
        paths = file["files/path/utf8"][...].tobytes().decode()
        assert paths.startswith("data/shard-00000.h5data/")
        piece = int(np.flatnonzero(file["pieces/tensor"][...] == 0)[0])
        number, offset, size = (int(file[f"pieces/{k}"][piece]) for k in ("file", "offset", "bytes"))
    data = (step / f"data/shard-{number:05}.h5").read_bytes()[offset:offset + size]
    assert data == every_code(np.bool_).tobytes()


def test_h5dump_opens_every_file(step):
    if shutil.which("h5dump") is None:
        pytest.skip("h5dump is not installed")
    for path in ["index.h5", "model.h5", "data/shard-00000.h5"]:
        result = subprocess.run(["h5dump", "-H", step / path], capture_output=True, timeout=60)
        assert result.returncode == 0 and not result.stderr


def test_the_page_for_h5py_users(step):
    """The function of docs/reading_checkpoints.md gives every tensor in its own dtype."""
    page = (ROOT / "docs" / "reading_checkpoints.md").read_text(encoding="utf-8")
    names = {}
    exec(page.split("```python\n")[1].split("```")[0], names)  # pylint: disable=exec-used
    for dtype, _, numpy in DTYPES:
        array = every_code(numpy)
        assert same_bits(names["tensor"](step, f"whole/{dtype}"), array)
        assert same_bits(names["tensor"](step, f"cut/{dtype}"), array.reshape(-1, 2))
        assert same_bits(names["tensor"](step, f"scalar/{dtype}"), array[5:6].reshape(()))
    for dtype, _, bits in PACKED:
        codes = (np.arange(35 * 8) * 5 + 1) % (1 << bits)
        assert names["tensor"](step, f"cut/{dtype}").tobytes() == pack(codes, bits)
        with pytest.raises(ValueError):
            names["tensor"](step, f"columns/{dtype}")


def test_a_missing_shard_shows_as_nan_or_a_key_error(step, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(step, broken)
    (broken / "data/shard-00000.h5").unlink()
    with h5py.File(broken / "model.h5") as file:
        with pytest.raises(KeyError):
            file["whole/f32"][...]
        for dtype in ("f16", "f32", "f64", "bf16", "complex<f32>", "f8E5M2"):
            dataset = file[f"cut/{dtype}"]
            assert np.isnan(dataset[0]).all()
            assert dataset.attrs["expected_files"] == 3
        # Nothing in the values of an integer can say it; the attribute does.
        assert (file["cut/i32"][0] == 0).all()
        assert "hekla ckpt verify" in file["cut/i32"].attrs["warning"]


def test_images_are_the_same_bytes_in_every_run(build, tmp_path):
    step = Step(tmp_path / "work", build)
    step.add_array("a/b", "f32", np.arange(100000, dtype=np.float32).reshape(100, 1000), cuts=3)
    step.add_array("a/c", "bf16", np.arange(9, dtype=np.uint16).view(ml_dtypes.bfloat16))

    def digests(path):
        return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
                for file in sorted(path.rglob("*")) if file.is_file()}

    first = digests(step.write("one"))
    # Memory that was never written would show.
    second = digests(step.write("two", {"MALLOC_PERTURB_": "165"}))
    assert first == second and len(first) == 6


NAMES = ["a.b.c", "layers.0.weight", "with space", "größe/重み/🌋", "p0", "state", "state/p0/p1",
         "__pieces", "100%/%b", "%s", "data/shard-00000.h5", "x" * 255, "long/" + "y" * 3000,
         "/".join("d" * 100), "back\\slash", "'quotes\"", "...", "~", "a:b"]


@pytest.mark.parametrize("cuts", [0, 2], ids=["link", "virtual"])
def test_names(build, tmp_path, cuts):
    step = Step(tmp_path / "work", build)
    for i, name in enumerate(NAMES):
        if name == "state":
            continue  # a group of another name in the list
        step.add_array(name, "f32", np.full((4, 3), i, np.float32), cuts=cuts)
    path = step.write()
    with h5py.File(path / "model.h5") as file:
        for i, name in enumerate(NAMES):
            if name != "state":
                assert (file[name][...] == i).all(), name


@pytest.mark.parametrize("names,words", [
    ([""], "empty"), (["."], "part '.'"), ([".."], "part '..'"), (["a//b"], "part ''"),
    (["/a"], "part ''"), (["a/"], "part ''"), (["a/../b"], "part '..'"), (["a\nb"], "control"),
    (["a\x00b"], "control"), (["x" * 4097], "4097 bytes"), (["a", "a/b"], "group"),
    (["a/b/c", "a/b"], "group"), (["a", "a"], "two tensors"), (["a/" * 128 + "b"], "129 levels")])
def test_names_that_no_file_can_hold_are_refused(build, tmp_path, names, words):
    step = Step(tmp_path / "work", build)
    for name in names:
        step.add_array(name, "f32", np.zeros(4, np.float32))
    result = step.run()
    assert result.returncode == 1
    assert "INVALID_ARGUMENT" in result.stderr and words in result.stderr


def test_boxes_of_any_kind(build, tmp_path):
    """Random boxes in up to eight dimensions, some of them empty."""
    random = np.random.default_rng(3)
    step = Step(tmp_path / "work", build)
    expected = {}
    for number in range(60):
        rank = int(random.integers(0, 9))
        shape = tuple(int(n) for n in random.integers(1, 5, rank))
        array = random.standard_normal(shape).astype(np.float32)
        # Cut some dimensions at random places, all boxes of the grid are pieces.
        boxes = [((), ())]
        for size in shape:
            places = sorted({0, size, int(random.integers(0, size + 1))})
            boxes = [(start + (a,), length + (b - a,)) for start, length in boxes
                     for a, b in zip(places, places[1:])]
        data = []
        for start, length in boxes:
            part = array[tuple(slice(a, a + n) for a, n in zip(start, length))]
            data.append((start, length, int(random.integers(0, 3)),
                         np.ascontiguousarray(part).tobytes()))
        if rank:
            data.append(((0,) * rank, (0,) + shape[1:], 0, b""))
        random.shuffle(data)
        step.add(f"t{number}", "f32", shape, data)
        expected[f"t{number}"] = array
    path = step.write()
    with h5py.File(path / "model.h5") as file:
        for name, array in expected.items():
            assert same_bits(np.asarray(file[name][()]), array), name


def test_more_files_than_readers_can_open(build, tmp_path):
    step = Step(tmp_path / "work", build, files=130)
    step.add_array("all", "f32", np.arange(260, dtype=np.float32).reshape(130, 2), cuts=130)
    step.add_array("most", "f32", np.arange(256, dtype=np.float32).reshape(128, 2), cuts=128)
    path = step.write()
    with h5py.File(path / "model.h5") as file:
        assert file["all"].shape is None
        assert "130 files" in file["all"].attrs["warning"]
        assert (file["most"][...].ravel() == np.arange(256)).all()
