# SPDX-License-Identifier: Apache-2.0
"""Sums of a hundred thousand products are as accurate as docs/numerics.md says, in each form that a device has for them.

Equal factors show what random ones hide: each addition to a large sum then rounds the same way.
"""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from compare import x64

N = 100_003  # prime: no chunks of equal lengths
SIDE = 317


def convolution(image, kernel, dimensions):
    """As a gradient by a kernel: an image, along which one of the same size slides."""
    return lambda x, y: lax.conv_general_dilated(x.reshape(image), y.reshape(kernel), (1, 1),
                                                 [(1, 1), (1, 1)], dimension_numbers=dimensions)


# Name: function, shapes of the operands, dtype.
FORMS = {
    'rows-packed': (lambda x, y: x.T @ y, (N, 17), (N, 33), 'float32'),
    'rows-in-place': (lambda x, y: x @ y, (17, N), (N, 33), 'float32'),
    'few-rows': (lambda x, y: x @ y, (3, N), (N, 70), 'float32'),
    'dot': (jnp.dot, (N,), (N,), 'float32'),
    'vector': (lambda x, y: x @ y, (9, N), (N,), 'float32'),
    'vector-across': (lambda x, y: y @ x, (N, 20), (N,), 'float32'),
    'generated': (lambda x, y: x.T @ y, (N, 2), (N, 3), 'float32'),
    'two-axes': (lambda x, y: jnp.einsum('abi,abj->ij', x, y), (SIDE, SIDE, 12), (SIDE, SIDE, 9),
                 'float32'),
    'batch': (lambda x, y: jnp.einsum('bni,bnj->bij', x, y), (2, N, 9), (2, N, 8), 'float32'),
    'complex': (lambda x, y: x.T @ y, (N, 2), (N, 3), 'complex64'),
    'convolution-last': (convolution((1, SIDE, SIDE, 1), (SIDE, SIDE, 1, 1),
                                     ('NHWC', 'HWIO', 'NHWC')), (SIDE, SIDE), (SIDE, SIDE), 'float32'),
    'convolution-first': (convolution((1, 1, SIDE, SIDE), (1, 1, SIDE, SIDE),
                                      ('NCHW', 'OIHW', 'NCHW')), (SIDE, SIDE), (SIDE, SIDE), 'float32'),
}


def bound(platform, terms):
    """Of the error, in units of the sum of magnitudes: chunks of 512 products on the CPU, at least a quarter of that each."""
    unit = 2.0 ** -24
    return unit * (512 + terms / 128 + 2 if platform == 'tbb' else terms + 1)


@pytest.mark.sizes
@pytest.mark.parametrize('kind', ['equal', 'random'])
@pytest.mark.parametrize('form', FORMS)
def test_within_the_bound(device, platform, form, kind):
    function, left, right, dtype = FORMS[form]
    rng = np.random.default_rng(5)
    draw = (lambda shape: np.full(shape, 0.1)) if kind == 'equal' else rng.random
    x, y = (draw(shape).astype(dtype) for shape in (left, right))
    got = np.asarray(jax.jit(function)(*jax.device_put((x, y), device)))
    wide = {'float32': np.float64, 'complex64': np.complex128}[dtype]
    with x64(), jax.default_device(jax.devices('cpu')[0]):
        exact = np.asarray(jax.jit(function)(x.astype(wide), y.astype(wide)))
    # No factor is negative, so an exact result is its own sum of magnitudes.
    assert np.all(np.abs(got - exact) <= bound(platform, N) * np.abs(exact))
