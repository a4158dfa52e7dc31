# SPDX-License-Identifier: Apache-2.0
"""Loops of small kernels, which one workgroup of a Vulkan device runs to their end, or one function on
the CPU: the bits of the kernels one by one, and the values of jaxlib's CPU.

An iteration reads what other points of the one before wrote, branches, holds loops of its own and
writes rows of arrays; sizes lie on both sides of a subgroup and a workgroup, trips on both sides of
what one dispatch does.
"""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from compare import check_same

FORMS = ({'hekla_persistent_loops': 'false'}, {}, {'hekla_persistent_loops': 'true'},
         {'hekla_persistent_loops': 'true', 'hekla_fuse': 'false'},
         # Sums here are exact, in whatever order teams take them.
         {'hekla_persistent_loops': 'true', 'hekla_tree_reductions': 'true', 'hekla_small_limits': 'true'},
         *({'hekla_persistent_loops': 'true', 'hekla_schedule_seed': str(seed)} for seed in (1, 2)))


def neighbours(x, trips=20):
    """Each point reads others' values, and sums are of all."""
    def body(_, x):
        moved = jnp.roll(x, 1) * 2 - jnp.roll(x, -2)
        return (moved + x[::-1] + (x.sum() % 3).astype(x.dtype)) % 7
    return lax.fori_loop(0, trips, body, x)


def rows(x, trips=20):
    """Rows written by number, some out of bounds; and read back."""
    def body(carry, i):
        x, table = carry
        table = lax.dynamic_update_slice_in_dim(table, x[None], i * 3 % (trips + 2) - 1, 0)
        return ((jnp.flip(table[i // 2]) + x + 1).astype(x.dtype), table), x.max()
    return lax.scan(body, (x, jnp.zeros((trips, x.size), x.dtype)), jnp.arange(trips))


def nested(x, trips=6):
    """Counted loops in one another, and one in each branch."""
    def inner(k, x):
        return lax.fori_loop(0, k, lambda i, x: jnp.roll(x, i) + x[0] % 5, x)

    def body(x, i):
        x = lax.fori_loop(0, 4, lambda j, x: inner(3, x) % 100, x)
        x = lax.switch(i % 4, [lambda x: x + 1, lambda x: inner(2, x), lambda x: x[::-1], lambda x: -x], x)
        return x, lax.cond(x[0] > 3, lambda x: x.min(), lambda x: x[x.size // 2] + 1, x)
    return lax.scan(body, x, jnp.arange(trips))


def search(x, trips=50):
    """A loop that data end, with a branch in it that leaves all as it is."""
    def goes_on(state):
        i, x, best = state
        return (i < trips) & (best < 90)

    def body(state):
        i, x, best = state
        x = (jnp.roll(x, 1) * 3 + x + 1) % 97
        return i + 1, x, lax.cond(x[0] % 2 == 0, lambda b: jnp.maximum(b, x.max()), lambda b: b, best)
    return lax.while_loop(goes_on, body, (0, x, x[0] * 0))


def search_in_search(x, trips=5):
    """An inner loop that data end: a dispatch may end in the middle of it."""
    def body(state):
        i, x = state
        return i + 1, lax.while_loop(lambda x: x.max() < 50, lambda x: jnp.roll(x, 1) * 2 + 3, x % 11)
    return lax.while_loop(lambda state: state[0] < trips, body, (0, x))


def search_in_branches(x, trips=9):
    """Counted loops around a branch around searches, two of them one in the other."""
    def grow(limit):
        def body(state):
            return state[0] + 1, jnp.roll(state[1], 1) * 2 + 3
        return lambda x: lax.while_loop(lambda s: (s[0] < 9) & (s[1].max() < limit), body, (0, x))[1]

    def both(x):
        def body(state):
            return state[0] + 1, grow(40)(jnp.flip(state[1]) - 20) % 63
        return lax.while_loop(lambda s: (s[0] < 4) & (s[1].sum() % 5 != 0), body, (0, x % 31))[1] + 1

    def inner(x, i):
        y = lax.switch(i % 3, [grow(70), both, lambda x: x - i], x)
        return y % 50 - 7, y[0]

    def outer(x, i):
        x, firsts = lax.scan(inner, x, jnp.arange(4) + i)
        return x + 1, (firsts, lax.cond(x[0] % 2 == 0, grow(33), jnp.flip, x))
    return lax.scan(outer, x, jnp.arange(trips))


def random_walk(x, trips=12):
    def body(carry, _):
        key, x = carry
        key, use = jax.random.split(key)
        x = x + jax.random.normal(use, x.shape)
        return (key, x), jax.random.randint(use, (3,), 0, 100)
    return lax.scan(body, (jax.random.key(3), x), None, length=trips)


def rk4(y, trips=40):
    def f(y):
        return jnp.roll(y, 1) * (jnp.roll(y, -1) - jnp.roll(y, 2)) - y + 8

    def step(y, _):
        k1 = f(y)
        k2 = f(y + .005 * k1)
        k3 = f(y + .005 * k2)
        k4 = f(y + .01 * k3)
        return y + .01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4), y.max()
    return lax.scan(step, y, None, length=trips)


def spin(x, trips=20):
    return lax.fori_loop(0, trips, lambda i, x: jnp.roll(x, i) * 1j + x[0].conj(), x)


SIZES = (1, 7, 8, 9, 33, 100, 1000)


def values(size, dtype='float32'):
    array = np.random.default_rng(size).integers(-5, 6, size)
    return array.astype(jnp.dtype(dtype))


CASES = {
    **{f'neighbours-{n}': (neighbours, values(n)) for n in SIZES},
    **{f'rows-{n}': (rows, values(n, 'int32')) for n in SIZES},
    **{f'nested-{n}': (nested, values(n, 'int32')) for n in (1, 9, 100)},
    **{f'search-{n}': (search, values(n, 'int32')) for n in (2, 9, 100)},
    **{f'search_in_search-{n}': (search_in_search, values(n)) for n in (3, 40)},
    **{f'search_in_branches-{n}': (search_in_branches, values(n, 'int32')) for n in (3, 40)},
    **{f'rk4-{n}': (rk4, values(n)) for n in (3, 40)},
    'random_walk': (random_walk, values(5)),
    **{f'rows-{dtype}': (rows, values(13, dtype)) for dtype in ('bool', 'int8', 'uint16', 'float16', 'bfloat16')},
    'spin': (spin, values(9, 'complex64')),
    **{f'rows-{trips}-trips': (functools.partial(rows, trips=trips), values(4, 'int32')) for trips in (1, 2)},
    **{f'neighbours-{trips}-trips': (functools.partial(neighbours, trips=trips), values(6, 'int32'))
       for trips in (0, 1, 2, 3, 70_000)},
    'search-many-trips': (functools.partial(search, trips=70_000), np.array([-90_000, 5], np.int32)),
}


@pytest.mark.sizes
@pytest.mark.parametrize('name', [*CASES])
def test_gives_the_same_bits(device, cpu, name):
    function, x = CASES[name]
    # Others have no such loops.
    forms = FORMS if device.platform == 'vulkan' else FORMS[:1]
    results = []
    for options in forms:
        got = jax.jit(function, compiler_options=options)(jax.device_put(x, device))
        results.append([np.asarray(leaf) if leaf.dtype != jax.random.key(0).dtype else
                        np.asarray(jax.random.key_data(leaf)) for leaf in jax.tree.leaves(got)])
    for options, got in zip(forms, results):
        for mine, expected in zip(got, results[0], strict=True):
            assert mine.tobytes() == expected.tobytes(), options
    check_same(device, cpu, function, (x,))


@pytest.mark.sizes
def test_donated_arrays_are_carried_in_place(device):
    """What the loop carries comes from, and leaves in, the caller's memory."""
    want = None
    for options in FORMS:
        step = jax.jit(neighbours, donate_argnums=0, compiler_options=options)
        x = jax.device_put(values(50), device)
        for _ in range(3):
            x = step(x)
        want = np.asarray(x) if want is None else want
        np.testing.assert_array_equal(np.asarray(x), want)
