# SPDX-License-Identifier: Apache-2.0
"""Elements that take more iterations of a loop than a driver may allow (llvmpipe ends loops after 65,535),
against NumPy in f64. The values are small integers, whose sums are exact in any order."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax


def integers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def bins(count, size):
    return np.random.default_rng(1).integers(0, count + 1, size).astype(np.int32)


def counted(keys, values, count):
    sums = np.zeros(count)
    inside = keys < count
    np.add.at(sums, keys[inside], values[inside])
    return sums


CASES = {
    'contraction': (lambda a, b: a @ b, (integers(3, 70_001), integers(70_001, 5, seed=1)),
                    lambda a, b: a @ b),
    'deeper contraction': (lambda a, b: a @ b, (integers(8, 400_000), integers(400_000, 8, seed=1)),
                           lambda a, b: a @ b),
    'scatter into a few': (lambda k, v: jnp.zeros(10).at[k].add(v, mode='drop'),
                           (bins(10, 200_000), integers(200_000)),
                           lambda k, v: counted(k, v, 10)),
    'scatter into many': (lambda k, v: jnp.zeros(70_000).at[k].add(v, mode='drop'),
                          (bins(70_000, 100_000), integers(100_000)),
                          lambda k, v: counted(k, v, 70_000)),
    'window': (lambda x: lax.reduce_window(x, 0.0, lax.add, (70_000,), (1,), 'VALID'),
               (integers(70_010),),
               lambda x: np.array([x[i:i + 70_000].sum() for i in range(11)])),
    'reduction over two dimensions': (lambda x: x.sum((0, 2)), (integers(700, 3, 120),),
                                      lambda x: x.sum((0, 2))),
    'long line': (lambda x: x.sum(), (integers(3_000_000),), lambda x: x.sum()),
}


@pytest.mark.parametrize('name', CASES)
def test_long_loop(name, device):
    function, arguments, expected = CASES[name]
    got = jax.jit(function)(*jax.device_put(arguments, device))
    want = expected(*(x.astype(np.float64) if x.dtype == np.float32 else x for x in arguments))
    np.testing.assert_array_equal(np.asarray(got, np.float64), want)
