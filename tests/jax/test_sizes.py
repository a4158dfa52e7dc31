# SPDX-License-Identifier: Apache-2.0
"""Everyday operations at sizes that change how a device runs them, against jaxlib's CPU.

Sizes decide how many elements a kernel does side by side, how it goes through memory and how many
kernels an operation becomes. The shapes here lie on both sides of those decisions: short and long
along each dimension, one below, at and above powers of two, and large enough that every core and
several workgroups take part. test_ops.py has the breadth, at small shapes.
"""
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from compare import check_same

SHAPES = ((1, 1), (7, 9), (16, 320), (17, 321), (9, 1000), (320, 9), (1, 5000), (4097, 1), (64, 256),
          (257, 255))


def both(function):
    """Along each of the two dimensions."""
    return lambda x, *rest: (function(x, 0, *rest), function(x, 1, *rest))


def take(x, rows):
    return x[rows % x.shape[0]], x[:, rows % x.shape[1]]


def scatter(x, rows):
    at = rows % x.shape[0]
    return (x.at[at].add(jnp.ones((rows.size, x.shape[1]), x.dtype)),
            x.at[:, rows % x.shape[1]].max(jnp.full((x.shape[0], rows.size), 3, x.dtype)),
            jax.ops.segment_sum(x, jnp.arange(x.shape[0]) % 5, num_segments=5))


def stencil(x):
    padded = jnp.pad(x, 1, mode='wrap')
    n, m = x.shape
    around = sum(padded[i:n + i, j:m + j] for i in range(3) for j in range(3))
    return jnp.where(around % 3 == 0, x, around.astype(x.dtype))


def many(x):
    """Many pieces put together, as when the parameters of a network become one vector."""
    rows = [x[i % x.shape[0]] * (i + 1) for i in range(70)]
    pieces = [row[:i % 9] for i, row in enumerate(rows)]
    return (jnp.stack(rows), jnp.stack(rows, -1), jnp.concatenate(pieces), lax.concatenate(rows, 0) + 1,
            jnp.concatenate([x[:, :1], *[x * i for i in range(9)]], axis=1))


def merge_like(x):
    """Each column goes through its rows by a cursor of its own, as merges do."""
    def step(cursor, _):
        value = jnp.take_along_axis(x, cursor[None], axis=0)[0]
        return jnp.minimum(cursor + jnp.where(value > 0, 2, 1), x.shape[0] - 1), value
    return lax.scan(step, jnp.zeros(x.shape[1], jnp.int32), length=min(x.shape[0], 50))


def windows(x):
    image = x[None, :, :, None]
    return (lax.reduce_window(x, -jnp.inf, lax.max, (3, 2), (2, 1), 'SAME'),
            lax.reduce_window(x, 0.0, lax.add, (1, 3), (1, 2), 'SAME'),
            lax.conv_general_dilated(image, jnp.ones((3, 3, 1, 4), x.dtype), (1, 1), 'SAME',
                                     dimension_numbers=('NHWC', 'HWIO', 'NHWC')))


def until_done(x):
    """A loop whose trip count depends on the data, over an array."""
    return lax.while_loop(lambda s: jnp.any(s[0] > 1), lambda s: (s[0] // 2, s[1] + 1),
                          (jnp.abs(x), 0))


# Name, function, dtype, whether it takes a list of indices too.
FAMILIES = {
    'sort-f32': (both(jnp.sort), 'float32', False),
    'sort-i32': (both(jnp.sort), 'int32', False),
    'sort-u8': (both(jnp.sort), 'uint8', False),
    'argsort-f32': (both(jnp.argsort), 'float32', False),
    'sort-pairs': (both(lambda x, axis: lax.sort((x, -x, x * 2), dimension=axis, num_keys=2)),
                   'float32', False),
    'top_k': (lambda x: lax.top_k(x, min(5, x.shape[1])), 'float32', False),
    'cumulative': (both(lambda x, axis: (jnp.cumsum(x, axis), lax.cummax(x, axis))), 'int32', False),
    'reductions': (both(lambda x, axis: (x.sum(axis), x.max(axis), jnp.argmin(x, axis), x.var(axis))),
                   'float32', False),
    'softmax': (both(jax.nn.softmax), 'float32', False),
    'matmul': (lambda x: (x @ x.T, x.T @ x, x @ x[0]), 'float32', False),
    'matmul-i8': (lambda x: jnp.matmul(x, x.T, preferred_element_type=jnp.int32), 'int8', False),
    'movement': (lambda x: (x.T, x[::-1, ::2], jnp.concatenate([x, x[:1]]), jnp.roll(x, 3, 1),
                            x.reshape(-1)[: x.size // 2]), 'float32', False),
    'movement-u8': (lambda x: (x.T, x[::-1], jnp.tile(x, (2, 2)), x[:, ::-1]), 'uint8', False),
    'many-pieces': (many, 'float32', False),
    'gather': (take, 'float32', True),
    'scatter': (scatter, 'int32', True),
    'stencil-u8': (stencil, 'uint8', False),
    'windows': (windows, 'float32', False),
    'fft': (lambda x: jnp.abs(jnp.fft.rfft(x)), 'float32', False),
    'merge-like': (merge_like, 'float32', False),
    'until-done': (until_done, 'int32', False),
}


@pytest.mark.sizes
@pytest.mark.parametrize('shape', SHAPES, ids=lambda s: f'{s[0]}x{s[1]}')
@pytest.mark.parametrize('family', FAMILIES)
def test_same_as_cpu(device, cpu, family, shape):
    function, dtype, takes_rows = FAMILIES[family]
    rng = np.random.default_rng(zlib.crc32(f'{family}{shape}'.encode()))
    # Whole numbers, so that sums have one result in any order, with ties and signed zeros.
    x = rng.integers(0 if dtype == 'uint8' else -60, 60, shape).astype(dtype)
    if dtype == 'float32':
        x = np.where(rng.random(shape) < 0.02, np.float32(-0.0), x)
    rows = [rng.integers(0, 1000, 37).astype(np.int32)] if takes_rows else []
    check_same(device, cpu, function, [x, *rows])
