# SPDX-License-Identifier: Apache-2.0
"""Attention in the forms that users write it, beside numpy in f64: layouts, masks, grouped heads,
uneven lengths and widths, narrow types, few rows; as the device prefers, and, with hekla_attention=true,
without its scores in memory on devices with teams of invocations, forwards and backwards."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest

FORMS = {'preferred': {}, 'fused': {'hekla_attention': 'true'},
         'small': {'hekla_attention': 'true', 'hekla_small_limits': 'true'}}
# By a part of the keys each, whatever their number and that of the rows.
KEYS = {'keys': {'hekla_attention': 'keys'},
        'small keys': {'hekla_attention': 'keys', 'hekla_small_limits': 'true'}}
# Roundings of the widest part of a result: of f32 in sums and exponentials, of narrow types once.
BOUND = {'float32': 2e-6, 'bfloat16': 2 ** -7, 'float16': 2 ** -10}


@pytest.fixture(scope='module')
def device():
    return jax.devices()[0]


def operands(shape_q, shape_k, width, dtype):
    rng = np.random.default_rng(3)
    def draw(shape):
        return np.asarray(rng.uniform(-2, 2, shape), np.float32).astype(dtype)
    return draw(shape_q), draw(shape_k), draw((*shape_k[:-1], width))


def expected(q, k, v, logits=lambda x: x, scale=None):
    """(batch, length, heads, width), heads of q a multiple of those of k; in f64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    groups = q.shape[2] // k.shape[2]
    k, v = (np.repeat(x, groups, axis=2) for x in (k, v))
    x = np.einsum('bthd,bshd->bhts', q, k) * (scale or q.shape[-1] ** -0.5)
    x = logits(x)
    with np.errstate(invalid='ignore'):
        x = np.exp(x - x.max(-1, keepdims=True))
        x = x / x.sum(-1, keepdims=True)
        return np.einsum('bhts,bshd->bthd', x, v)


# By matrix units, where operands and device allow it.
MATRIX = {'matrix': {'hekla_attention': 'matrix'},
          'small matrix': {'hekla_attention': 'matrix', 'hekla_small_limits': 'true'}}


def check(device, form, function, args, want, dtype='float32'):
    options = {**FORMS, **KEYS, **MATRIX}[form] if device.platform != 'reference' else {}
    compiled = jax.jit(function, compiler_options=options)
    args = [jax.device_put(x, device) for x in args]
    got = compiled(*args)
    again = compiled(*args)
    assert got.devices() == {device}
    assert np.asarray(got).tobytes() == np.asarray(again).tobytes()
    assert got.dtype == dtype
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=4 * BOUND[dtype],
                               atol=4 * BOUND[dtype])


@pytest.fixture(params=FORMS)
def form(request):
    return request.param


@pytest.mark.parametrize('length, keys, depth, width', [
    (64, 64, 16, 16), (65, 63, 20, 24), (130, 70, 8, 40), (20, 200, 72, 80), (33, 129, 130, 260),
    (128, 2, 3, 5)])
def test_sizes(device, form, length, keys, depth, width):
    q, k, v = operands((2, length, 3, depth), (2, keys, 3, depth), width, np.float32)
    def attention(q, k, v):
        x = jnp.einsum('bthd,bshd->bhts', q, k) * depth ** -0.5
        return jnp.einsum('bhts,bshd->bthd', jax.nn.softmax(x), v)
    check(device, form, attention, (q, k, v), expected(q, k, v))


@pytest.mark.parametrize('layout', ['heads first', 'depth first', 'one head'])
def test_layouts(device, form, layout):
    q, k, v = operands((2, 40, 3, 12), (2, 50, 3, 12), 10, np.float32)
    want = expected(q, k, v)
    def softmax(x):
        return jax.nn.softmax(x * 12 ** -0.5, axis=-1)
    if layout == 'heads first':
        q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
        want = want.transpose(0, 2, 1, 3)
        def attention(q, k, v):
            return softmax(q @ k.mT) @ v
    elif layout == 'depth first':
        q, k, v = (x.transpose(0, 2, 3, 1) for x in (q, k, v))
        want = want.transpose(0, 2, 3, 1)
        def attention(q, k, v):
            weights = softmax(jnp.einsum('bhdt,bhds->bhts', q, k))
            return jnp.einsum('bhts,bhds->bhdt', weights, v)
    else:
        q, k, v, want = q[0, :, 0], k[0, :, 0], v[0, :, 0], want[0, :, 0]
        def attention(q, k, v):
            return softmax(q @ k.T) @ v
    check(device, form, attention, [np.ascontiguousarray(x) for x in (q, k, v)], want)


@pytest.mark.parametrize('dtype, heads', [('float32', 3), ('float32', 1), ('bfloat16', 1),
                                          ('float16', 3)])
@pytest.mark.parametrize('mask', ['none', 'causal', 'window', 'lengths', 'bias'])
def test_dot_product_attention(device, mask, heads, dtype, form='fused'):
    q, k, v = operands((2, 50, 3, 16), (2, 50, heads, 16), 16, dtype)
    options, args, logits = {}, (), lambda x: x
    row, column = np.arange(50)[:, None], np.arange(50)
    if mask == 'causal':
        options['is_causal'] = True
        logits = lambda x: np.where(row >= column, x, -np.inf)
    elif mask == 'window':
        options['local_window_size'] = (8, 2)
        logits = lambda x: np.where((column >= row - 8) & (column <= row + 2), x, -np.inf)
    elif mask == 'lengths':
        lengths = np.array([50, 21], np.int32)
        args = (lengths,)
        logits = lambda x: np.where(column < lengths[:, None, None, None], x, -np.inf)
    elif mask == 'bias':
        bias = np.random.default_rng(5).uniform(-1, 1, (1, 3, 50, 50)).astype(dtype)
        args = (bias,)
        logits = lambda x: x + np.asarray(bias, np.float64)
    def attention(q, k, v, *more):
        if mask == 'lengths':
            return jax.nn.dot_product_attention(q, k, v, key_value_seq_lengths=more[0])
        return jax.nn.dot_product_attention(q, k, v, *more, **options)
    check(device, form, attention, (q, k, v, *args), expected(q, k, v, logits), dtype)


@pytest.mark.parametrize('form, mask, dtype, heads', [
    ('matrix', 'none', 'bfloat16', 3), ('small matrix', 'causal', 'bfloat16', 1),
    ('matrix', 'window', 'float16', 1), ('small matrix', 'lengths', 'float16', 3),
    ('small matrix', 'bias', 'bfloat16', 1)])
def test_attention_on_matrix_units(device, form, mask, dtype, heads):
    test_dot_product_attention(device, mask, heads, dtype, form)


def test_rows_without_keys(device, form):
    """Rows whose logits are all -infinity are NaN, the others are not."""
    q, k, v = operands((1, 40, 2, 8), (1, 70, 2, 8), 8, np.float32)
    row, column = np.arange(40)[:, None], np.arange(70)
    def logits(x, where):
        return where((row >= 3) & (column >= 33), x, -np.inf)
    def attention(q, k, v):
        x = logits(jnp.einsum('bthd,bshd->bhts', q, k) * 8 ** -0.5, jnp.where)
        return jnp.einsum('bhts,bshd->bthd', jax.nn.softmax(x), v)
    want = expected(q, k, v, lambda x: logits(x, np.where))
    assert np.isnan(want).any() and not np.isnan(want).all()
    check(device, form, attention, (q, k, v), want)


@pytest.mark.parametrize('form, dtype, heads, rows', [
    ('preferred', 'float32', 4, 1), ('fused', 'bfloat16', 2, 1), ('small', 'float16', 1, 1),
    ('keys', 'float32', 1, 5), ('small keys', 'float32', 2, 3)])
def test_few_rows_against_a_long_cache(device, form, dtype, heads, rows):
    """As in decoding: one or a few new tokens, a cache of which a part is there yet."""
    q, k, v = operands((2, rows, 4, 24), (2, 777, heads, 24), 40, dtype)
    lengths = np.array([777, 301], np.int32)
    def attention(q, k, v, lengths):
        groups = q.reshape(2, rows, heads, 4 // heads, 24)
        x = jnp.einsum('bthgd,bshd->bhgts', groups, k, preferred_element_type=jnp.float32)
        there = jnp.arange(777) < lengths[:, None, None, None, None]
        weights = jax.nn.softmax(jnp.where(there, x * 24 ** -0.5, -2e38))
        return jnp.einsum('bhgts,bshd->bthgd', weights.astype(dtype), v).reshape(2, rows, 4, 40)
    def logits(x):
        return np.where(np.arange(777) < lengths[:, None, None, None], x, -np.inf)
    check(device, form, attention, (q, k, v, lengths), expected(q, k, v, logits), dtype)


def check_gradients(device, form, function, args, dtype='float32', weights=1):
    """Beside jaxlib's CPU in f64."""
    options = FORMS[form] if device.platform != 'reference' else {}
    rng = np.random.default_rng(9)
    shape = jax.eval_shape(function, *args).shape
    cotangent = np.asarray(rng.uniform(-1, 1, shape), np.float32).astype(dtype)
    def value_and_gradients(function, cotangent, *args):
        value, back = jax.vjp(function, *args)
        return (value, *back(cotangent))
    compiled = jax.jit(lambda *args: value_and_gradients(function, *args), compiler_options=options)
    alone = jax.jit(lambda *args: value_and_gradients(function, *args)[1:], compiler_options=options)
    on_device = [jax.device_put(x, device) for x in (cotangent, *args)]
    got = compiled(*on_device)
    assert all(x.devices() == {device} for x in got)
    for one, other in zip(got, compiled(*on_device)):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    host = jax.local_devices(backend='cpu')[0]
    with jax.default_device(host), jax.enable_x64(True):
        wide = [np.asarray(x).astype(np.float64) if np.asarray(x).dtype.kind not in 'iub' else x
                for x in (cotangent, *args)]
        want = [np.asarray(x) for x in value_and_gradients(function, *wide)]
    for results, wanted in ((got, want), (alone(*on_device), want[1:])):
        for one, other in zip(results, wanted):
            assert one.dtype == dtype
            greatest = max(1, np.abs(other).max())
            np.testing.assert_allclose(np.asarray(one, np.float64), other, rtol=0,
                                       atol=16 * BOUND[dtype] * greatest)


@pytest.mark.parametrize('form, length, keys, depth, width', [
    ('fused', 65, 63, 20, 24), ('small', 64, 64, 16, 16), ('small', 20, 120, 37, 41),
    ('small', 33, 2, 5, 3)])
def test_gradients_of_sizes(device, form, length, keys, depth, width):
    q, k, v = operands((2, length, 3, depth), (2, keys, 3, depth), width, np.float32)
    def attention(q, k, v):
        x = jnp.einsum('bthd,bshd->bhts', q, k) * depth ** -0.5
        return jnp.einsum('bhts,bshd->bthd', jax.nn.softmax(x), v)
    check_gradients(device, form, attention, (q, k, v))


@pytest.mark.parametrize('form, wrapped', [
    ('fused', 'checkpoint'), ('small', 'vmap'), ('small', 'tanh'), ('small', 'shared keys'),
    ('small', 'loop')])
def test_gradients_of_forms(device, form, wrapped):
    q, k, v = operands((2, 20, 3, 12), (2, 25, 3, 12), 10, np.float32)
    def one(q, k, v):
        x = jnp.einsum('thd,shd->hts', q, k) * 12 ** -0.5
        if wrapped == 'tanh':
            x = 5 * jnp.tanh(x / 5)
        x = jnp.where(jnp.tril(jnp.ones(x.shape[1:], bool)), x, -jnp.inf)
        return jnp.einsum('hts,shd->thd', jax.nn.softmax(x), v)
    if wrapped == 'checkpoint':
        attention = jax.checkpoint(jax.vmap(one))
    elif wrapped == 'shared keys':
        k, v = k[0], v[0]
        attention = jax.vmap(one, in_axes=(0, None, None))
    elif wrapped == 'loop':
        def attention(q, k, v):
            def step(carry, _):
                return jnp.pad(jax.vmap(one)(carry, k, v), ((0, 0), (0, 0), (0, 0), (0, 2))), None
            return jax.lax.scan(step, q, None, length=2)[0]
    else:
        attention = jax.vmap(one)
    check_gradients(device, form, attention, (q, k, v))


@pytest.mark.parametrize('mask, dtype, heads', [
    ('none', 'float32', 3), ('causal', 'bfloat16', 1), ('window', 'float32', 1),
    ('bias', 'float16', 3)])
def test_gradients_of_dot_product_attention(device, mask, heads, dtype):
    q, k, v = operands((2, 50, 3, 16), (2, 50, heads, 16), 16, dtype)
    options, args = {}, ()
    if mask == 'causal':
        options['is_causal'] = True
    elif mask == 'window':
        options['local_window_size'] = (8, 2)
    elif mask == 'bias':
        args = (np.random.default_rng(5).uniform(-1, 1, (1, 3, 50, 50)).astype(dtype),)
    def attention(q, k, v, *more):
        return jax.nn.dot_product_attention(q, k, v, *more, **options)
    check_gradients(device, 'small', attention, (q, k, v, *args), dtype)


def test_no_scores_in_memory(device):
    if device.platform != 'vulkan':
        pytest.skip('the CPU runs products of attention a few rows at a time, the evaluator whole')
    shape = jax.ShapeDtypeStruct((1, 512, 2, 16), np.float32)
    def temporary_bytes(attention):
        compiled = jax.jit(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True),
                           compiler_options={'hekla_attention': attention})
        return compiled.lower(shape, shape, shape).compile().memory_analysis().temp_size_in_bytes
    scores = 2 * 512 * 512 * 4
    assert temporary_bytes('false') >= scores
    assert temporary_bytes('true') < scores // 10


@pytest.mark.parametrize('form', ['value_and_grad', 'grad', 'checkpoint', 'causal'])
def test_no_scores_in_memory_of_gradients(device, form):
    if device.platform != 'vulkan':
        pytest.skip('the CPU keeps the scores of gradients')
    shape = jax.ShapeDtypeStruct((1, 512, 2, 16), np.float32)
    def attention(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, is_causal=form == 'causal')
    if form == 'checkpoint':
        attention = jax.checkpoint(attention)
    def loss(q, k, v):
        return attention(q, k, v).sum() if form == 'grad' else (attention(q, k, v) ** 2).sum()
    gradient = (jax.value_and_grad if form == 'value_and_grad' else jax.grad)(loss, (0, 1, 2))
    def temporary_bytes(attention):
        compiled = jax.jit(gradient, compiler_options={'hekla_attention': attention})
        return compiled.lower(shape, shape, shape).compile().memory_analysis().temp_size_in_bytes
    scores = 2 * 512 * 512 * 4
    assert temporary_bytes('false') >= scores
    assert temporary_bytes('true') < scores // 5
