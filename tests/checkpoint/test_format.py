# SPDX-License-Identifier: Apache-2.0
"""h5py and ml_dtypes as readers of what the checkpoint's format writes: values bit for bit."""

import hashlib
import shutil
import subprocess

import h5py
import ml_dtypes
import numpy as np
import pytest

from conftest import ROOT
from steps import (BY_VALUE, DTYPES, PACKED, STORED_AS_BYTES, Step, every_code, pack, same_bits,
                   stored_bytes)


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
            assert stored_bytes(dataset) == values.tobytes()
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
            assert stored_bytes(dataset) == part.tobytes()


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
