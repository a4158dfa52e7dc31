# SPDX-License-Identifier: Apache-2.0
"""Inputs that are made by a rule instead of being stored, and arrays in files.

Element k (row-major) of an input with seed s comes from u = splitmix64(s * GOLDEN + k), all in
unsigned 64-bit arithmetic, and r = (u >> 11) * 2^-53, which lies in [0, 1):
  uniform   low + (high - low) * r, computed in f64, rounded once to the dtype
  integers  low + floor(r * (high - low))
  constant  low
splitmix64 is Steele, Lea and Flood's generator ("Fast splittable pseudorandom number generators",
OOPSLA 2014) with its usual finaliser; it needs no state, so any element can be made alone.
"""
import dataclasses
import json
import pathlib

import ml_dtypes
import numpy as np

GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1

# Names as in case.json: StableHLO's. Types that .npy cannot name are stored as unsigned integers of
# their width.
DTYPES = {
    'i1': np.dtype(bool), 'bf16': np.dtype(ml_dtypes.bfloat16),
    'i8': np.dtype(np.int8), 'i16': np.dtype(np.int16), 'i32': np.dtype(np.int32),
    'i64': np.dtype(np.int64), 'ui8': np.dtype(np.uint8), 'ui16': np.dtype(np.uint16),
    'ui32': np.dtype(np.uint32), 'ui64': np.dtype(np.uint64), 'f16': np.dtype(np.float16),
    'f32': np.dtype(np.float32), 'f64': np.dtype(np.float64),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
RAW = {'bf16': np.uint16}


@dataclasses.dataclass(frozen=True)
class Rule:
    """One input made by a rule. shape: dimensions; low and high: numbers (high is left out)."""
    shape: tuple
    seed: int
    low: float
    high: float = 0.0
    kind: str = 'uniform'
    dtype: str = 'f32'

    def make(self):
        """The whole array, in its own dtype."""
        count = int(np.prod(self.shape, dtype=np.int64))
        if self.kind == 'constant':
            values = np.full(count, self.low, np.float64)
        else:
            with np.errstate(over='ignore'):
                start = np.uint64((self.seed * GOLDEN) & MASK)
                z = start + np.arange(count, dtype=np.uint64) + np.uint64(GOLDEN)
                z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                u = z ^ (z >> np.uint64(31))
            r = (u >> np.uint64(11)).astype(np.float64) * 2.0**-53
            if self.kind == 'uniform':
                values = self.low + (self.high - self.low) * r
            elif self.kind == 'integers':
                values = self.low + np.floor(r * (self.high - self.low))
            else:
                raise ValueError(f'unknown kind of rule: {self.kind}')
        if self.dtype in RAW and self.kind == 'uniform':
            # numpy rounds f64 to bf16 by way of f32, i.e. twice.
            raise ValueError(f'no uniform rule for {self.dtype}')
        return values.astype(DTYPES[self.dtype]).reshape(self.shape)

    def to_json(self):
        return {'rule': {'dtype': self.dtype, 'shape': list(self.shape), 'seed': self.seed,
                         'kind': self.kind, 'low': self.low, 'high': self.high}}


def save_array(path, array):
    """Writes array as .npy; returns its dtype name for case.json."""
    name = NAMES[array.dtype]
    raw = array.view(RAW[name]) if name in RAW else array
    np.save(path, np.asarray(raw, order='C'))
    return name


def load_array(path, dtype):
    """Reads what save_array wrote."""
    array = np.load(path)
    return array.view(DTYPES[dtype]) if dtype in RAW else array


def load_inputs(folder):
    """All inputs of the case in folder, flat, as numpy arrays."""
    folder = pathlib.Path(folder)
    case = json.loads((folder / 'case.json').read_text())
    inputs = []
    for entry in case['inputs']:
        if 'rule' in entry:
            rule = dict(entry['rule'])
            inputs.append(Rule(**{**rule, 'shape': tuple(rule['shape'])}).make())
        else:
            inputs.append(load_array(folder / entry['file'], entry['dtype']))
    return inputs
