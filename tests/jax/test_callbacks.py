# SPDX-License-Identifier: Apache-2.0
"""Host callbacks: Python functions that programs call while they run.

Values are compared with jaxlib's CPU, which has callbacks of its own kind; so are the calls that a
callback saw, where their order is promised.
"""
import contextlib
import functools
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import ml_dtypes
from jax.experimental import io_callback

from callback_support import struct, with_rules  # noqa: F401
import compare

pytestmark = pytest.mark.quick


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(function, *args, cpu, device):
    """Runs `function(log, *args)` on both, where log is a list that callbacks append to; results
    and logs must be equal."""
    runs = []
    for where in (cpu, device):
        log = []
        with jax.default_device(where):
            results = leaves(function(log, *args))
            jax.effects_barrier()
        runs.append((results, log))
    (expected, expected_log), (actual, actual_log) = runs
    assert len(expected) == len(actual)
    for want, got in zip(expected, actual):
        assert want.dtype == got.dtype and want.shape == got.shape
        assert want.tobytes() == got.tobytes()  # programs of small whole numbers: nothing rounds
    assert expected_log == actual_log


def pure(log, *args):
    """x -> 2x on the host; the log sees nothing, since pure calls may be repeated."""
    x, = args
    return jax.pure_callback(lambda a: np.asarray(a) * np.asarray(a).dtype.type(2),
                             struct(*x.shape, dtype=x.dtype), x, vmap_method='sequential')


def note(log, *values, ordered=True):
    io_callback(lambda *v: log.append([np.asarray(x).tolist() for x in v]), None, *values,
                ordered=ordered)


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def in_jit(log):
    return jax.jit(lambda x: pure(log, x) + 1)(X)


def without_jit(log):
    return pure(log, jnp.asarray(X))


def several_results(log):
    def host(a, b):
        return {'sum': a + b, 'parts': (a[:1], np.int32(7)), 'none': np.zeros((0, 4), np.int8)}
    shapes = {'sum': struct(2, 3), 'parts': (struct(1, 3), struct(dtype=np.int32)),
              'none': struct(0, 4, dtype=np.int8)}
    return jax.jit(lambda a, b: jax.pure_callback(host, shapes, a, b))(X, X * 3)


def no_operands(log):
    return jax.jit(lambda: jax.pure_callback(lambda: np.arange(5, dtype=np.int32),
                                             struct(5, dtype=np.int32)))()


def no_results(log):
    def program(x):
        note(log, x)
        return x
    return jax.jit(program)(X)


def neither(log):
    def program(x):
        note(log)
        note(log)
        return x
    return jax.jit(program)(X)


def zero_size(log):
    empty = np.zeros((3, 0), np.float32)

    def program(x, e):
        note(log, e)
        return jax.pure_callback(lambda a, b: (b, a + b.size), (struct(3, 0), struct(2, 3)), x, e)
    return jax.jit(program)(X, empty)


def scalars_and_python_values(log):
    return jax.jit(lambda x: jax.pure_callback(lambda a: 3.5, struct(), x))(np.float32(1))


def fortran_order(log):
    return jax.jit(lambda x: jax.pure_callback(lambda a: np.asfortranarray(np.asarray(a).T),
                                               struct(3, 2), x))(X)


def transposed_operand(log):
    return jax.jit(lambda x: pure(log, x.T))(X)


def chained(log):
    return jax.jit(lambda x: pure(log, pure(log, jnp.square(x) * 4)) - 1)(X)


def same_function_twice(log):
    def host(a):
        log.append(float(a))
        return a
    def program(x):
        a = io_callback(host, struct(), x, ordered=True)
        return a + io_callback(host, struct(), x + 1, ordered=True)
    return jax.jit(program)(np.float32(4))


def ordered(log):
    def program(x):
        for i in range(5):
            note(log, x[i], jnp.int32(i))
        return x.sum()
    return jax.jit(program)(np.arange(5, dtype=np.int32))


def ordered_over_launches(log):
    def program(i):
        note(log, i)
        return i
    step = jax.jit(program)
    return [step(np.int32(i)) for i in range(20)]


def ordered_and_unordered(log):
    seen = []
    def program(x):
        io_callback(lambda v: seen.append(int(v)), None, x, ordered=False)
        note(log, x)
        return x * 2
    result = jax.jit(program)(np.int32(3))
    jax.effects_barrier()
    assert seen == [3]
    return result


def dead_effects(log):
    def program(x):
        io_callback(lambda v: (log.append(float(v)), v)[1], struct(), x[0], ordered=True)
        return x + 1
    return jax.jit(program)(np.arange(3, dtype=np.float32))


def in_scan(log):
    def body(carry, x):
        note(log, x)
        carry = carry + pure(log, x)
        return carry, carry
    return jax.jit(lambda x: jax.lax.scan(body, jnp.float32(0), x))(
        np.arange(7, dtype=np.float32))


def in_unrolled_scan(log):
    def body(carry, x):
        note(log, x)
        return carry * 2 + x, carry
    return jax.jit(lambda x: jax.lax.scan(body, jnp.float32(0), x, unroll=3))(
        np.arange(8, dtype=np.float32))


def in_scan_whose_results_need_none(log):
    def body(carry, x):
        io_callback(lambda c, v: log.append((int(c), int(v))), None, carry, x)
        return carry + 1, x + 1
    return jax.jit(lambda x: jax.lax.scan(body, 2, x))(np.arange(5))


def in_while(log):
    def body(state):
        i, x = state
        note(log, i)
        return i + 1, pure(log, x)
    return jax.jit(lambda x: jax.lax.while_loop(lambda s: s[0] < 5, body, (0, x)))(X)


def in_while_condition(log):
    def condition(state):
        return jax.pure_callback(lambda i: np.bool_(i < 4), struct(dtype=np.bool_), state[0])
    return jax.jit(lambda: jax.lax.while_loop(
        condition, lambda s: (s[0] + 1, s[1] * 2), (0, jnp.float32(1))))()


def in_fori_loop_of_unknown_count(log):
    def body(i, x):
        note(log, i)
        return x + pure(log, jnp.float32(1))
    return jax.jit(lambda n, x: jax.lax.fori_loop(0, n, body, x))(np.int32(9), X)


def in_nested_loops(log):
    def outer(i, x):
        def inner(j, y):
            note(log, i, j)
            return y + pure(log, jnp.float32(j))
        return jax.lax.fori_loop(0, i, inner, x)
    return jax.jit(lambda x: jax.lax.fori_loop(0, 4, outer, x))(X)


def in_cond(log):
    def program(p, x):
        def yes(v):
            note(log, v[0, 0])
            return pure(log, v)
        return jax.lax.cond(p, yes, lambda v: v - 1, x)
    return jax.jit(program)(np.bool_(True), X), jax.jit(program)(np.bool_(False), X)


def in_switch(log):
    def branch(k):
        def run(x):
            io_callback(lambda v: log.append((k, float(v))), None, x[0, 0])
            return x * k
        return run
    program = jax.jit(lambda i, x: jax.lax.switch(i, [branch(k) for k in range(3)], x))
    results = []
    for i in range(4):
        results.append(program(np.int32(i), X + 1))
        jax.effects_barrier()
    return results


def under_vmap_sequential(log):
    return jax.jit(jax.vmap(lambda x: pure(log, x) + x))(X)


def under_vmap(log, method):
    def host(a):
        return np.asarray(a) * np.float32(3)
    def row(x):
        return jax.pure_callback(host, struct(3), x, vmap_method=method)
    return jax.jit(jax.vmap(row))(X)


def under_vmap_of_scan(log):
    def row(x):
        return jax.lax.scan(lambda c, v: (c + pure(log, v), c), jnp.float32(0), x)
    return jax.jit(jax.vmap(row))(X)


def under_grad(log):
    @jax.custom_vjp
    def square(x):
        return jax.pure_callback(lambda a: np.square(np.asarray(a)), struct(*x.shape), x)

    def forward(x):
        return square(x), x

    def backward(x, g):
        return (g * jax.pure_callback(lambda a: np.asarray(a) * np.float32(2), struct(*x.shape), x),)
    square.defvjp(forward, backward)
    return jax.jit(jax.value_and_grad(lambda x: (square(x) * 2).sum()))(X)


def under_remat_and_grad(log):
    @jax.checkpoint
    def layer(x):
        jax.debug.callback(lambda v: None, x)
        return jnp.square(x) * 3
    return jax.jit(jax.grad(lambda x: layer(layer(x)).sum()))(X)


def in_custom_jvp(log):
    @jax.custom_jvp
    def double(x):
        return pure(log, x)
    double.defjvps(lambda t, ans, x: 2 * t)
    return jax.jit(lambda x: jax.jvp(double, (x,), (x,)))(X)


def with_donation(log):
    def program(x):
        note(log, x[0, 0])
        return pure(log, x) + x
    return jax.jit(program, donate_argnums=0)(jnp.asarray(X) + 1)


def as_state_machine(log):
    """The host keeps a state that the loop reads back."""
    state = {'n': 0}
    def host(x):
        state['n'] += int(x)
        return np.int32(state['n'])
    def body(i, _):
        return io_callback(host, struct(dtype=np.int32), i, ordered=True)
    return jax.jit(lambda: jax.lax.fori_loop(0, 10, body, jnp.int32(0)))()


def large(log):
    x = np.arange(1 << 20, dtype=np.float32)
    return jax.jit(lambda v: pure(log, v)[::4097])(x)


def random_keys(log):
    key = jax.random.key(3)
    def program(k):
        note(log, jax.random.key_data(k))
        return jax.random.uniform(k, (3,))
    return jax.jit(program)(key)


FORMS = [in_jit, without_jit, several_results, no_operands, no_results, neither, zero_size,
         scalars_and_python_values, fortran_order, transposed_operand, chained, same_function_twice,
         ordered, ordered_over_launches, ordered_and_unordered, dead_effects, in_scan,
         in_scan_whose_results_need_none, in_unrolled_scan, in_while, in_while_condition,
         in_fori_loop_of_unknown_count, in_nested_loops, in_cond, in_switch, under_vmap_sequential,
         *(functools.partial(under_vmap, method=method)
           for method in ('expand_dims', 'broadcast_all', 'sequential_unrolled')),
         under_vmap_of_scan, under_grad, under_remat_and_grad, in_custom_jvp, with_donation,
         as_state_machine, large, random_keys]


def name_of(form):
    return getattr(form, '__name__', None) or f'{form.func.__name__}_{form.keywords["method"]}'


@pytest.mark.parametrize('form', FORMS, ids=name_of)
def test_form(form, cpu, device):
    same(form, cpu=cpu, device=device)


DTYPES = [np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32,
          np.uint64, np.float16, np.float32, np.float64, ml_dtypes.bfloat16, np.complex64,
          np.complex128, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4,
          ml_dtypes.uint4]


@pytest.mark.parametrize('dtype', DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_dtype(dtype, device):
    """Bits go to the host and back as they are."""
    x = np.array([[0, 1, 2], [3, 1, 0]]).astype(dtype)
    seen = []

    def host(a, b):
        seen.append((np.asarray(a), np.asarray(b)))
        return b, a
    with compare.x64():
        shapes = struct(dtype=dtype), struct(2, 3, dtype=dtype)
        one, two = jax.jit(lambda a, b: jax.pure_callback(host, shapes, a, b))(x, x[1, 0])
        assert one.dtype == two.dtype == dtype
        np.testing.assert_array_equal(np.asarray(two), x)
        np.testing.assert_array_equal(np.asarray(one), x[1, 0])
    assert seen[0][0].dtype == dtype and seen[0][0].shape == (2, 3)
    np.testing.assert_array_equal(seen[0][0], x)
    np.testing.assert_array_equal(seen[0][1], x[1, 0])


# What programs print.

def printed(program, *args):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        jax.block_until_ready(program(*args))
        jax.effects_barrier()
    return out.getvalue()


def print_formats(x):
    jax.debug.print('plain')
    jax.debug.print('{} and {:.3f} and {y!r:>40}', x, x.sum(), y=x[0], ordered=False)
    return x


def print_ordered(x):
    for i in range(4):
        jax.debug.print('{i}: {x}', i=i, x=x[0, i % 3], ordered=True)
    return x


def print_static(x):
    jax.debug.print('{a} {b}', a='text', b=x[1, 1])
    return x


def print_in_loop(x):
    def body(i, c):
        jax.debug.print('iteration {i} {c}', i=i, c=c, ordered=True)
        return c + 1
    return jax.lax.fori_loop(0, 4, body, x[0, 0])


def print_narrow(x):
    jax.debug.print('{} {} {}', x.astype(jnp.bfloat16), x > 2, x.astype(jnp.complex64))
    return x


@pytest.mark.parametrize('program', [print_formats, print_ordered, print_static, print_in_loop,
                                     print_narrow], ids=lambda f: f.__name__)
def test_print(program, cpu, device):
    texts = []
    for where in (cpu, device):
        with jax.default_device(where):
            texts.append(printed(jax.jit(program), X))
    assert sorted(texts[0].split('\n')) == sorted(texts[1].split('\n'))
    if program in (print_ordered, print_in_loop):
        assert texts[0] == texts[1]
    assert texts[1]


def test_print_in_vmap_and_grad(device):
    def f(x):
        jax.debug.print('x = {}', x)
        return x ** 2
    lines = printed(jax.jit(jax.vmap(f)), np.arange(3.0, dtype=np.float32)).split('\n')
    assert sorted(lines) == ['', 'x = 0.0', 'x = 1.0', 'x = 2.0']
    assert printed(jax.jit(jax.grad(f)), np.float32(4)) == 'x = 4.0\n'


def test_debug_callback_sees_arrays(device):
    seen = []
    def program(x):
        jax.debug.callback(lambda a, k: seen.append((np.asarray(a), k)), x, k=5)
        return x
    jax.jit(program)(X)
    jax.effects_barrier()
    assert len(seen) == 1 and seen[0][1] == 5
    np.testing.assert_array_equal(seen[0][0], X)
