# SPDX-License-Identifier: Apache-2.0
"""hekla.vulkan_kernel: a compute shader of the user's inside of jax.jit.

It lowers to a custom call with the SPIR-V among its attributes, which the Vulkan device makes a
dispatch of the launch's. docs/custom_calls.md says how a shader finds its arrays.
"""
import pathlib

import jax
import numpy as np

TARGET = 'hekla.vulkan_kernel'
MAX_CONSTANTS = 26


def vulkan_kernel(spirv, grid, results, *, entry='main', constants=(), specialization=None,
                  fallback=None, vmap_method=None):
    """A function of arrays that runs a compute shader on them, on the platform vulkan.

    spirv: the module, as bytes or the path of a file. grid: how many workgroups, up to three
    numbers. results: jax.ShapeDtypeStruct of the one result, or a list or tuple of them. entry: the
    entry point's name. constants: up to 26 push constants of 32 bits, integers, floats or bools, for
    bytes 24 and on. specialization: {constant_id: value}. fallback: a function of the same arrays for other
    platforms, where the kernel is an error when it is compiled. vmap_method: as for jax.ffi.ffi_call.
    """
    words = _words(spirv)
    grid = tuple(int(n) for n in grid) + (1,) * (3 - len(grid))
    if len(grid) != 3 or min(grid) < 0:
        raise ValueError(f'a grid has up to three numbers of workgroups, not {grid}')
    if len(constants) > MAX_CONSTANTS:
        raise ValueError(f'{len(constants)} push constants; there is room for {MAX_CONSTANTS}')
    attributes = {'spirv': words, 'grid': np.array(grid, np.int64), 'entry': entry}
    if len(constants):
        attributes['constants'] = np.array([_bits(value) for value in constants], np.uint32)
    if specialization:
        ids = sorted(specialization)
        attributes['specialization_ids'] = np.array(ids, np.uint32)
        attributes['specialization_values'] = np.array([_bits(specialization[i]) for i in ids],
                                                       np.uint32)

    def kernel(*arrays):
        return jax.ffi.ffi_call(TARGET, results, vmap_method=vmap_method)(*arrays, **attributes)
    if fallback is None:
        return kernel

    def anywhere(*arrays):
        return jax.lax.platform_dependent(*arrays, vulkan=kernel, default=fallback)
    return anywhere


def _words(spirv):
    if not isinstance(spirv, (bytes, bytearray, memoryview)):
        spirv = pathlib.Path(spirv).read_bytes()
    if len(spirv) % 4 != 0:
        raise ValueError(f'a SPIR-V module is words of four bytes, this has {len(spirv)}')
    return np.frombuffer(bytes(spirv), np.uint32)


def _bits(value):
    """Of a number in 32 bits."""
    if isinstance(value, (float, np.floating)):
        return int(np.float32(value).view(np.uint32))
    return int(value) & 0xffffffff
