# SPDX-License-Identifier: Apache-2.0
"""Little updates of arrays that are large and small, one after the other in loops, against jaxlib's CPU.

Devices write into large arrays in place, where nobody needs what was there; what an update reads of the array
may lie where it writes, before or behind it, and its place may be outside."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from compare import check_same, x64

SIZES = (100, 65_535, 65_536, 200_003)
DTYPES = ('float32', 'bfloat16', 'int8', 'bool', 'complex64')


def array(size, dtype='float32'):
    return jnp.asarray(np.random.default_rng(size).integers(-9, 9, size)).astype(dtype)


def places(size):
    """Inside, at both ends, negative, outside."""
    return jnp.array([0, 1, size // 2, size - 1, size, -1, -size, -size - 1, 2**31 - 1, -2**31, 7, 7, 63])


def loop(step):
    """step(array, place, iteration), an iteration for each place."""
    return lambda x, at: lax.fori_loop(0, at.size, lambda i, x: step(x, at[i], i), x)


STEPS = {
    'set': lambda x, at, i: x.at[at].set(jnp.asarray(i).astype(x.dtype)),
    'add': lambda x, at, i: x.at[at].add(jnp.asarray(i).astype(x.dtype)),
    'add what is elsewhere': lambda x, at, i: x.at[at].add(x[i * 7]),
    'take from behind': lambda x, at, i: x.at[at].set(x[at + 1]),
    'swap': lambda x, at, i: x.at[at].set(x[i]).at[i].set(x[at]),
    'read what was written': lambda x, at, i: x.at[at].set(x.at[i].set(x[at])[at - 1]),
    'window': lambda x, at, i: lax.dynamic_update_slice(x, lax.dynamic_slice(x, (i,), (40,)), (at,)),
    'overlapping window': lambda x, at, i: lax.dynamic_update_slice(
        x, lax.dynamic_slice(x, (at,), (40,))[::-1], (at + 3,)),
    'branch': lambda x, at, i: lax.cond(i % 2 == 0, lambda x: x.at[at].set(x[i]), lambda x: x, x),
}


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('name', STEPS)
def test_dtypes(device, cpu, name, dtype):
    if dtype == 'bool' and 'add' in name:
        pytest.skip('no sums of bool')
    check_same(device, cpu, loop(STEPS[name]), [array(70_001, dtype), places(70_001)])


@pytest.mark.sizes
@pytest.mark.parametrize('size', SIZES)
@pytest.mark.parametrize('name', STEPS)
def test_sizes(device, cpu, name, size):
    check_same(device, cpu, loop(STEPS[name]), [array(size), places(size)])


@pytest.mark.parametrize('mode', ('drop', 'clip', 'fill'))
@pytest.mark.parametrize('reducer', ('set', 'add', 'multiply', 'min', 'max', 'subtract'))
def test_modes(device, cpu, reducer, mode):
    def step(x, at, i):
        return getattr(x.at[at], reducer)(x[at + 5] + 1, mode=mode)
    check_same(device, cpu, loop(step), [array(70_001), places(70_001)])


@pytest.mark.parametrize('shape', ((300, 300), (2, 50_000), (41, 43, 47)))
def test_rows_and_columns(device, cpu, shape):
    def step(x, at, i):
        x = x.at[at].set(x[i] + 1).at[..., at].add(x[..., i])
        x = x.at[(at,) + (i,) * (x.ndim - 1)].set(-3)
        return x.at[1, at].multiply(2).at[(at % 40).astype(jnp.int16), i].add(1)
    x = array(int(np.prod(shape))).reshape(shape)
    check_same(device, cpu, loop(step), [x, places(shape[0])])


@pytest.mark.parametrize('shape, part', (((171,), (138,)), ((4, 30), (2, 30)), ((4, 30), (1, 30)),
                                         ((5, 6, 7), (3, 1, 4))))
def test_windows_that_overlap(device, cpu, shape, part):
    """Each iteration writes over the end of what the one before has written, with what no iteration changes."""
    def function(x, y):
        def step(i, x):
            return lax.dynamic_update_slice(x, y, (i,) * x.ndim)
        return lax.fori_loop(0, 3, step, x), lax.fori_loop(0, 3, lambda i, x: step(2 - i, x), x)
    check_same(device, cpu, function, [array(int(np.prod(n))).reshape(n) for n in (shape, part)])


WINDOWS = {
    'of itself': lambda w, x, i: w * 2 + w,
    'of itself and others': lambda w, x, i: jnp.maximum(w, x[:w.shape[0]].reshape(w.shape[0], -1)[:, :1] + i) - w,
    'of its transpose': lambda w, x, i: w[::-1] - w,
    'of its sum': lambda w, x, i: w + w.sum() % 7,
    'of a product': lambda w, x, i: w + jnp.einsum('ij,jk->ik', jnp.ones((w.shape[0], 3), w.dtype), w[:3]) % 5,
    'of what is shaped in between': lambda w, x, i: (w.reshape(-1) + 1).reshape(w.shape) % 11,
}


@pytest.mark.parametrize('shape, part', (((5, 9), (3, 9)), ((5, 9), (4, 2)), ((33, 320), (16, 320)), ((33, 320), (7, 31)),
                                         ((300, 257), (150, 257)), ((70_001, 1), (40_000, 1))))
@pytest.mark.parametrize('name', WINDOWS)
def test_windows_made_of_themselves(device, cpu, name, shape, part):
    """Where an element goes back to where it was read nothing lies in between."""
    make = WINDOWS[name]

    def step(x, at, i):
        place = (at, at % (shape[1] - part[1] + 1))
        return lax.dynamic_update_slice(x, make(lax.dynamic_slice(x, place, part), x, i), place)

    x = array(int(np.prod(shape))).reshape(shape)
    check_same(device, cpu, loop(step), [x, jnp.array([0, 1, 2, shape[0], -1, shape[0] // 2])])


def test_wide_places(device, cpu):
    """Numbers of 64 bits whose low half is inside."""
    with x64():
        at = jnp.array([3, 2**32 + 5, -2**32 + 7, -2**63, 2**63 - 1, 70_000, -1, 70_001], jnp.int64)
        check_same(device, cpu, loop(STEPS['add what is elsewhere']), [array(70_001), at])


def test_what_is_needed_later_stays(device, cpu):
    def function(x, at):
        y = loop(STEPS['swap'])(x, at)
        z = y.at[at[2]].set(5)
        return y, z, x + z, z.at[at[3]].add(y[3]), lax.scan(lambda c, i: (c.at[i].set(c[i - 1]), c[i]), y, at)
    check_same(device, cpu, function, [array(70_001), places(70_001)])


def gradient(step):
    """With respect to a table that the loop's step(number, table, i) indexes: an array that is added to."""
    def of(table, at):
        def total(t):
            return lax.scan(lambda h, i: (step(h, t, at, i), None), jnp.float32(3), jnp.arange(at.shape[0]))[0]
        return jax.grad(total)(table)
    return of


def descend(take):
    """Steps against a gradient that is zero almost everywhere; the factor is a power of two."""
    def step(t, i, at):
        return t - .5 * jax.grad(lambda t: (take(t, at[i]) * 3).sum())(t)
    return lambda table, at: lax.fori_loop(0, at.shape[0], lambda i, t: step(t, i, at), table)


# Whole numbers, so that sums are exact in any order.
GRADIENTS = {
    'element': gradient(lambda h, t, at, i: t[at[i, 0], 1] * 2 - h),
    'two elements': gradient(lambda h, t, at, i: t[at[i, 0], 1] - 3 * t[at[i, 1], 0] - h),
    'row': gradient(lambda h, t, at, i: t[at[i, 0]].sum() - h),
    'rows by index': gradient(lambda h, t, at, i: t[at[i]].sum() * 2 + h),
    'window': gradient(lambda h, t, at, i: lax.dynamic_slice(t, (at[i, 0], 0), (3, 2)).sum() + h),
    'fixed rows': gradient(lambda h, t, at, i: t[3].sum() - t[5, 1] + at[i, 0] + h),
    'branch': gradient(lambda h, t, at, i: lax.cond(
        at[i, 0] % 2 == 0, lambda: t[at[i, 0], 1] - h, lambda: h * -1)),
    'each branch another': gradient(lambda h, t, at, i: lax.switch(
        at[i, 0] % 3, [lambda: t[at[i, 0], 1] - h, lambda: h + t[at[i, 1]].sum(), lambda: h])),
    'of a batch': lambda table, at: jax.vmap(gradient(lambda h, t, at, i: t[at[i, 0]].sum() - h), (None, 0))(
        table, at.reshape(2, -1, 4)),
    'descent by a row': descend(lambda t, at: t[at[0]]),
    'descent by rows': descend(lambda t, at: t[at]),
    'descent by two rows': descend(lambda t, at: t[at[0]] + t[at[1]] * t[at[1]]),
    'descent by a constant row': descend(lambda t, at: t[1]),
}


@pytest.mark.sizes
@pytest.mark.parametrize('rows', (5, 40, 20_001))
@pytest.mark.parametrize('name', GRADIENTS)
def test_gradients_of_what_is_indexed(device, cpu, name, rows):
    at = np.random.default_rng(rows).integers(-2, rows + 2, (12, 4))
    table = array(rows * 8).reshape(rows, 8)
    check_same(device, cpu, GRADIENTS[name], [table, jnp.asarray(at)])


@pytest.mark.parametrize('sign', (1, -1))
@pytest.mark.parametrize('begins', ('as it is', 'at zero'))
def test_signs_of_zeros_beside_what_is_added(device, sign, begins):
    """-0 + 0 is 0 and -0 - 0 is -0 wherever nothing else is added."""
    def steps(x, at):
        x = x if begins == 'as it is' else jnp.zeros_like(x)
        return lax.fori_loop(0, at.size, lambda i, x: x + sign * jnp.zeros_like(x).at[at[i]].add(1), x)
    x = np.where(np.arange(70_001) % 2 == 0, -0., 0.).astype(np.float32)
    at = np.asarray(places(x.size))
    got = np.asarray(jax.jit(steps)(*jax.device_put((x, at), device)))
    expected = x if begins == 'as it is' else np.zeros_like(x)
    for place in at + x.size * (at < 0):
        term = np.zeros_like(x)
        term[place:place + 1] = 0 <= place
        expected = expected + np.float32(sign) * term
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


def where(step):
    """step, or not, as a flag of the iteration says, and the other way round."""
    def body(x, at, i):
        x = jnp.where(i % 3 != 1, step(x, at, i), x)
        return jnp.where(at % 2 == 0, x, step(x, at + 1, i))
    return loop(body)


@pytest.mark.sizes
@pytest.mark.parametrize('size', SIZES)
@pytest.mark.parametrize('name', STEPS)
def test_updates_that_a_flag_takes_or_leaves(device, cpu, name, size):
    check_same(device, cpu, where(STEPS[name]), [array(size), places(size)])


def until(step):
    """Examples of a batch end at different times."""
    def run(x, at, last):
        return lax.while_loop(lambda c: c[0] < last, lambda c: (c[0] + 1, step(c[1], at[c[0]], c[0])), (0, x))[1]
    return run


# What a batch makes of branches and of loops are selects of whole arrays.
BATCHES = {
    'each its place': lambda x, at, last: loop(STEPS['add'])(x, at + last),
    'one place': lambda x, at, last: loop(lambda x, a, i: jnp.where(i < last, x.at[i].add(1), x))(x, at),
    'branch': lambda x, at, last: loop(lambda x, a, i: lax.cond(
        (i + last) % 2 == 0, lambda x: x.at[a].add(1), lambda x: x, x))(x, at),
    'three branches': lambda x, at, last: loop(lambda x, a, i: lax.switch(
        (i + last) % 3, [lambda x: x, lambda x: x.at[a].set(2), lambda x: x.at[i].multiply(3)], x))(x, at),
    'loops that end': lambda x, at, last: until(STEPS['set'])(x, at, last),
    'swaps until an end': lambda x, at, last: until(STEPS['swap'])(x, at, last),
    'windows until an end': lambda x, at, last: until(STEPS['window'])(x, at, last),
    'two updates until an end': lambda x, at, last: until(lambda x, a, i: x.at[a].set(x[i]).at[i].add(1))(x, at, last),
}


@pytest.mark.sizes
@pytest.mark.parametrize('size', (100, 21_001))
@pytest.mark.parametrize('name', BATCHES)
def test_batches(device, cpu, name, size):
    check_same(device, cpu, jax.vmap(BATCHES[name], (0, None, 0)),
               [array(4 * size).reshape(4, size), places(size), jnp.array([3, 0, 9, 13])])
