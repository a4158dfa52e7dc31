# SPDX-License-Identifier: Apache-2.0
"""The table of operations that test_ops.py sweeps: (name, function, argument makers, dtypes).

An argument maker is called with a random generator and the case's dtype.
"""
import dataclasses
import functools
from typing import Any, Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.scipy import special

BF16 = jnp.bfloat16
FLOATS = ('float32', 'float16', 'bfloat16', 'float64')
INTS = ('int32', 'int8', 'uint8', 'int16', 'uint32', 'int64', 'uint64', 'uint16')
F32 = ('float32',)
BOTH = ('float32', 'int32')
COMPLEX = ('complex64', 'complex128')
ANY = ('float32', 'int32', 'bool', 'complex64', 'bfloat16')


# ---------------------------------------------------------------- argument makers
def N(*shape):
    """Normal for floats and complex, -7 to 7 (or 0 to 7) for integers, coin flips for bool."""
    def make(rng, dtype):
        if dtype == bool:
            return rng.integers(0, 2, shape).astype(bool)
        if jnp.issubdtype(dtype, np.integer):
            low = 0 if jnp.issubdtype(dtype, np.unsignedinteger) else -7
            return rng.integers(low, 8, shape).astype(dtype)
        x = rng.standard_normal(shape)
        if jnp.issubdtype(dtype, np.complexfloating):
            x = x + 1j * rng.standard_normal(shape)
        return np.asarray(x).astype(dtype)
    return make


def U(low, high, *shape):
    return lambda rng, dtype: np.asarray(rng.uniform(low, high, shape)).astype(dtype)


def I(low, high, *shape, dtype=np.int32):
    """Integers of a fixed dtype: indices, counts."""
    return lambda rng, _: np.asarray(rng.integers(low, high, shape)).astype(dtype)


def EDGE():
    """The corners of an integer dtype, or the special values of a float one."""
    def make(rng, dtype):
        if jnp.issubdtype(dtype, np.integer):
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
            return np.array([low, low + 1, high, high - 1, 0, 1, 2, 3, 7, high // 2], dtype)
        tiny = float(jnp.finfo(dtype).tiny)
        return np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, tiny, 0.5, -2.5]).astype(dtype)
    return make


def C(value):
    return lambda rng, dtype: np.asarray(value)


def SPD(n, *batch):
    """Symmetric positive definite matrices."""
    def make(rng, dtype):
        a = N(*batch, n, n)(rng, dtype)
        return (a @ a.conj().swapaxes(-1, -2) + n * np.eye(n)).astype(dtype)
    return make


@dataclasses.dataclass
class Case:
    name: str
    function: Callable
    makers: tuple
    dtype: str
    options: dict[str, Any]

    @property
    def id(self):
        return f'{self.name}-{self.dtype}'


CASES = []


def op(name, function, *makers, dtypes=F32, **options):
    """options: exact (bits must agree), lapack (jaxlib's CPU rule calls LAPACK)."""
    CASES.extend(Case(name, function, makers, d, options) for d in dtypes)


# ---------------------------------------------------------------- elementwise
for f in ('abs', 'ceil', 'floor', 'sign', 'negative', 'positive', 'square', 'isnan', 'isfinite',
          'rint', 'trunc'):
    op(f, getattr(jnp, f), N(3, 5), dtypes=FLOATS, exact=f != 'square')
for f in ('exp', 'exp2', 'expm1', 'sin', 'cos', 'tan', 'tanh', 'sinh', 'cosh', 'arctan', 'arcsinh',
          'cbrt'):
    op(f, getattr(jnp, f), N(3, 7), dtypes=FLOATS[:3])
for f in ('log', 'log2', 'log10', 'log1p', 'sqrt', 'reciprocal'):
    op(f, getattr(jnp, f), U(0.1, 5, 3, 7), dtypes=FLOATS[:3])
for f in ('arcsin', 'arccos', 'arctanh'):
    op(f, getattr(jnp, f), U(-0.95, 0.95, 20), dtypes=FLOATS[:3])
op('arccosh', jnp.arccosh, U(1.1, 9, 20), dtypes=FLOATS[:3])
op('rsqrt', lax.rsqrt, U(0.1, 5, 3, 7), dtypes=FLOATS[:3])
for f in ('exp', 'log', 'sqrt', 'sin', 'tanh', 'floor', 'sign', 'cbrt', 'arctan', 'log1p', 'rint'):
    op(f + '_edges', getattr(jnp, f), EDGE())
for f in ('add', 'subtract', 'multiply'):
    op(f, getattr(jnp, f), N(3, 4), N(3, 4), dtypes=FLOATS[:3] + INTS, exact=True)
    op(f + '_broadcast', getattr(jnp, f), N(3, 1, 4), N(5, 1), dtypes=BOTH)
for f in ('maximum', 'minimum'):
    op(f, getattr(jnp, f), N(4, 4), N(4), dtypes=FLOATS[:3] + INTS[:4] + ('bool',), exact=True)
    op(f + '_edges', lambda x, g=getattr(jnp, f): g(x[:, None], x), EDGE(), dtypes=BOTH, exact=True)
op('divide', jnp.divide, N(3, 4), U(0.5, 2, 3, 4), dtypes=FLOATS[:3])
op('divide_edges', lambda x: x[:, None] / x, EDGE())
op('power', jnp.power, U(0.2, 3, 4, 4), N(4), dtypes=FLOATS[:3])
op('power_edges', lambda x: jnp.power(x[:, None], x), EDGE())
op('integer_power', lambda x: (x ** 3, x ** 7, x ** -2), U(0.5, 2, 9), dtypes=FLOATS[:3])
op('int_power', lambda x, n: x ** n, N(9), I(0, 5, 9), dtypes=('int32',))
op('arctan2', jnp.arctan2, N(5, 5), N(5), dtypes=FLOATS[:3])
op('arctan2_edges', lambda x: jnp.arctan2(x[:, None], x), EDGE())
op('hypot', jnp.hypot, N(9), N(9))
op('nextafter', jnp.nextafter, N(9), N(9), exact=True)
op('copysign', jnp.copysign, EDGE(), N(10), exact=True)
op('fmod', jnp.fmod, N(5, 5), U(0.3, 2, 5), dtypes=F32)
op('remainder_edges', lambda x: jnp.remainder(x[:, None], x), EDGE(), dtypes=('float32', *INTS[:5]))
op('floor_divide_edges', lambda x: x[:, None] // x, EDGE(), dtypes=INTS[:5], exact=True)
op('lax_div_edges', lambda x: (lax.div(x[:, None].repeat(10, 1), x[None].repeat(10, 0)),
                               lax.rem(x[:, None].repeat(10, 1), x[None].repeat(10, 0))), EDGE(),
   dtypes=INTS[:6], exact=True)
op('compare', lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y), N(30), N(30),
   dtypes=FLOATS[:3] + INTS + ('bool',), exact=True)
op('compare_edges', lambda x: (x[:, None] < x, x[:, None] == x, x[:, None] != x), EDGE(),
   dtypes=BOTH, exact=True)
op('where', lambda p, x, y: jnp.where(p > 0, x, y), N(4, 5), N(4, 5), N(5), dtypes=ANY[:2] +
   ('bfloat16',), exact=True)
op('clip', lambda x: (jnp.clip(x, -1, 1), lax.clamp(x.dtype.type(0), x, x.dtype.type(2))), N(4, 5),
   dtypes=FLOATS[:3] + ('int32', 'int8'), exact=True)
op('bits', lambda x, y: (x & y, x | y, x ^ y, ~x), EDGE(), N(10), dtypes=INTS, exact=True)
op('bool_logic', lambda x, y: (x & y, x | y, x ^ y, ~x, jnp.logical_xor(x, y)), N(9), N(9),
   dtypes=('bool',), exact=True)
op('popcount', lambda x: (lax.population_count(x), lax.clz(x)), EDGE(), dtypes=INTS, exact=True)
op('shifts', lambda x, n: (lax.shift_left(x, n.astype(x.dtype)),
                           lax.shift_right_arithmetic(x, n.astype(x.dtype)),
                           lax.shift_right_logical(x, n.astype(x.dtype))),
   EDGE(), C([0, 1, 2, 7, 8, 15, 16, 31, 33, 100]), dtypes=INTS, exact=True)
op('int_overflow', lambda x: (x + x, x * x, -x, abs(x), x - 1), EDGE(), dtypes=INTS, exact=True)
op('round_half', lambda x: (jnp.round(x), lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)),
   C(np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 8388609.0], np.float32)), exact=True)
op('lerp_fused', lambda x, y, t: x + (y - x) * t * jax.nn.sigmoid(x) - jnp.exp(-y * y), N(50),
   N(50), N(50), dtypes=FLOATS[:3])
op('softplus_family', lambda x: (jax.nn.softplus(x), jax.nn.silu(x), jax.nn.elu(x),
                                 jax.nn.gelu(x), jax.nn.gelu(x, approximate=False),
                                 jax.nn.log_sigmoid(x)), N(20), dtypes=('float32', 'bfloat16'))

# ---------------------------------------------------------------- conversions
for source in ('float32', 'int32', 'uint8', 'bool', 'bfloat16', 'float16', 'int8', 'float64'):
    op('convert', lambda x: [x.astype(t) for t in ('float32', 'int32', 'uint8', 'int8', 'bool',
                                                   'bfloat16', 'float16', 'complex64', 'uint32')],
       U(0, 7, 6) if source != 'bool' else N(6), dtypes=(source,), exact=True)
op('convert_saturates', lambda x: (x.astype('int32'), x.astype('int8'), x.astype('uint8')),
   C(np.array([1e10, -1e10, np.inf, -np.inf, np.nan, 3.99, -3.99, 300, -300], np.float32)),
   exact=True)
op('convert_f8', lambda x: [x.astype(t).astype(jnp.float32) for t in (
    jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.float8_e4m3b11fnuz, jnp.float8_e5m2fnuz,
    jnp.float8_e4m3fnuz)], N(40), exact=True)
op('convert_int4', lambda x: (x.astype(jnp.int4).astype(jnp.int32),
                              x.astype(jnp.uint4).astype(jnp.int32)), I(-8, 8, 20), exact=True)
op('convert_bf16_ties', lambda x: x.astype(BF16), C(np.array(
    [1.00390625, 1.01171875, 1 + 3 / 512, 3.4e38, 1e-40, -1e-45], np.float32)), exact=True)
op('bitcast', lambda x: (lax.bitcast_convert_type(x, jnp.int32),
                         lax.bitcast_convert_type(x, jnp.uint8),
                         lax.bitcast_convert_type(x, jnp.uint16)), N(3, 4), exact=True)
op('bitcast_up', lambda x: lax.bitcast_convert_type(x, jnp.float32), N(3, 4), dtypes=('uint8',),
   exact=True)
op('reduce_precision', lambda x: (lax.reduce_precision(x, 5, 10), lax.reduce_precision(x, 8, 3),
                                  lax.reduce_precision(x, 4, 3)), N(30), exact=True)
op('frexp', lambda x: (jnp.frexp(x), jnp.ldexp(x, 3), jnp.modf(x)), N(12))

# ---------------------------------------------------------------- shapes
op('transpose', lambda x: (x.T, x.transpose(1, 2, 0), jnp.swapaxes(x, 0, 1)), N(2, 3, 4),
   dtypes=ANY, exact=True)
op('reshape', lambda x: (x.reshape(4, 6), x.ravel(), x[None, ..., None], x.reshape(2, 1, 12)),
   N(2, 3, 4), dtypes=ANY, exact=True)
op('reverse', lambda x: (jnp.flip(x), jnp.flip(x, (0, 2)), x[::-1, :, ::-2]), N(2, 3, 4),
   dtypes=ANY, exact=True)
op('pad', lambda x: (jnp.pad(x, ((1, 2), (0, 3))), lax.pad(x, x.dtype.type(1), (
    (1, -1, 2), (-2, 0, 1))), lax.pad(x, x.dtype.type(0), ((-1, -1, 0), (2, -3, 0)))), N(3, 4),
   dtypes=BOTH + ('bfloat16', 'bool'), exact=True)
for mode in ('edge', 'reflect', 'symmetric', 'wrap', 'linear_ramp', 'mean'):
    op(f'pad_{mode}', functools.partial(jnp.pad, pad_width=((2, 1), (0, 3)), mode=mode), N(4, 5))
op('concatenate', lambda x, y: (jnp.concatenate([x, y, x], 1), jnp.stack([x, x], -1),
                                jnp.hstack([x, y])), N(2, 3), N(2, 4), dtypes=ANY, exact=True)
op('split_tile_repeat', lambda x: (jnp.split(x, 2, 1), jnp.tile(x, (2, 3)), jnp.repeat(x, 3, 0),
                                   jnp.roll(x, (1, -2), (0, 1)), jnp.rot90(x)), N(3, 4),
   dtypes=BOTH, exact=True)
op('broadcast', lambda x: (jnp.broadcast_to(x, (4, 3, 5)), lax.broadcast_in_dim(
    x[:, 0], (2, 3, 4), (1,)), lax.expand_dims(x, (0, 3))), N(3, 1), dtypes=ANY, exact=True)
op('iota', lambda x: (jnp.arange(7, dtype=x.dtype), lax.broadcasted_iota(x.dtype, (3, 4, 2), 1),
                      jnp.eye(3, 4, 1, dtype=x.dtype), jnp.linspace(0, 1, 5)), N(1),
   dtypes=('float32', 'int32', 'uint8', 'bfloat16'))
op('triangles', lambda x: (jnp.tril(x), jnp.triu(x, 1), jnp.diag(x[0]), jnp.diagonal(x, 1),
                           jnp.trace(x)), N(4, 4), dtypes=BOTH)
op('meshgrid', lambda x, y: (jnp.meshgrid(x, y), jnp.kron(x, y), jnp.vander(x, 3)), N(3), N(4))

# ---------------------------------------------------------------- reductions, windows
for f in ('sum', 'prod', 'max', 'min', 'mean', 'var', 'all', 'any', 'argmax', 'argmin', 'ptp',
          'count_nonzero'):
    op(f'{f}_axis', functools.partial(getattr(jnp, f), axis=1), N(3, 5, 4), dtypes=BOTH +
       (() if f in ('mean', 'var', 'ptp') else ('bfloat16', 'int8')))
    op(f'{f}_all', getattr(jnp, f), N(3, 5, 4), dtypes=BOTH)
op('reduce_axes', lambda x: (x.sum((0, 2)), x.max((1, 3)), x.min(), x.prod(-1), x.sum(
    0, keepdims=True)), N(2, 3, 4, 3), dtypes=('float32', 'float16', 'complex64', 'int32')[:2])
op('reduce_complex', lambda x: (x.sum((0, 2)), x.prod(-1), x.mean()), N(2, 3, 4), dtypes=COMPLEX)
op('reduce_bits', lambda x: (lax.reduce_and(x, (0,)), lax.reduce_or(x, (1,)),
                             lax.reduce_xor(x, (0, 1))), N(4, 5), dtypes=('int32', 'bool', 'uint8'),
   exact=True)
op('reduce_generic', lambda x: lax.reduce(x, np.float32(0), lambda a, b: jnp.hypot(a, b), (1,)),
   N(4, 5))
op('reduce_pair', lambda x, i: lax.reduce((x, i), (np.float32(-9), np.int32(0)), lambda a, b: (
    jnp.maximum(a[0], b[0]), a[1] + b[1]), (1,)), N(4, 5), I(0, 9, 4, 5))
op('reduce_nan', lambda x: (x.max(), x.min(), jnp.argmax(x), jnp.argmin(x), jnp.nanmax(x),
                            jnp.nansum(x)), C(np.array([1, np.nan, 3, -np.inf], np.float32)))
op('reduce_empty', lambda x: (x.sum(0), x.prod(0), x.max(0, initial=-5), x.any(0)), N(0, 3))
op('logsumexp', lambda x: (special.logsumexp(x, 1), jax.nn.softmax(x, 0),
                           jax.nn.log_softmax(x)), N(5, 6), dtypes=('float32', 'bfloat16'))
op('statistics', lambda x: (jnp.std(x, 0), jnp.median(x, 1), jnp.quantile(x, 0.3),
                            jnp.percentile(x, jnp.array([10, 90]), axis=0), jnp.cov(x),
                            jnp.corrcoef(x)), N(4, 9))
op('norms', lambda x: (jnp.linalg.norm(x), jnp.linalg.norm(x, 1, axis=1),
                       jnp.linalg.norm(x, np.inf, axis=0)), N(4, 5))
for f in ('cumsum', 'cumprod', 'cummax', 'cummin', 'cumlogsumexp'):
    g = getattr(lax, f)
    op(f, lambda x, g=g: (g(x, 0), g(x, 1, reverse=True)), N(5, 6),
       dtypes=('float32', 'bfloat16') if f == 'cumlogsumexp' else ('float32', 'int32'))
op('reduce_window', lambda x: (
    lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), 'VALID'),
    lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 2, 1), 'SAME'),
    lax.reduce_window(x, 1.0, lax.mul, (2, 1, 2, 1), (1, 1, 1, 2), 'VALID'),
    lax.reduce_window(x, np.inf, lax.min, (1, 3, 2, 1), (1, 1, 1, 1), (
        (0, 0), (2, 1), (0, 3), (0, 0)), (1, 1, 2, 1), (1, 2, 2, 1))), N(2, 7, 8, 3))
op('reduce_window_int', lambda x: lax.reduce_window(x, 0, lax.add, (2, 3), (1, 2), 'SAME'),
   N(5, 7), dtypes=('int32',), exact=True)
op('pool_gradient', jax.grad(lambda x: (lax.reduce_window(x, -np.inf, lax.max, (1, 3, 3, 1), (
    1, 2, 2, 1), 'SAME') ** 2).sum()), N(2, 7, 7, 2))
op('average_pool_gradient', jax.grad(lambda x: (lax.reduce_window(x, 0.0, lax.add, (2, 3), (
    1, 2), ((1, 0), (0, 2))) ** 2).sum()), N(6, 7))

# ---------------------------------------------------------------- sorting
op('sort', lambda x: (jnp.sort(x), jnp.sort(x, 0), jnp.sort(x, descending=True)), N(5, 9),
   dtypes=FLOATS[:3] + INTS[:5] + ('bool',), exact=True)
op('sort_edges', lambda x: (jnp.sort(x), jnp.argsort(x)), EDGE(), dtypes=BOTH, exact=True)
op('argsort', lambda x: (jnp.argsort(x, 1), jnp.argsort(x, 0, descending=True)), N(5, 9),
   dtypes=BOTH, exact=True)
op('sort_pairs', lambda k, v, w: lax.sort((k, v, w), num_keys=2, dimension=0), I(0, 3, 20),
   N(20), N(20), exact=True)
op('lexsort', lambda x, y: jnp.lexsort((x, y)), I(0, 4, 30), I(0, 3, 30), exact=True)
op('top_k', lambda x: lax.top_k(x, 4), N(3, 11), dtypes=BOTH + ('bfloat16', 'uint8'), exact=True)
op('top_k_ties', lambda x: lax.top_k(x, 5), C(np.array([1, 3, 3, np.nan, 3, -0., 0.], np.float32)),
   exact=True)
op('approx_max_k', lambda x: lax.approx_max_k(x, 3)[0], N(4, 20), exact=True)
op('searchsorted', lambda x, v: (jnp.searchsorted(jnp.sort(x), v), jnp.digitize(v, jnp.sort(x))),
   N(12), N(9), exact=True)
op('unique', lambda x: (jnp.unique(x, size=6, return_counts=True),
                        jnp.bincount(jnp.abs(x), length=8), jnp.histogram(x, 5)), N(20),
   dtypes=('int32',))
op('setops', lambda x, y: (jnp.isin(x, y), jnp.nonzero(x, size=5), jnp.argwhere(x > 2, size=4)),
   I(0, 9, 12), I(0, 9, 5), exact=True)

# ---------------------------------------------------------------- indexing
op('take', lambda x, i: (x[i], jnp.take(x, i, 1, mode='clip'), x.at[i].get(
    mode='fill', fill_value=7), jnp.take(x, i, axis=1, mode='wrap'), x[:, i, None]), N(6, 5),
   I(-4, 9, 3), dtypes=ANY, exact=True)
op('gather_rows', lambda x, i, j: (x[i, j], x[i[:, None], j], x[:, j][i]), N(6, 5), I(0, 6, 4),
   I(0, 5, 4), dtypes=BOTH, exact=True)
op('take_along_axis', lambda x, i: (jnp.take_along_axis(x, i, 1), jax.vmap(
    lambda a, k: a[k])(x, i)), N(4, 6), I(0, 6, 4, 3), dtypes=BOTH, exact=True)
op('choose', lambda x, i: (jnp.select([i > 2, i > 1], [x, -x], 0), jnp.choose(
    i, [x, x * 2, x * 3, x * 4], mode='clip')), N(5), I(0, 4, 5))
op('dynamic_slice', lambda x, i: (lax.dynamic_slice(x, (i, i - 5), (2, 3)),
                                  lax.dynamic_index_in_dim(x, i, 1), x[1:5:2, ::-1]), N(6, 5),
   I(0, 9), dtypes=ANY, exact=True)
op('dynamic_update_slice', lambda x, u, i: (lax.dynamic_update_slice(x, u, (i, i - 4)),
                                            x.at[1:3, 2:].set(u[:, :3])), N(6, 5), N(2, 3),
   I(0, 9), dtypes=ANY, exact=True)
for f in ('set', 'add', 'multiply', 'min', 'max', 'divide'):
    op(f'scatter_{f}', lambda x, i, u, f=f: getattr(x.at[i], f)(u, mode='drop'), N(7, 4),
       C(np.array([0, 5, 3, 9, -1], np.int32)), U(1, 2, 5, 4),
       dtypes=('float32', 'bfloat16') if f == 'divide' else ('float32', 'int32', 'bfloat16'))
op('scatter_duplicates', lambda x, i, u: (x.at[i].add(u), x.at[i].max(u)), N(5, 3), I(0, 5, 12),
   N(12, 3), dtypes=BOTH + ('uint8',))
op('scatter_2d', lambda x, i, j, u: (x.at[i, j].set(u), x.at[i, :, j].add(
    1), x.at[..., i].mul(2)), N(6, 5, 6), C(np.array([0, 3, 5])), C(np.array([1, 2, 4])), N(3, 6))
op('scatter_complex', lambda x, i, u: (x.at[i].add(u), x.at[i].set(u)), N(6), C(np.array(
    [1, 4, 2])), N(3), dtypes=COMPLEX)
op('scatter_batched', jax.vmap(lambda x, i, u: x.at[i].add(u)), N(3, 6), I(0, 6, 3, 4), N(3, 4))
op('scatter_apply', lambda x, i: x.at[i].apply(jnp.sin), N(6), C(np.array([1, 3])))
op('gather_gradient', jax.grad(lambda x, i: (x[i] ** 2).sum()), N(6, 3), I(0, 6, 8))
op('segments', lambda x, i: (jax.ops.segment_sum(x, i, 4), jax.ops.segment_max(x, i, 4),
                             jax.ops.segment_prod(x, i, 4)), N(10, 2), I(0, 4, 10))
op('one_hot', lambda i: (jax.nn.one_hot(i, 5), jax.nn.one_hot(i, 5, axis=0)), I(-1, 7, 6))
op('boolean_mask', lambda x: (jnp.where(x > 0, x, 0).sum(), x[np.array([True, False, True])]),
   N(3, 4))

# ---------------------------------------------------------------- contractions
op('matmul', jnp.matmul, N(5, 7), N(7, 3), dtypes=FLOATS + COMPLEX + ('int32', 'int8', 'uint8'))
op('matmul_batched', jnp.matmul, N(2, 1, 5, 7), N(3, 7, 4))
op('matmul_long', jnp.matmul, N(3, 600), N(600, 4), dtypes=('float32', 'bfloat16'))
op('vector_dots', lambda x, y: (x @ y, jnp.vdot(x, y), jnp.outer(x, y), jnp.inner(x, y),
                                jnp.cross(x[:3], y[:3]), jnp.convolve(x, y)), N(6), N(6))
op('dot_general', lambda x, y: (
    lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,)))),
    lax.dot_general(x, y, (((0, 2), (0, 1)), ((), ()))),
    lax.dot_general(x, y, (((), ()), ((0,), (0,))))), N(3, 4, 5), N(3, 5, 2), dtypes=F32)
op('dot_preferred', lambda x, y: lax.dot(x, y, preferred_element_type=jnp.float32), N(4, 9),
   N(9, 5), dtypes=('bfloat16', 'float16'))
op('dot_int8_to_int32', lambda x, y: lax.dot(x, y, preferred_element_type=jnp.int32), N(4, 9),
   N(9, 5), dtypes=('int8', 'uint8'), exact=True)
op('dot_highest', lambda x, y: jnp.dot(x, y, precision='highest'), N(6, 8), N(8, 4))
op('dot_f8', lambda x, y: lax.dot(x.astype(jnp.float8_e4m3fn), y.astype(jnp.float8_e4m3fn),
                                  preferred_element_type=jnp.float32), N(4, 8), N(8, 5))
op('einsum', lambda x, y: (jnp.einsum('bij,bjk->bik', x, y), jnp.einsum('bij,bjk->ki', x, y),
                           jnp.einsum('bij->jb', x), jnp.tensordot(x, y, ((0, 2), (0, 1)))),
   N(3, 4, 5), N(3, 5, 2))
op('empty_contraction', lambda x, y: x @ y, N(3, 0), N(0, 4))
op('conv_variants', lambda x, k, d: (
    lax.conv_general_dilated(x, k, (1, 1), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC')),
    lax.conv_general_dilated(x, k, (2, 3), ((2, -1), (0, 3)), rhs_dilation=(2, 1),
                             dimension_numbers=('NHWC', 'HWIO', 'NHWC')),
    lax.conv_transpose(x, k, (2, 2), 'SAME'),
    lax.conv_general_dilated(x, d, (1, 1), 'VALID', feature_group_count=4,
                             dimension_numbers=('NHWC', 'HWIO', 'NHWC'))),
   N(2, 7, 6, 4), N(3, 3, 4, 5), N(3, 2, 1, 8), dtypes=('float32', 'bfloat16'))
op('conv_1d_3d', lambda x, k, v, w: (lax.conv(x, k, (2,), 'SAME'), lax.conv(
    v, w, (1, 1, 1), 'VALID')), N(2, 3, 9), N(4, 3, 3), N(1, 2, 4, 5, 4), N(3, 2, 2, 2, 2))
op('conv_batch_groups', lambda x, k: lax.conv_general_dilated(x, k, (1,), 'SAME',
                                                              batch_group_count=2),
   N(4, 3, 9), N(6, 3, 3))
op('conv_lhs_dilation', lambda x, k: lax.conv_general_dilated(x, k, (1, 1), ((1, 2), (0, 1)),
                                                              lhs_dilation=(2, 3)),
   N(1, 2, 4, 3), N(3, 2, 2, 3))
op('conv_int8', lambda x, k: lax.conv_general_dilated(x, k, (1, 1), 'VALID',
                                                      preferred_element_type=jnp.int32),
   N(1, 2, 5, 5), N(3, 2, 3, 3), dtypes=('int8',), exact=True)
op('conv_gradient', lambda x, k: jax.grad(lambda x, k: (lax.conv_general_dilated(
    x, k, (2, 2), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC')) ** 2).sum(), (0, 1))(x, k),
   N(2, 6, 6, 3), N(3, 3, 3, 4))
# Images far apart, which the gradient by the kernel sums over.
for _name, _stride, _image, _kernel in (
        ('', 1, (3, 4, 9, 8), (10, 4, 3, 3)), ('_strided', 2, (4, 9, 17, 15), (16, 9, 3, 2)),
        ('_1x1', 1, (5, 8, 7, 7), (9, 8, 1, 1)), ('_same_size', 1, (3, 5, 3, 3), (8, 5, 3, 3))):
    op(f'conv_gradient_channels_first{_name}', lambda x, k, _stride=_stride: jax.grad(
        lambda x, k: (lax.conv(x, k, (_stride, _stride), 'SAME') ** 2).sum(), (0, 1))(x, k),
       N(*_image), N(*_kernel), dtypes=('float32', 'bfloat16'))
op('image_resize', lambda x: (jax.image.resize(x, (7, 9, 2), 'linear'), jax.image.resize(
    x, (3, 3, 2), 'nearest')), N(5, 6, 2))

# ---------------------------------------------------------------- FFT, linear algebra
op('fft', lambda c: (jnp.fft.fft(c), jnp.fft.ifft(c), jnp.fft.fft2(c), jnp.fft.fftn(c)),
   N(3, 8), dtypes=COMPLEX)
op('fft_odd', lambda c: (jnp.fft.fft(c), jnp.fft.ifft(c)), N(2, 15), dtypes=('complex64',))
# Radices with loops, lengths that become convolutions, and pairs of real numbers of either.
op('fft_lengths', lambda c: [(jnp.fft.fft(c[:, :n]), jnp.fft.ifft(c[:, :n])) for n in (31, 61, 67, 145, 159)],
   N(3, 159), dtypes=COMPLEX)
op('rfft_lengths', lambda x: [(jnp.fft.rfft(x[:, :n]), jnp.fft.irfft(x[:, 1:n // 2 + 2] + 1j * x[:, :n // 2 + 1], n))
                              for n in (2, 62, 67, 122, 134, 159, 160)],
   N(3, 160), dtypes=('float32', 'float64'))
op('rfft', lambda x: (jnp.fft.rfft(x), jnp.fft.rfft2(x), jnp.fft.irfft(jnp.fft.rfft(x), 7),
                      jnp.fft.fftshift(x)), N(4, 10), dtypes=('float32', 'float64'))
op('cholesky', jnp.linalg.cholesky, SPD(5, 2), dtypes=('float32', 'float64'), lapack=True)
op('cholesky_fails', jnp.linalg.cholesky, C(np.array([[1, 2], [2, 1]], np.float32)),
   lapack=True)
op('cho_solve', lambda a, b: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a), True), b),
   SPD(5), N(5, 3), lapack=True)
op('triangular_solve', lambda a, b: [lax.linalg.triangular_solve(
    a, b if left else b.swapaxes(-1, -2), left_side=left, lower=lower, transpose_a=transpose,
    unit_diagonal=unit) for left in (True, False) for lower in (True, False)
    for transpose in (True, False) for unit in (True, False)], SPD(4, 2), N(2, 4, 3), lapack=True)
op('lu_solve', lambda a, b: (jnp.linalg.solve(a, b), jnp.linalg.det(a), jnp.linalg.inv(a),
                             jnp.linalg.slogdet(a)), SPD(4), N(4, 2), lapack=True)
op('qr', lambda a: [jnp.abs(x) for x in jnp.linalg.qr(a)], N(5, 3), lapack=True)
op('matrix_power', lambda a: (jnp.linalg.matrix_power(a, 3), jax.scipy.linalg.expm(a / 4)), N(4, 4),
   lapack=True)

# ---------------------------------------------------------------- special functions
for f in ('erf', 'erfc', 'gammaln', 'digamma', 'i0e', 'i1e', 'expit', 'i0', 'ndtr', 'log_ndtr'):
    op(f, getattr(special, f), U(0.1, 4, 30), dtypes=('float32', 'bfloat16') if f in (
        'erf', 'expit') else F32)
op('erf_negative', special.erf, N(40), dtypes=('float32', 'float64', 'float16'))
op('erfinv', special.erfinv, U(-0.99, 0.99, 30))
op('ndtri', special.ndtri, U(0.01, 0.99, 30))
op('lgamma_negative', special.gammaln, U(-4.9, -0.1, 30))
op('igamma', lambda a, x: (special.gammainc(a, x), special.gammaincc(a, x)), U(0.3, 5, 12),
   U(0.1, 6, 12))
op('betainc', special.betainc, U(0.5, 3, 9), U(0.5, 3, 9), U(0.05, 0.95, 9))
op('zeta', special.zeta, U(1.5, 5, 9), U(0.5, 4, 9))
op('polygamma', lambda x: special.polygamma(1, x), U(0.5, 5, 9))
op('logit_xlogy', lambda x, y: (special.logit(x), special.xlogy(x, y), special.entr(x),
                                special.rel_entr(x, y)), U(0.1, 0.9, 9), U(0.1, 0.9, 9))

# ---------------------------------------------------------------- complex numbers
for f in ('exp', 'sin', 'cos', 'tanh', 'sqrt', 'log', 'abs', 'angle', 'conj', 'square', 'log1p',
          'expm1', 'reciprocal', 'sign'):
    op(f'complex_{f}', getattr(jnp, f), N(12), dtypes=('complex64',))
op('complex_arithmetic', lambda x, y: (x + y, x * y, x / y, x - y, x.real, x.imag, x == y,
                                       lax.complex(x.real, y.imag)), N(9), N(9), dtypes=COMPLEX)
op('complex_power', lambda x, y: x ** y, N(9), N(9), dtypes=('complex64',))

# ---------------------------------------------------------------- random numbers
KEY = C(np.array([3, 77], np.uint32))


def drawn(f):
    return lambda k: f(random.wrap_key_data(k, impl='threefry2x32'))


op('random_bits', drawn(lambda k: (random.bits(k, (3, 5)), random.bits(k, (7,), jnp.uint8),
                                   random.split(k, 3), random.fold_in(k, 5))), KEY, exact=True)
op('random_uniform', drawn(lambda k: (random.uniform(k, (4, 5)), random.uniform(
    k, (5,), BF16), random.uniform(k, (3,), minval=-2, maxval=5))), KEY)
op('random_normal', drawn(lambda k: random.normal(k, (40,))), KEY)
op('random_bernoulli', drawn(lambda k: random.bernoulli(k, 0.3, (50,))), KEY, exact=True)
op('random_randint', drawn(lambda k: random.randint(k, (30,), -5, 9)), KEY, exact=True)
op('random_permutation', drawn(lambda k: (random.permutation(k, 20), random.choice(
    k, 9, (4,), replace=False))), KEY, exact=True)
op('random_categorical', drawn(lambda k: random.categorical(k, jnp.zeros((4, 5)))), KEY,
   exact=True)
op('random_gamma', drawn(lambda k: random.gamma(k, 2.5, (12,))), KEY)
op('random_others', drawn(lambda k: (random.exponential(k, (9,)), random.laplace(k, (9,)),
                                     random.gumbel(k, (9,)), random.cauchy(k, (5,)),
                                     random.truncated_normal(k, -1, 1, (9,)))), KEY)
op('random_integers', drawn(lambda k: (random.poisson(k, 3.0, (9,)), random.rademacher(
    k, (9,)))), KEY, exact=True)
