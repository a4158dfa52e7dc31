# SPDX-License-Identifier: Apache-2.0
"""A compute shader of yours inside of jax.jit: a hundred steps of heat.comp in a loop on the GPU.

  PYTHONPATH=build/python JAX_PLATFORMS=vulkan,cpu python examples/vulkan_kernel/run.py

Needs glslang (glslang-tools of Debian). Where the default device is no Vulkan device, the function
that is given as fallback runs instead.
"""
import pathlib
import subprocess
import tempfile

import hekla
import jax
import jax.numpy as jnp
import numpy as np

SOURCE = pathlib.Path(__file__).with_name('heat.comp')
SIZE, RATE = 20, 0.2


def compile_shader(source):
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / 'shader.spv'
        subprocess.run(['glslangValidator', '-V', '--target-env', 'vulkan1.2', '--quiet', source, '-o', target],
                       check=True)
        return target.read_bytes()


def in_jax(x):
    around = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
    return x.at[1:-1, 1:-1].add(RATE * (around - 4 * x[1:-1, 1:-1]))


def main():
    groups = (SIZE + 7) // 8
    step = hekla.vulkan_kernel(compile_shader(SOURCE), (groups, groups),
                               jax.ShapeDtypeStruct((SIZE, SIZE), np.float32),
                               constants=(RATE, SIZE), fallback=in_jax)
    x = jnp.zeros((SIZE, SIZE)).at[5:15, 5:15].set(1)
    y = jax.jit(lambda x: jax.lax.fori_loop(0, 100, lambda i, v: step(v), x))(x)
    expected = jax.jit(lambda x: jax.lax.fori_loop(0, 100, lambda i, v: in_jax(v), x))(x)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-6)
    print(f'heat on {jax.default_backend()}: {float(y[10, 10]):.3f} in the middle')


if __name__ == '__main__':
    main()
