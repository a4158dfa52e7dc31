# SPDX-License-Identifier: Apache-2.0
"""Runs a function on the device under test and on jaxlib's CPU, and compares.

Tolerance: JAX's own for the dtype (default_tolerance(), as rtol and atol, which is how JAX's tests
use it). Where jaxlib's CPU is itself further than that from the same function in f64, as after a
long sum, a result passes if it is no further from the f64 result than ROOM times jaxlib's worst
element; ROOM is the one of tests/programs/make_programs.py. Where there is no wider result, as that
of a function in f64, the measure is how far jaxlib's moves with a rounding of each argument.
"""
import collections
import contextlib
import copy
import hashlib
import itertools
import os
import pathlib
import pickle

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.public_test_util import default_tolerance

ROOM = 8
MOST = 1000   # roundings by which jaxlib's result may be off and still serve as a measure


def x64(on=True):
    """Context with 64-bit types; the name has moved between releases of JAX."""
    if not on:
        return contextlib.nullcontext()
    if hasattr(jax, 'enable_x64'):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64
    return enable_x64()


def tolerance(dtype):
    return float(default_tolerance()[np.dtype(dtype)])


def on(device, function, args, **jit):
    """Flat numpy results of jit(function)(*args) with all arguments on device."""
    with jax.default_device(device):
        placed = jax.tree.map(lambda x: jax.device_put(x, device), args)
        results = jax.tree.leaves(jax.jit(function, **jit)(*placed))
        for r in results:
            assert r.devices() == {device}, f'result on {r.devices()}'
        return [as_numpy(r) for r in results]


CALLS = collections.Counter()   # by test and what is asked for


def expected(cpu, function, args, what='results'):
    """on(cpu, function, args), the n-th `what` of a test.

    A folder named by HEKLA_EXPECTED keeps it for runs of the same test beside other devices; whoever
    names one empties it before tests or releases change.
    """
    folder = os.environ.get('HEKLA_EXPECTED')
    if not folder:
        return on(cpu, function, args)
    call = os.environ['PYTEST_CURRENT_TEST'], what
    CALLS[call] += 1
    key = hashlib.sha256(f'{call} {CALLS[call]}'.encode())
    for x in jax.tree.leaves(args):
        x = as_numpy(x) if hasattr(x, 'dtype') else np.asarray(x)
        key.update(f'{x.dtype} {x.shape} '.encode() + x.tobytes())
    path = pathlib.Path(folder) / key.hexdigest()
    if path.exists():
        return pickle.loads(path.read_bytes())
    results = on(cpu, function, args)
    part = path.with_suffix(f'.{os.getpid()}')
    part.write_bytes(pickle.dumps(results))
    part.rename(path)
    return results


def as_numpy(x):
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    return np.asarray(x)


def wide(x):
    """f64 or c128 for comparing; integers and booleans as they are, narrow ones as i64."""
    if jnp.issubdtype(x.dtype, np.complexfloating):
        return x.astype(np.complex128)
    if jnp.issubdtype(x.dtype, np.floating):
        return x.astype(np.float64)
    return x.astype(np.int64) if x.dtype.itemsize == 1 and x.dtype != bool else x


def close(got, want, rtol, atol):
    return np.allclose(wide(got), wide(want), rtol=rtol, atol=atol, equal_nan=True)


def widened(args):
    def widen(x):
        x = np.asarray(x)
        return wide(x) if jnp.issubdtype(x.dtype, np.inexact) else x
    return jax.tree.map(widen, args)


def in_f64(cpu, function, args):
    """The function on arguments made f64 or c128: [] where that would be another function."""
    if not any(jnp.issubdtype(np.asarray(x).dtype, np.inexact) for x in jax.tree.leaves(args)):
        return []
    try:
        with x64():
            return expected(cpu, function, widened(args), 'in f64')
    except (TypeError, ValueError, NotImplementedError):
        return []


def error_of_cpu(want, truth):
    """jaxlib's largest distance from the f64 result, or 0 where that result is of no use."""
    with np.errstate(invalid='ignore'):
        error = np.abs(wide(want) - truth)
    worst = error[np.isfinite(error)].max(initial=0)
    size = np.abs(truth[np.isfinite(truth)]).max(initial=0)
    # Further apart than this they are no longer the same function (other random bits, say).
    return worst if worst <= MOST * float(jnp.finfo(want.dtype).eps) * size else 0.0


def moved_by_a_rounding(args):
    """The arguments, each f32 and f64 among them, also parts of complex numbers, up or down by one
    rounding at random."""
    random = np.random.RandomState(0)

    def move(x):
        x = np.asarray(x)
        if x.dtype in (np.complex64, np.complex128):
            return (move(x.real) + 1j * move(x.imag)).astype(x.dtype)
        if x.dtype not in (np.float32, np.float64):
            return x
        return np.where(np.isfinite(x), np.nextafter(x, random.choice([-np.inf, np.inf], x.shape).astype(x.dtype)), x)
    return jax.tree.map(move, args)


def in_long_double(function, args):
    """[result] of a function of numpy in its long double."""
    kind = np.clongdouble if np.iscomplexobj(args[0]) else np.longdouble
    with np.errstate(all='ignore'):
        return [wide(function(*(np.asarray(x).astype(kind) for x in args)))]


def measures(cpu, function, args, want, wider):
    """Ways to tell how far off results may be, the best first: (what they should be, results of
    jaxlib's that are as far from it as ours may be)."""
    reference = in_f64(cpu, function, args)
    yield reference, want
    if wider is not None:
        yield in_long_double(wider, args), want
    if reference:
        yield reference, in_f64(cpu, function, moved_by_a_rounding(widened(args)))
    else:
        yield want, expected(cpu, function, moved_by_a_rounding(args), 'moved')


def check_same(device, cpu, function, args, exact=False, wider=None):
    """Asserts equal results on both devices. exact: value for value, whatever the dtype. wider: a
    function of numpy that gives the same, if jaxlib's own f64 is too far off to be a measure."""
    got, want = on(device, function, args), expected(cpu, function, args)
    assert len(got) == len(want)
    known, = itertools.tee(measures(cpu, function, args, want, wider), 1)   # each is had once
    for i, (g, w) in enumerate(zip(got, want)):
        assert g.shape == w.shape and g.dtype == w.dtype, f'output {i}: {g.dtype}{g.shape}'
        if exact or not jnp.issubdtype(w.dtype, np.inexact):
            np.testing.assert_array_equal(wide(g), wide(w), err_msg=f'output {i}')
            continue
        limit = tolerance(w.dtype)
        if close(g, w, limit, limit):
            continue
        if any(close(g, wide(truth[i]), limit, ROOM * error_of_cpu(measure[i], wide(truth[i])))
               for truth, measure in copy.copy(known) if i < len(truth) and truth[i].shape == w.shape):
            continue
        np.testing.assert_allclose(wide(g), wide(w), rtol=limit, atol=limit,
                                   err_msg=f'output {i} ({w.dtype})')
