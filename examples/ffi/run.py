# SPDX-License-Identifier: Apache-2.0
"""Calls the C++ function of rms_norm.cc inside of jax.jit, on the CPU and on a GPU.

  PYTHONPATH=build/python JAX_PLATFORMS=tbb,cpu python examples/ffi/run.py

Any of Hekla's platforms may stand for tbb. Needs g++ or another compiler that CXX names.
"""
import ctypes
import os
import pathlib
import subprocess
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

SOURCE = pathlib.Path(__file__).with_name('rms_norm.cc')


def build(folder):
    """Compiles the function; a project of your own does this once, in its build."""
    library = pathlib.Path(folder) / 'rms_norm.so'
    subprocess.run([os.environ.get('CXX', 'g++'), '-std=c++17', '-O2', '-shared', '-fPIC',
                    '-isystem', jax.ffi.include_dir(), '-o', library, SOURCE], check=True)
    return ctypes.CDLL(str(library))


def rms_norm(x, epsilon=1e-5):
    call = jax.ffi.ffi_call('rms_norm', jax.ShapeDtypeStruct(x.shape, x.dtype),
                            vmap_method='broadcast_all')
    return call(x, epsilon=np.float32(epsilon))


def main():
    platform = jax.default_backend()
    with tempfile.TemporaryDirectory() as folder:
        library = build(folder)
    jax.ffi.register_ffi_target('rms_norm', jax.ffi.pycapsule(library.RmsNorm), platform=platform)
    x = jnp.arange(12, dtype=jnp.float32).reshape(3, 4)
    y = jax.jit(lambda x: rms_norm(x * 2) + 1)(x)
    batch = jax.vmap(rms_norm)(jnp.stack([x, -x]))
    z = 2 * np.arange(12, dtype=np.float32).reshape(3, 4)
    expected = z / np.sqrt((z * z).mean(axis=-1, keepdims=True) + 1e-5) + 1
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    np.testing.assert_array_equal(batch[1], -batch[0])
    print(f'rms_norm on {platform}:', np.asarray(y, np.float64).round(3).tolist())


if __name__ == '__main__':
    main()
