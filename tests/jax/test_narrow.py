# SPDX-License-Identifier: Apache-2.0
"""What is computed by other means for short types: greatest and least floats by the integers that their
bits are, integers of 8 and 16 bits in lanes as narrow, complex rows of scatters as whole vectors.

NumPy is the oracle, bit for bit; of zeros a maximum takes the positive one, and NaN before all numbers.
"""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

FLOATS = {'float32': np.uint32, 'bfloat16': np.uint16, 'float16': np.uint16, 'float8_e5m2': np.uint8}
# Of one kernel, of parts side by side, of columns; lengths around vectors and cache lines.
SHAPES = [(1, 1), (3, 0), (5, 31), (33, 7), (4, 64), (70, 130), (3, 515), (520, 3), (9, 1024), (1024, 17)]


def floats(dtype, shape, kind, rng):
    """Of all patterns of bits, of few numbers, or of zeros: with NaN now and then."""
    if kind == 'bits':
        bits = rng.integers(0, 2 ** (8 * np.dtype(FLOATS[dtype]).itemsize), shape).astype(FLOATS[dtype])
        x = bits.view(jnp.dtype(dtype))
        is_rare = rng.random(shape) < 0.002
        return np.where(np.isnan(x.astype(np.float32)) & ~is_rare, np.asarray(-2, x.dtype), x)
    if kind == 'zeros':
        return np.where(rng.random(shape) < 0.8, -0.0, 0.0).astype(jnp.dtype(dtype))
    sign = {'positive': 1, 'negative': -1}[kind]
    return (sign * rng.integers(1, 200, shape)).astype(jnp.dtype(dtype))


def extreme(x, axis, is_maximum):
    """In f32, where all of these types are exact, with -0 below +0."""
    wide = x.astype(np.float32)
    initial = np.float32(-np.inf if is_maximum else np.inf)
    result = (np.max if is_maximum else np.min)(wide, axis=axis, initial=initial)
    zeros = (wide == 0) & (np.signbit(wide) != is_maximum)
    return np.where((result == 0) & zeros.any(axis=axis), np.float32(0.0 if is_maximum else -0.0),
                    np.where(result == 0, np.float32(-0.0 if is_maximum else 0.0), result))


@pytest.mark.parametrize('kind', ['bits', 'zeros', 'positive', 'negative'])
@pytest.mark.parametrize('dtype', FLOATS)
def test_extremes(device, dtype, kind):
    rng = np.random.default_rng(7)
    for shape in SHAPES:
        x = floats(dtype, shape, kind, rng)
        for axis in (0, 1, (0, 1)):
            for is_maximum in (True, False):
                reducer = lax.max if is_maximum else lax.min
                initial = np.asarray(-np.inf if is_maximum else np.inf, x.dtype)
                dims = axis if isinstance(axis, tuple) else (axis,)
                for made in (lambda x: x, jnp.negative)[:2 if kind == 'bits' else 1]:
                    call = jax.jit(lambda x: lax.reduce(made(x), initial, reducer, dims))
                    got = np.asarray(call(jax.device_put(x, device))).astype(np.float32)
                    wanted = extreme(-x if made is jnp.negative else x, axis, is_maximum)
                    assert np.array_equal(got, wanted, equal_nan=True), (shape, axis, is_maximum)
                    numbers = ~np.isnan(wanted)
                    assert np.array_equal(np.signbit(got)[numbers], np.signbit(wanted)[numbers]), (shape, axis)


@pytest.mark.parametrize('dtype', ['int8', 'uint8', 'int16', 'uint16'])
def test_narrow_integers(device, dtype):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(8)
    functions = {
        'floor divide': (lambda x: x // 7, lambda x: x // np.asarray(7, dtype)),
        'remainder': (lambda x: x % 7, lambda x: x % np.asarray(7, dtype)),
        'wraps': (lambda x: x * 3 + x, lambda x: x * np.asarray(3, dtype) + x),
        'shifts': (lambda x: (x << 3) ^ (x >> 2), lambda x: (x << np.asarray(3, dtype)) ^ (x >> np.asarray(2, dtype))),
        'chosen': (lambda x: jnp.where(x > 5, x - 5, -x), lambda x: np.where(x > 5, x - np.asarray(5, dtype), -x)),
        'count': (lax.population_count,
                  lambda x: np.array([bin(int(v) & (2 ** info.bits - 1)).count('1') for v in x], dtype)),
        'greatest': (lambda x: jnp.maximum(x, x[::-1]), lambda x: np.maximum(x, x[::-1]))}
    for size in (0, 1, 15, 16, 33, 64, 127, 1000):
        x = rng.integers(info.min, info.max, size, endpoint=True).astype(dtype)
        x[:2] = [info.min, info.max][:size]
        for name, (ours, numpys) in functions.items():
            got = np.asarray(jax.jit(ours)(jax.device_put(x, device)))
            assert got.dtype == dtype and np.array_equal(got, numpys(x)), (name, size)


@pytest.mark.parametrize('width', [1, 3, 8, 17, 64, 100])
def test_complex_rows(device, width):
    rng = np.random.default_rng(9)
    x, y = ((rng.integers(-50, 50, (40, width)) + 1j * rng.integers(-50, 50, (40, width))).astype(np.complex64)
            for _ in range(2))
    rows = rng.integers(-3, 45, 40)
    got = np.asarray(jax.jit(lambda x, i, y: x.at[i].add(y, mode='drop'))(*jax.device_put((x, rows, y), device)))
    wanted = x.copy()
    for i, update in zip(rows, y):
        if -40 <= i < 40:
            wanted[i] += update
    assert np.array_equal(got, wanted)
    got = np.asarray(jax.jit(lambda y, i: jax.ops.segment_sum(y, i, 7))(*jax.device_put((y, rows % 9), device)))
    wanted = np.zeros((7, width), np.complex64)
    for i, update in zip(rows % 9, y):
        if i < 7:
            wanted[i] += update
    assert np.array_equal(got, wanted)
