# SPDX-License-Identifier: Apache-2.0
"""Hekla: StableHLO programs on Vulkan GPUs and CPUs, behind the PJRT C API.

This module finds the plugin libraries and imports neither JAX nor torch. A library is called
pjrt_NAME.so and serves the platform NAME; pjrt_cpu.so serves "tbb", since JAX's own CPU is "cpu". It
is looked for, in this order, in
  1. each entry of HEKLA_PLUGIN_PATH (a folder or a library, separated as PATH is),
  2. lib/hekla beside this file (an installed wheel),
  3. ../../lib/hekla seen from this folder (a build tree: build/python/hekla, build/lib/hekla).
"""
import os
import pathlib

__version__ = '0.1.0'

__all__ = ['__version__', 'has_lapack', 'plugin_path', 'plugins', 'search_path', 'vulkan_kernel']

_PREFIX, _SUFFIX = 'pjrt_', '.so'
_PLATFORMS = {'cpu': 'tbb'}  # of libraries that serve another name than their own


def _prefixes():
    """Where bin/ and lib/ may be: in an installed wheel, and in a build tree."""
    here = pathlib.Path(__file__).resolve().parent
    return here, here.parents[1]


def search_path():
    """The places where libraries are looked for, first one first; they need not exist."""
    places = [pathlib.Path(p) for p in os.environ.get('HEKLA_PLUGIN_PATH', '').split(os.pathsep)
              if p]
    return [*places, *(prefix / 'lib' / 'hekla' for prefix in _prefixes())]


def plugins():
    """{platform name: path of its library} of all libraries found; the first place wins."""
    found = {}
    for place in search_path():
        try:
            files = sorted(place.iterdir()) if place.is_dir() else [place]
        except OSError:
            continue
        for file in files:
            name = file.name
            if name.startswith(_PREFIX) and name.endswith(_SUFFIX) and file.is_file():
                platform = name[len(_PREFIX):-len(_SUFFIX)]
                found.setdefault(_PLATFORMS.get(platform, platform), str(file))
    return found


def has_lapack(path):
    """Whether the plugin library at path finds libhekla_lapack.so, as backends/lapack/library.h says."""
    named = os.environ.get('HEKLA_LAPACK')
    if named:
        return named != 'off' and os.path.exists(named)
    return pathlib.Path(path).resolve().with_name('libhekla_lapack.so').exists()


def plugin_path(name):
    """Path of the library for platform name. Raises FileNotFoundError that lists what is there."""
    found = plugins()
    if name in found:
        return found[name]
    there = ', '.join(sorted(found)) or 'none'
    places = ', '.join(str(p) for p in search_path())
    raise FileNotFoundError(f"no Hekla plugin '{name}'; found: {there}; looked in: {places}; "
                            'set HEKLA_PLUGIN_PATH to the folder of pjrt_*.so')


def vulkan_kernel(*args, **kwargs):
    """A compute shader of yours as a function inside of jax.jit; hekla.jax_kernel says how."""
    from hekla import jax_kernel
    return jax_kernel.vulkan_kernel(*args, **kwargs)
