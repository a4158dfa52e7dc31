# SPDX-License-Identifier: Apache-2.0
"""The functions that accuracy.py measures: JAX's elementwise ones, what is exact, and arguments.

A Function has three forms: JAX's, one of numpy or scipy in f64 (complex: c128) for types narrower than
that, and one of mpmath with 50 digits for f64 and for all of complex. None of them is Hekla's. Functions that
are exact by definition (minimum, rounding, comparisons, conversions) are compared bit for bit
elsewhere (tests/kernel_math, tests/random).
"""
import dataclasses
import typing

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import scipy.special as special
from jax import lax

mpmath.mp.dps = 50


@dataclasses.dataclass(frozen=True)
class Function:
    name: str
    of_jax: typing.Callable
    of_numpy: typing.Callable | None
    of_mpmath: typing.Callable
    domain: tuple = (None,)     # one per argument: None is every number, else (least, greatest)
    has_complex: bool = False
    points: int = 1500          # arguments of f64 and complex types, where mpmath decides


def _logistic(x):
    return 1 / (1 + mpmath.exp(-x))


def _erfinv(x):
    return mpmath.erfinv(x) if abs(x) < 1 else mpmath.inf * x if abs(x) == 1 else mpmath.nan


def _scaled_bessel(order):
    return lambda x: mpmath.besseli(order, x) * mpmath.exp(-abs(x))


def _real(function):
    """mpmath's function where its result is real, else NaN."""
    def checked(*args):
        result = function(*args)
        return result if isinstance(result, mpmath.mpf) else mpmath.nan
    return checked


_ALL, _POSITIVE, _UNIT = None, (0, None), (-1, 1)
_COMPLEX = {'has_complex': True}


def _regularized(function):
    return lambda *args: function(*args, regularized=True)


FUNCTIONS = [
    Function('add', lax.add, np.add, lambda x, y: x + y, (_ALL, _ALL)),
    Function('multiply', lax.mul, np.multiply, lambda x, y: x * y, (_ALL, _ALL), **_COMPLEX),
    Function('divide', lax.div, np.divide, lambda x, y: x / y, (_ALL, _ALL), **_COMPLEX),
    Function('sqrt', lax.sqrt, np.sqrt, mpmath.sqrt, (_POSITIVE,), **_COMPLEX),
    Function('rsqrt', lax.rsqrt, lambda x: 1 / np.sqrt(x), lambda x: 1 / mpmath.sqrt(x),
             (_POSITIVE,), **_COMPLEX),
    Function('cbrt', lax.cbrt, np.cbrt, lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x))),
    Function('abs', lax.abs, np.abs, abs, **_COMPLEX),
    Function('exponential', lax.exp, np.exp, mpmath.exp, **_COMPLEX),
    Function('exp2', lax.exp2, np.exp2, lambda x: mpmath.power(2, x), **_COMPLEX),
    Function('exponential_minus_one', lax.expm1, np.expm1, mpmath.expm1, **_COMPLEX),
    Function('log', lax.log, np.log, mpmath.log, (_POSITIVE,), **_COMPLEX),
    Function('log_plus_one', lax.log1p, np.log1p, mpmath.log1p, ((-1, None),), **_COMPLEX),
    Function('logistic', lax.logistic, special.expit, _logistic, **_COMPLEX),
    Function('sine', lax.sin, np.sin, mpmath.sin, **_COMPLEX),
    Function('cosine', lax.cos, np.cos, mpmath.cos, **_COMPLEX),
    Function('tan', lax.tan, np.tan, mpmath.tan, **_COMPLEX),
    Function('asin', lax.asin, np.arcsin, mpmath.asin, (_UNIT,), **_COMPLEX),
    Function('acos', lax.acos, np.arccos, mpmath.acos, (_UNIT,), **_COMPLEX),
    Function('atan', lax.atan, np.arctan, mpmath.atan, **_COMPLEX),
    Function('atan2', lax.atan2, np.arctan2, mpmath.atan2, (_ALL, _ALL)),
    Function('sinh', lax.sinh, np.sinh, mpmath.sinh, **_COMPLEX),
    Function('cosh', lax.cosh, np.cosh, mpmath.cosh, **_COMPLEX),
    Function('tanh', lax.tanh, np.tanh, mpmath.tanh, **_COMPLEX),
    Function('asinh', lax.asinh, np.arcsinh, mpmath.asinh, **_COMPLEX),
    Function('acosh', lax.acosh, np.arccosh, mpmath.acosh, ((1, None),), **_COMPLEX),
    Function('atanh', lax.atanh, np.arctanh, mpmath.atanh, (_UNIT,), **_COMPLEX),
    Function('power', lax.pow, np.power, mpmath.power, (_POSITIVE, (-20, 20)), **_COMPLEX),
    Function('integer_pow 7', lambda x: lax.integer_pow(x, 7), lambda x: x ** 7, lambda x: x ** 7,
             **_COMPLEX),
    Function('erf', lax.erf, special.erf, mpmath.erf),
    Function('erfc', lax.erfc, special.erfc, mpmath.erfc),
    Function('erf_inv', lax.erf_inv, special.erfinv, _erfinv, (_UNIT,)),
    Function('lgamma', lax.lgamma, special.gammaln, lambda x: mpmath.loggamma(x).real,
             (_ALL,), points=500),
    Function('digamma', lax.digamma, special.psi, mpmath.digamma, (_ALL,), points=500),
    Function('bessel_i0e', lax.bessel_i0e, special.i0e, _scaled_bessel(0), ((-1e4, 1e4),), points=500),
    Function('bessel_i1e', lax.bessel_i1e, special.i1e, _scaled_bessel(1), ((-1e4, 1e4),), points=500),
    Function('igamma', lax.igamma, special.gammainc,
             _real(lambda a, x: mpmath.gammainc(a, 0, x, regularized=True)), ((.1, 100), (0, 200)),
             points=200),
    Function('igammac', lax.igammac, special.gammaincc,
             _real(lambda a, x: mpmath.gammainc(a, x, mpmath.inf, regularized=True)),
             ((.1, 100), (0, 200)), points=200),
    Function('zeta', lax.zeta, special.zeta, _real(mpmath.zeta), ((1.01, 50), (.01, 100)), points=200),
    Function('polygamma 2', lambda x: lax.polygamma(jnp.full_like(x, 2), x),
             lambda x: special.polygamma(2, x), lambda x: mpmath.psi(2, x), ((.01, 1e4),), points=200),
    Function('betainc', lax.betainc if hasattr(lax, 'betainc') else jax.scipy.special.betainc,
             special.betainc, _real(lambda a, b, x: mpmath.betainc(a, b, 0, x, regularized=True)),
             ((.1, 50), (.1, 50), (0, 1)), points=200),
]


def _finite(values):
    with np.errstate(invalid='ignore'):
        return values[np.isfinite(values.astype(np.float64))]


def _within(values, domain):
    least, greatest = (-np.inf if domain[0] is None else domain[0],
                       np.inf if domain[1] is None else domain[1])
    with np.errstate(invalid='ignore'):
        wide = values.astype(np.float64)
        return values[(wide >= least) & (wide <= greatest)]


def _draw(rng, count, dtype, domain):
    """`count` real numbers of a type: of every magnitude, of everyday ones, and close to where functions
    turn, end or vanish."""
    info = jnp.finfo(dtype)
    bits = np.dtype(f'u{np.dtype(dtype).itemsize}')
    any_bits = _finite(rng.integers(0, 1 << 8 * bits.itemsize, 4 * count, bits).view(dtype))
    everyday = rng.uniform(-20, 20, 4 * count).astype(dtype)
    quarters = (np.pi / 2 * rng.integers(-64, 65, count)).astype(dtype)
    close = np.concatenate([c + rng.choice([-1, 1], count) * np.exp2(-rng.uniform(0, 60, count))
                            for c in (-1, 0, 1, 2)]).astype(dtype)
    edges = np.array([0, info.tiny, info.max, info.eps, 1, 2, .5, 10, 88, 709], np.float64)
    parts = [any_bits, everyday, quarters, close, np.concatenate([edges, -edges]).astype(dtype)]
    if domain is not None:
        least, greatest = (info.min if domain[0] is None else domain[0],
                           info.max if domain[1] is None else domain[1])
        with np.errstate(over='ignore'):
            inside = rng.uniform(max(least, -1e4), min(greatest, 1e4), 4 * count)
        parts = [_within(part, (least, greatest)) for part in
                 [*parts, -any_bits, inside.astype(dtype)]]
    chosen = np.concatenate([rng.permutation(part)[:max(count // len(parts), 1)] for part in parts])
    return rng.choice(_finite(chosen), count)


def arguments(function, dtype, seed, points):
    """-> one array of `dtype` per argument. All finite ones of types of 16 bits with one argument."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == 'c':
        real = np.dtype(f'f{dtype.itemsize // 2}')
        drawn = []
        for _ in function.domain:
            z = np.empty(points, dtype)
            for part in (z.real, z.imag):
                # On the axes the sign of a zero chooses the side of a cut, which mpmath cannot say.
                drawn_part = _draw(rng, 2 * points, real, (-50, 50))
                part[:] = rng.choice(drawn_part[drawn_part != 0], points)
            drawn.append(z)
        return drawn
    if dtype.itemsize == 2 and len(function.domain) == 1:
        every = _finite(np.arange(1 << 16, dtype=np.uint16).view(dtype))
        return [every if function.domain[0] is None else _within(every, function.domain[0])]
    return [rng.permutation(_draw(rng, points, dtype, domain)) for domain in function.domain]
