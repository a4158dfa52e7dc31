# SPDX-License-Identifier: Apache-2.0
"""Steps as tests make them: dtypes, bit patterns, pieces."""

import json
import os
import subprocess

import h5py
import ml_dtypes
import numpy as np

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


def stored_bytes(dataset: h5py.Dataset) -> bytes:
    """The elements as they are in the file, without h5py's conversion."""
    file_type = dataset.id.get_type()
    out = np.empty(dataset.shape, f"V{file_type.get_size()}")
    if out.size:
        dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, out, mtype=file_type)
    return out.tobytes()
