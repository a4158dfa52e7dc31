# SPDX-License-Identifier: Apache-2.0
"""JAX's transformations and control flow, donation, asynchronous work."""
import functools
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from compare import check_same

pytestmark = pytest.mark.quick
F32 = np.float32


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def mlp(weights, x):
    for w, b in weights:
        x = jnp.tanh(x @ w + b)
    return x.sum()


WEIGHTS = [(normal(5, 7, seed=1), normal(7, seed=2)), (normal(7, 3, seed=3), normal(3, seed=4))]
# name: function, arguments.
CASES = {
    'grad': (jax.grad(mlp), (WEIGHTS, normal(4, 5))),
    'value_and_grad': (jax.value_and_grad(mlp), (WEIGHTS, normal(4, 5))),
    'vmap_of_grad': (jax.vmap(jax.grad(lambda x: jnp.sin(x).prod())), (normal(6, 3),)),
    'jvp': (lambda x, t: jax.jvp(lambda a: jnp.exp(a) * a, (x,), (t,)),
            (normal(3, 2), normal(3, 2, seed=5))),
    'jacobians': (lambda x: (jax.jacfwd(jnp.cumprod)(x), jax.jacrev(jnp.cumprod)(x)),
                  (normal(5),)),
    'hessian': (jax.hessian(lambda x: jnp.sum(x ** 3) * jnp.prod(x)), (normal(4),)),
    'vmap_axes': (jax.vmap(jnp.dot, in_axes=(0, 1), out_axes=0), (normal(4, 5), normal(5, 4))),
    'nested_vmap': (jax.vmap(jax.vmap(jnp.outer, (0, None)), (None, 0)),
                    (normal(3, 2), normal(4, 5))),
    'scan': (lambda c, xs: lax.scan(lambda c, x: (c * 0.5 + x, c * x), c, xs),
             (normal(3), normal(6, 3))),
    'scan_reverse': (lambda xs: lax.scan(lambda c, x: (c + x, c), jnp.zeros(2), xs, reverse=True),
                     (normal(5, 2),)),
    'scan_unrolled': (lambda xs: lax.scan(lambda c, x: (c + x, c), 0.0, xs, unroll=3),
                      (normal(7),)),
    'grad_of_scan': (jax.grad(lambda w, xs: lax.scan(
        lambda h, x: (jnp.tanh(h @ w + x),) * 2, jnp.zeros(4), xs)[1].sum()),
        (normal(4, 4), normal(5, 4))),
    'while': (lambda x: lax.while_loop(lambda s: s[1] < 100, lambda s: (s[0] + 1, s[1] * 2),
                                       (0, x)), (F32(1.5),)),
    'while_never': (lambda x: lax.while_loop(lambda s: s > 10, lambda s: s - 1, x), (F32(3),)),
    'batched_while': (jax.vmap(lambda x: lax.while_loop(lambda s: s < 50, lambda s: s * 3, x)),
                      (np.array([1, 7, 60, 2], np.int32),)),
    'fori_inside_scan': (lambda x: lax.scan(
        lambda c, i: (lax.fori_loop(0, i, lambda j, s: s + j, c), c), x, jnp.arange(5)), (0,)),
    'cond_true': (lambda p, x: lax.cond(p > 0, jnp.sin, jnp.cos, x), (1, normal(3))),
    'cond_false': (lambda p, x: lax.cond(p > 0, jnp.sin, jnp.cos, x), (-1, normal(3))),
    'switch_clamps': (lambda x: [lax.switch(i, [lambda a: a, lambda a: a * 2, jnp.exp], x)
                                 for i in (-3, 0, 1, 2, 9)], (normal(2),)),
    'switch_on_data': (lambda i, x: lax.switch(i, [lambda a: a, lambda a: a * 2, jnp.exp], x),
                       (7, normal(2))),
    'grad_of_cond': (jax.grad(lambda x: lax.cond(x > 0, lambda a: a ** 2, lambda a: -a, x)),
                     (F32(3),)),
    'custom_vjp': (jax.grad(lambda x: clip_gradient(x) ** 2), (F32(5),)),
    'checkpoint': (jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum())), (normal(4),)),
    'inner_jit': (lambda x: jax.jit(jnp.sort)(x) + jax.jit(jnp.sort)(-x), (normal(5),)),
    'associative_scan': (lambda x: lax.associative_scan(jnp.multiply, x), (normal(9),)),
    'map': (lambda x: lax.map(lambda r: jnp.sort(r)[0], x), (normal(4, 3),)),
    'no_inputs': (lambda: jnp.arange(5) * 2, ()),
    'many_outputs': (lambda x: [x + i for i in range(40)], (normal(3),)),
    'tree': (lambda t: {'b': t['a'][0] * 2, 'c': (t['a'][1], None)},
             ({'a': [normal(2), normal(3)]},)),
    'same_output_twice': (lambda x: (x, x, x + 1, x), (normal(3),)),
    'scalars': (lambda a, b: (a + b, a * 2, -b), (3, 2.5)),
    'zero_size': (lambda x: (x.sum(0), x @ jnp.zeros((0, 3)), jnp.concatenate([x, x]), x.max(
        initial=-1, axis=1)), (np.zeros((4, 0), F32),)),
    'constants': (lambda x: x + np.arange(12, dtype=F32).reshape(3, 4), (normal(3, 4),)),
    'barrier': (lambda x: lax.optimization_barrier((x * 2, x + 1)), (normal(3),)),
}


@jax.custom_vjp
def clip_gradient(x):
    return x


clip_gradient.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1, 1),))


@pytest.mark.parametrize('name', CASES)
def test_same_as_cpu(device, cpu, name):
    function, args = CASES[name]
    check_same(device, cpu, function, args)


# What each launch draws is the launch's own; an executable's n-th launch draws the same everywhere.
def test_rng_draws_anew(device):
    def drawn(count):
        zero, one = jax.device_put((F32(0), F32(1)), device)
        draw = jax.jit(lambda a, b: lax.rng_uniform(a, b, (1000,)))
        numbers = [np.asarray(draw(zero, one)) for _ in range(count)]
        jax.clear_caches()
        return numbers
    first = drawn(3)
    assert len(np.unique(first)) > 2900 and 0 <= np.min(first) and np.max(first) < 1
    if device.platform != 'cpu':
        np.testing.assert_array_equal(drawn(2), first[:2])


def test_no_outputs():
    assert jax.jit(lambda x: None)(jnp.ones(3)) is None
    assert jax.jit(lambda x: ())(jnp.ones(3)) == ()


def test_donated_input_is_gone(shim, platform, device):
    step = jax.jit(lambda w, g: (w - 0.1 * g, g.sum()), donate_argnums=0)
    w, g = jax.device_put((normal(50, 50), normal(50, 50, seed=1)), device)
    if not shim and platform != 'cpu':
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')   # JAX itself drops donation on an unknown platform
            new, _ = step(w, g)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            new, _ = step(w, g)
        assert w.is_deleted() and not g.is_deleted()
        with pytest.raises(RuntimeError, match='(?i)delete|donate'):
            np.asarray(w)
        with pytest.raises(Exception, match='(?i)delete|donate'):
            jax.block_until_ready(step(w, g))
    np.testing.assert_allclose(np.asarray(new), normal(50, 50) - F32(0.1) * normal(50, 50, seed=1),
                               rtol=1e-6, atol=1e-6)


def test_donation_in_a_chain(device):
    step = jax.jit(lambda s: jax.tree.map(lambda x: x * F32(1.5) - 1, s), donate_argnums=0)
    state = jax.device_put({'a': np.ones((8, 8), F32), 'b': np.ones(3, F32)}, device)
    want = F32(1)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        for _ in range(20):
            state = step(state)
            want = want * F32(1.5) - F32(1)
    np.testing.assert_allclose(np.asarray(state['a'])[3, 3], want, rtol=1e-6)


def launched(step, device, sharing):
    """A launch whose argument i is the array number sharing[i]: its results, or which two arguments
    its error names, and which arrays are gone."""
    arrays = [jax.device_put(np.arange(i, i + 5, dtype=F32), device) for i in range(3)]
    try:
        got = [np.asarray(a).tolist() for a in step(*(arrays[number] for number in sharing))]
    except (RuntimeError, ValueError) as error:
        words = str(error)
        assert 'INVALID_ARGUMENT' in words and 'donate' in words
        theirs = re.search(r'flattened argument (\d+),.* first use: (\d+)', words)
        got = theirs.group(2, 1) if theirs else re.search(
            r'arguments (\d+) and (\d+) of jit_\S+ are the same buffer', words).groups()
    return got, [array.is_deleted() for array in arrays]


@pytest.mark.parametrize('donated', [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_one_array_for_several_arguments(shim, platform, device, donated):
    """An array that is donated is the argument of one parameter, as on XLA's CPU; a launch that is
    refused takes nothing."""
    def function(a, b, c):
        return a + 1, b * 2, c - 3
    # Without the package JAX itself drops donation on an unknown platform.
    dropped = not shim and platform != 'cpu'
    step = jax.jit(function, donate_argnums=donated)
    model = jax.jit(function, donate_argnums=() if dropped else donated)
    for sharing in [(0, 1, 2), (0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 0, 0)]:
        wanted = launched(model, jax.devices('cpu')[0], sharing)
        with warnings.catch_warnings():
            warnings.simplefilter('ignore' if dropped else 'error')
            assert launched(step, device, sharing) == wanted, sharing
        refused = isinstance(wanted[0], tuple)
        clashes = any(i in donated for i in range(3) if sharing.count(sharing[i]) > 1)
        assert refused == (clashes and not dropped), sharing


def test_long_chain_of_launches(device):
    step = jax.jit(lambda x: x + 1)
    x = jax.device_put(np.zeros(10, F32), device)
    for _ in range(500):
        x = step(x)
    np.testing.assert_array_equal(np.asarray(jax.block_until_ready(x)), np.full(10, 500, F32))


def test_error_reaches_dependent_work(device):
    """A launch that cannot get its memory fails; so does what uses its result, and only that."""
    big = jax.jit(lambda x: jnp.broadcast_to(x, (1 << 44,)) * x)
    with pytest.raises(Exception):
        jax.block_until_ready(jax.jit(lambda y: y[:3] + 1)(big(F32(2))))
    np.testing.assert_array_equal(np.asarray(jnp.arange(3) + 1), [1, 2, 3])


def test_static_and_cached(device):
    traces = []

    @functools.partial(jax.jit, static_argnums=1)
    def power(x, n):
        traces.append(n)
        return x ** n
    for n in (2, 3, 2):
        assert float(power(F32(3), n)) == 3.0 ** n
    assert traces == [2, 3]


def test_ahead_of_time(device):
    compiled = jax.jit(lambda x: x.sum(0)).lower(jax.ShapeDtypeStruct((3, 2), F32)).compile()
    np.testing.assert_array_equal(np.asarray(compiled(jnp.ones((3, 2)))), [3, 3])
    with pytest.raises(TypeError):
        compiled(jnp.ones((2, 3)))
