# SPDX-License-Identifier: Apache-2.0
"""The operations of operations.py: {group: [(name, function, arguments)]}, one at a time, each of its
own size. Numbers are seeded; N draws normal ones, I integers."""
import functools

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
from jax import lax

RNG = np.random.default_rng(0)
SIDE = 1024
FLOATS = ('float32', 'float64', 'float16', 'bfloat16')
COMPLEX = ('complex64', 'complex128')
INTEGERS = ('int8', 'uint8', 'int16', 'int32', 'int64', 'uint32')
KEY = np.array([0, 1], np.uint32)


def N(*shape, dtype='float32'):
    x = RNG.standard_normal(shape)
    if dtype in COMPLEX:
        x = x + 1j * RNG.standard_normal(shape)
    return x.astype(jnp.dtype(dtype))


def I(high, *shape, dtype='int32'):
    return RNG.integers(0, high, shape).astype(dtype)


def elementwise(dtype):
    x = N(SIDE, SIDE, dtype=dtype)
    positive = np.abs(x) + np.asarray(0.1, x.dtype) if dtype in FLOATS else x
    cases = [(name, getattr(jnp, name), positive)
             for name in ('exp', 'log', 'sin', 'tanh', 'sqrt', 'log1p', 'arctan', 'sinh')]
    cases += [('x * x + x', lambda x: x * x + x, x), ('x / (x + 3)', lambda x: x / (x + 3), x), ('abs', jnp.abs, x)]
    if dtype in FLOATS:
        cases += [('where, clip', lambda x: jnp.where(x > 0, jnp.clip(x, -.5, .5), x * 2), x),
                  ('power', lambda x: jnp.abs(x) ** 1.7, x)]
    return cases


def moved(dtype):
    x = N(SIDE, SIDE, dtype=dtype)
    rows = I(SIDE, SIDE)
    return [
        ('transpose', lambda x: x.T + 0, x), ('roll', lambda x: jnp.roll(x, (3, 5), (0, 1)), x),
        ('gather rows', lambda x, i: x[i], x, rows),
        ('take_along_axis', lambda x, i: jnp.take_along_axis(x, i, 1), x, I(SIDE, SIDE, SIDE)),
        ('scatter rows', lambda x, i, y: x.at[i].add(y), x, rows, x),
        ('segment_sum', lambda x, i: jax.ops.segment_sum(x, i, 64), x, I(64, SIDE)),
        ('outer', jnp.outer, x[0], x[1]),
        ('pad, concatenate', lambda x: jnp.concatenate([x[:, :500], jnp.pad(x, ((1, 1), (2, 2)))[:SIDE, :500]], 1), x)]


def reduced(dtype):
    x = N(SIDE, SIDE, dtype=dtype)
    cases = [(f'{name} along {axis}', functools.partial(getattr(jnp, name), axis=axis), x)
             for name in ('sum', 'cumsum') for axis in (0, 1)]
    cases += [('sum', jnp.sum, x), ('mean, variance', lambda x: (x.mean(1), x.var(1)), x),
              ('matrix x vector', lambda x, v: x @ v, x, x[0]), ('vector x matrix', lambda x, v: v @ x, x, x[0]),
              ('64 products of 32', lambda x: x @ x, x[:64].reshape(64, 32, 32)),
              ('16,384 products of 8', lambda x: x @ x, x.reshape(-1, 8, 8))]
    if dtype not in FLOATS:
        return cases
    image = x.reshape(4, 64, 64, 64)
    least = np.asarray(-np.inf, x.dtype)
    cases += [(f'{name} along {axis}', functools.partial(getattr(jnp, name), axis=axis), x)
              for name in ('max', 'min', 'argmax') for axis in (0, 1)]
    return cases + [
        ('softmax', jax.nn.softmax, x), ('logsumexp', jax.nn.logsumexp, x),
        ('layer norm', lambda x: (x - x.mean(1, keepdims=True)) * lax.rsqrt(x.var(1, keepdims=True) + 1e-5), x),
        ('sort along 0', lambda x: jnp.sort(x, 0), x), ('sort along 1', lambda x: jnp.sort(x, 1), x),
        ('argsort', lambda x: jnp.argsort(x, 1), x), ('top_k', lambda x: lax.top_k(x, 10), x),
        ('median', lambda x: jnp.median(x, 1), x), ('cummax', lambda x: lax.cummax(x, axis=1), x),
        ('max pool', lambda x: lax.reduce_window(x, least, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), 'SAME'), image),
        ('mean pool', lambda x: lax.reduce_window(x, np.asarray(0, x.dtype), lax.add, (1, 3, 3, 1), (1, 1, 1, 1),
                                                  'SAME'), image),
        ('max pool gradient', jax.grad(lambda x: lax.reduce_window(x, least, lax.max, (1, 2, 2, 1), (1, 2, 2, 1),
                                                                   'SAME').sum()), image)]


def integers(dtype):
    x = I(100, SIDE, SIDE, dtype=dtype)
    return [('x + 3 x', lambda x: x + x * 3, x), ('x // 7', lambda x: x // 7, x), ('x % 7', lambda x: x % 7, x),
            ('sum along 0', lambda x: x.sum(0), x), ('sum along 1', lambda x: x.sum(1), x),
            ('max along 1', lambda x: x.max(1), x), ('sort', lambda x: jnp.sort(x, 1), x),
            ('argsort', lambda x: jnp.argsort(x, 1), x), ('cumsum', lambda x: jnp.cumsum(x, 1), x),
            ('product of 512', lambda x: x @ x, x[:512, :512]), ('to f32', lambda x: x.astype('float32') / 255, x),
            ('population_count', lax.population_count, x), ('one_hot', lambda x: jax.nn.one_hot(x, 32), x[:128]),
            ('bincount', lambda x: jnp.bincount(x.ravel(), length=100), x)]


def batches(dtype):
    cases = []
    for rows in (3, 4, 8, 12, 16, 32, 64):
        x = N(max(16, 16384 // rows // rows), rows, rows, dtype=dtype)
        p = x @ x.conj().swapaxes(1, 2) + rows * np.eye(rows, dtype=x.dtype)
        for name, function, *args in (
                ('inv', jnp.linalg.inv, p), ('det', jnp.linalg.det, p), ('cholesky', jnp.linalg.cholesky, p),
                ('solve', jnp.linalg.solve, p, x), ('eigh', jnp.linalg.eigh, p), ('svd', jnp.linalg.svd, p[:500]),
                ('qr', jnp.linalg.qr, p),
                ('solve_triangular', lambda p, b: jsp.linalg.solve_triangular(p, b, lower=True), p, x)):
            cases.append((f'{len(args[0])} {name} of {rows}', function, *args))
    return cases


def transforms(dtype):
    cases = []
    real = {'complex64': 'float32', 'complex128': 'float64'}[dtype]
    for length in (997, 1000, 1023, 1024, 4096):
        cases += [(f'fft of {length}', jnp.fft.fft, N(256, length, dtype=dtype)),
                  (f'rfft of {length}', jnp.fft.rfft, N(256, length, dtype=real)),
                  (f'irfft of {length}', functools.partial(jnp.fft.irfft, n=length),
                   N(256, length // 2 + 1, dtype=dtype))]
    return cases + [('fft2', jnp.fft.fft2, N(4, 512, 512, dtype=dtype)), ('fftn', jnp.fft.fftn, N(64, 64, 64, dtype=dtype)),
                    ('fft along 0', lambda z: jnp.fft.fft(z, axis=0), N(1024, 256, dtype=dtype))]


def convolutions(dtype):
    last, first = ('NHWC', 'HWIO', 'NHWC'), ('NCHW', 'OIHW', 'NCHW')

    def conv(x, w, numbers, **how):
        return lax.conv_general_dilated(x, w, (1, 1), 'SAME', dimension_numbers=numbers, **how)

    def n(*shape):
        return N(*shape, dtype=dtype)
    return [
        ('depthwise NHWC', functools.partial(conv, numbers=last, feature_group_count=64), n(4, 56, 56, 64), n(3, 3, 1, 64)),
        ('depthwise NCHW', functools.partial(conv, numbers=first, feature_group_count=64), n(4, 64, 56, 56), n(64, 1, 3, 3)),
        ('8 groups NHWC', functools.partial(conv, numbers=last, feature_group_count=8), n(4, 56, 56, 64), n(3, 3, 8, 64)),
        ('dilated NHWC', functools.partial(conv, numbers=last, rhs_dilation=(2, 2)), n(4, 28, 28, 64), n(3, 3, 64, 64)),
        ('1x1 NHWC', functools.partial(conv, numbers=last), n(4, 28, 28, 128), n(1, 1, 128, 128)),
        ('transposed', lambda x, w: lax.conv_transpose(x, w, (2, 2), 'SAME'), n(4, 28, 28, 64), n(3, 3, 64, 64)),
        ('NWC', lambda x, w: lax.conv_general_dilated(x, w, (1,), 'SAME', dimension_numbers=('NWC', 'WIO', 'NWC')),
         n(8, 1024, 64), n(5, 64, 64)),
        ('NDHWC', lambda x, w: lax.conv_general_dilated(x, w, (1, 1, 1), 'SAME',
                                                        dimension_numbers=('NDHWC', 'DHWIO', 'NDHWC')),
         n(2, 16, 32, 32, 16), n(3, 3, 3, 16, 32))]


def special(dtype):
    u = np.clip(np.abs(N(256, SIDE)) * .3, .01, .95).astype(dtype)
    of_one = [(name, getattr(jsp.special, name), u) for name in ('erf', 'erfinv', 'gammaln', 'digamma', 'i0e', 'ndtri', 'expit')]
    return [*of_one, ('betainc', jsp.special.betainc, u, u, u), ('gammainc', jsp.special.gammainc, u + 1, u + 1),
            ('xlogy', jsp.special.xlogy, u, u), ('zeta', jsp.special.zeta, u + 2, u + 1)]


def random_numbers(_):
    def of(function, *args, **how):
        return lambda key: function(key, *args, **how)
    r = jax.random
    return [(name, function, KEY) for name, function in (
        ('normal', of(r.normal, (SIDE, SIDE), 'float32')), ('normal f64', of(r.normal, (SIDE, SIDE), 'float64')),
        ('uniform', of(r.uniform, (SIDE, SIDE), 'float32')), ('bits of bytes', of(r.bits, (SIDE, SIDE), 'uint8')),
        ('permutation', of(r.permutation, SIDE * 64)), ('gamma', of(r.gamma, 2.5, (64, SIDE), 'float32')),
        ('poisson', of(r.poisson, 4.0, (64, SIDE))), ('beta', of(r.beta, 2.5, 1.5, (16, SIDE), 'float32')),
        ('truncated_normal', of(r.truncated_normal, -2., 2., (SIDE, SIDE), 'float32')))]


def library(_):
    x, many = N(SIDE, SIDE), SIDE * 64
    h = N(4, 128, 8, 64)
    return [
        ('searchsorted', jnp.searchsorted, np.sort(N(SIDE * 16)), N(many)),
        ('interp', jnp.interp, N(many), np.sort(N(SIDE)), N(SIDE)),
        ('histogram', lambda v: jnp.histogram(v, 64)[0], N(many)),
        ('unique', lambda v: jnp.unique(v, size=1000), I(1000, many)),
        ('quantile', lambda v: jnp.quantile(v, jnp.array([.1, .5, .9])), N(SIDE * 256)),
        ('convolve', jnp.convolve, N(many), N(101)),
        ('convolve2d', lambda a, b: jsp.signal.convolve2d(a, b, mode='same'), N(512, 512), N(9, 9)),
        ('einsum bqhd,bkhd->bhqk', lambda a, b: jnp.einsum('bqhd,bkhd->bhqk', a, b), h, h),
        ('einsum ijk,kl,jm->ilm', lambda a, b, c: jnp.einsum('ijk,kl,jm->ilm', a, b, c), N(64, 64, 64), N(64, 64), N(64, 64)),
        ('kron', jnp.kron, N(32, 32), N(32, 32)),
        ('scan of 200 products', lambda h, w: lax.scan(lambda h, _: (jnp.tanh(h @ w), None), h, None, length=200)[0],
         N(32, 128), N(128, 128) * .1),
        ('scan of 5,000', lambda h: lax.scan(lambda c, _: (c * .99 + .1, c.sum()), h, None, length=5000), N(16)),
        ('while', lambda h: lax.while_loop(lambda c: jnp.any(jnp.abs(c * c - 2) > 1e-5), lambda c: .5 * (c + 2 / c),
                                           jnp.abs(h) + 1), N(SIDE, 64)),
        ('associative_scan', lambda x: lax.associative_scan(jnp.multiply, x, axis=1), x * .01 + 1),
        ('cumlogsumexp', lambda x: lax.cumlogsumexp(x, axis=1), x),
        ('dynamic_slice of each row', jax.vmap(lambda r, j: lax.dynamic_slice(r, (j,), (128,))), x, I(800, SIDE)),
        ('scatter max', lambda z, i, v: z.at[i].max(v), np.zeros(1000, np.float32), I(1000, many), N(many)),
        ('gather points', lambda x, i, j: x[i, j], x, I(SIDE, many), I(SIDE, many)),
        ('embedding gradient', jax.grad(lambda t, i: (t[i] ** 2).sum()), N(10000, 64), I(10000, 4096)),
        ('bilinear resize', lambda x: jax.image.resize(x, (4, 224, 224, 16), 'bilinear'), N(4, 112, 112, 16)),
        ('cubic resize', lambda x: jax.image.resize(x, (4, 150, 150, 3), 'cubic'), N(4, 224, 224, 3)),
        ('cross entropy gradient', jax.grad(lambda x, t: -jnp.take_along_axis(jax.nn.log_softmax(x), t[:, None], 1).mean()),
         N(512, 8192), I(8192, 512)),
        ('pairwise distances', lambda a, b: jnp.sqrt(((a[:, None] - b[None]) ** 2).sum(-1)), N(512, 16), N(512, 16)),
        ('nearest', lambda a, b: jnp.argmin(((a[:, None] - b[None]) ** 2).sum(-1), 1), N(2048, 8), N(64, 8)),
        ('batch norm', lambda x: (x - x.mean((0, 1, 2))) / jnp.sqrt(x.var((0, 1, 2)) + 1e-5), N(16, 56, 56, 32)),
        ('dropout', lambda x, k: jnp.where(jax.random.bernoulli(k, .9, x.shape), x / .9, 0), x, KEY),
        ('transpose 0213', lambda x: x.transpose(0, 2, 1, 3) * 1, N(16, 64, 16, 64)),
        ('transpose 210', lambda x: x.transpose(2, 1, 0) * 1, N(128, 64, 128)),
        ('space to depth', lambda x: x.reshape(8, 28, 2, 28, 2, 64).transpose(0, 1, 3, 2, 4, 5).reshape(8, 28, 28, 256),
         N(8, 56, 56, 64)),
        ('strided slice', lambda x: x[::2, 1::3] * 1, x), ('tril', jnp.tril, x), ('tile', lambda x: jnp.tile(x, (2, 2)), x),
        ('repeat', lambda x: jnp.repeat(x, 3, 1), x), ('nonzero', lambda x: jnp.nonzero(x > 1, size=1000)[0], N(many)),
        ('lexsort', lambda a, b: jnp.lexsort((a, b)), I(50, many), I(50, many)),
        ('packbits', lambda x: jnp.packbits(x > 0, axis=1), x),
        ('to f8E4M3 and back', lambda x: x.astype(jnp.float8_e4m3fn).astype('float32'), x)]


def edits(_):
    """Loops that change a little of a large array: what an iteration takes should not depend on the array's size."""
    n, trips, batch = 1 << 20, 200, 16
    table, rows, few = N(n), N(n // 64, 64), N(n)[:trips] > 0
    examples, places = N(batch, n // batch), I(n // batch - trips, batch)

    def loop(body):
        return lambda t, *more: lax.fori_loop(0, trips, lambda i, t: body(t, i, *more), t)

    def row(t, i):
        return lax.dynamic_slice(t, (i, 0), (1, 64))

    def lookup(t, i):
        place = lax.while_loop(lambda j: t[j] < 1, lambda j: (j + 7) % n, i)
        return t.at[place].add(-1)

    def triangle(t, i):
        return lax.fori_loop(0, i % 8, lambda j, t: t.at[i + j].add(t[j]), t)

    def gradient(step):
        return lambda w, x, *more: jax.grad(
            lambda w: lax.fori_loop(0, trips, lambda i, h: step(h, w, i, *more), x).sum())(w)

    def choose(h, w, i):
        return lax.cond(h.sum() > 0, lambda: jnp.tanh(h + w[i]), lambda: h * .9 + .1)

    def descend(t, i, at):
        return t - .1 * jax.grad(lambda t: (t[at + i] ** 2).sum())(t)
    return [
        ('set', loop(lambda t, i: t.at[i].set(i * .5)), table),
        ('set of what was read', loop(lambda t, i: t.at[i + 1].set(t[i] * .9)), table),
        ('swap', loop(lambda t, i: t.at[i].set(t[n - 1 - i]).at[n - 1 - i].set(t[i])), table),
        ('row', loop(lambda t, i: lax.dynamic_update_slice(t, row(t, i) * .9, (i + 1, 0))), rows),
        ('counter', loop(lambda t, i: t.at[5].add(t[i])), table),
        ('apply', loop(lambda t, i: t.at[i].apply(jnp.tanh)), table),
        ('layer', loop(lambda t, i: t.at[i % 8].mul(.9)), N(8, n // 8)),
        ('cond', loop(lambda t, i, p: lax.cond(p[i], lambda t: t.at[i].add(1), lambda t: t, t)), table, few),
        ('cond on what was read', loop(lambda t, i: lax.cond(t[i] > 0, lambda t: t.at[i].add(1), lambda t: t, t)), table),
        ('switch', loop(lambda t, i: lax.switch(i % 3, (lambda t: t, lambda t: t.at[i].set(1),
                                                        lambda t: t.at[i].mul(2)), t)), table),
        ('loop in a loop', loop(triangle), table),
        ('search, then set', loop(lookup), table),
        ('rows by index', loop(lambda t, i, at: t.at[at + i].set(t[at + i] * .9)), rows, I(n // 64 - trips, 32)),
        ('element of each example', loop(lambda t, i, at: jax.vmap(lambda r, j: r.at[j].add(1))(t, at + i)), examples, places),
        ('table filled by a loop', lambda x: lax.fori_loop(0, 300, lambda i, t: lax.fori_loop(0, 300, lambda j, t: t.at[
            i + 1, j + 1].set(jnp.minimum(jnp.minimum(t[i, j + 1], t[i + 1, j]) + 1, t[i, j] + (x[i] != x[j * 7 % 300]))), t),
            jnp.zeros((301, 301), 'int32')), I(5, 300)),
        ('set where a flag says', loop(lambda t, i, p: jnp.where(p[i], t.at[i].set(i * .5), t)), table, few),
        ('branch of each example', jax.vmap(lambda t, p: loop(lambda t, i: lax.cond(
            p[i], lambda t: t.at[i].add(1), lambda t: t, t))(t)), examples, N(batch, trips) > 0),
        ('loop of each example', jax.vmap(lambda t, last: lax.while_loop(
            lambda c: c[0] < last, lambda c: (c[0] + 1, c[1].at[c[0]].set(c[1][c[0] + 1] * .9)), (0, t))[1]),
         examples, I(trips, batch)),
        ('gradient of a table', gradient(lambda h, w, i: jnp.tanh(h * w[i % 64])), N(64, 64) * .1, N(64)),
        ('gradient of rows', gradient(lambda h, w, i: jnp.tanh(h * w[i])), rows, N(64)),
        ('gradient of rows by index', gradient(lambda h, w, i, at: jnp.tanh(h + w[at + i])), rows, N(32, 64),
         I(n // 64 - trips, 32)),
        ('gradient in a branch', gradient(choose), rows, N(64)),
        ('step against a gradient', loop(descend), rows, I(n // 64 - trips, 32)),
        ('gradient of an unrolled scan', lambda x: jax.grad(lambda x: lax.scan(
            lambda h, i: (jnp.tanh(h * .9 + i), h.sum()), x, jnp.arange(16, dtype='f'), unroll=True)[0].sum())(x), table),
        ('matrix times vector', lambda w, v: lax.fori_loop(0, trips, lambda i, v: jnp.tanh(w @ v), v), N(100, 100) * .1, N(100))]


def steps(_):
    """Loops whose iterations take next to no time: what is around their kernels counts."""
    def scan(body):
        return lambda c, xs: lax.scan(body, c, xs)

    def repeat(body, trips):
        return lambda c: lax.fori_loop(0, trips, lambda i, c: body(c), c)

    def lorenz(y):
        return jnp.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])

    def rk4(y, h=.01):
        a = lorenz(y)
        b = lorenz(y + h / 2 * a)
        c = lorenz(y + h / 2 * b)
        return y + h / 6 * (a + 2 * b + 2 * c + lorenz(y + h * c))

    def rosenbrock(p):
        return (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2

    def adam(c):
        p, m, v, t = c
        g = jax.grad(rosenbrock)(p)
        m, v, t = .9 * m + .1 * g, .999 * v + .001 * g * g, t + 1
        return p - .01 * (m / (1 - .9 ** t)) / (jnp.sqrt(v / (1 - .999 ** t)) + 1e-8), m, v, t

    def lstm(w):
        def cell(c, x):
            h, s = c
            i, f, g, o = jnp.split(jnp.concatenate([h, x]) @ w, 4)
            s = jax.nn.sigmoid(f) * s + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(s)
            return (h, s), h
        return cell

    def kalman(c, z):
        m, p = c
        f = jnp.eye(4, dtype='f') + jnp.eye(4, k=2, dtype='f') * .1
        m, p = f @ m, f @ p @ f.T + jnp.eye(4, dtype='f') * .01
        gain = p[:, 0] / (p[0, 0] + .1)
        m, p = m + gain * (z - m[0]), p - jnp.outer(gain, p[0])
        return (m, p), m[0]

    def forward(transitions):
        return lambda a, x: (jsp.special.logsumexp(a[:, None] + transitions, 0) + x, a[0])

    def metropolis(c, key):
        x, count = c
        proposal = x + jax.random.normal(key, dtype='f')
        accept = jnp.log(jax.random.uniform(key, dtype='f')) < .5 * (x * x - proposal * proposal)
        return (jnp.where(accept, proposal, x), count + accept), x

    def life(x):
        near = sum(jnp.roll(x, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - x
        return ((near == 3) | ((x == 1) & (near == 2))).astype(x.dtype)

    def bodies(c):
        at, speed = c
        apart = at[:, None] - at[None]
        force = -(apart / ((apart ** 2).sum(-1, keepdims=True) + .1) ** 1.5).sum(1)
        speed = speed + .01 * force
        return at + .01 * speed, speed

    def descend(x, y):
        return repeat(lambda w: w - .01 * jax.grad(lambda w: ((x @ w - y) ** 2).mean())(w), 500)

    def collatz(n):
        return lax.while_loop(lambda c: c[0] != 1, lambda c: (jnp.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1), c[1] + 1), (n, 0))

    def bisect(x):
        return lax.while_loop(lambda c: c[1] - c[0] > 1e-5, lambda c: (lambda m: (jnp.where(m * m < x, m, c[0]), jnp.where(
            m * m < x, c[1], m)))((c[0] + c[1]) / 2), (jnp.float32(0), x))[0]

    def edit_distance(x, y):
        def row(above, i):
            def cell(left, at):
                best = jnp.minimum(jnp.minimum(left, above[at + 1]) + 1, above[at] + (x[i] != y[at]))
                return best, best
            return jnp.concatenate([i[None] + 1, lax.scan(cell, i + 1, jnp.arange(60))[1]]), 0
        return lax.scan(row, jnp.arange(61), jnp.arange(60))[0]

    def shortest(d):
        return lax.fori_loop(0, 32, lambda k, d: jnp.minimum(d, d[:, k, None] + d[k]), d)
    keys = np.stack([np.arange(500, dtype='u4')] * 2, 1)
    zero, vector = np.float32(0), N(3)
    return [
        ('running mean', scan(lambda c, x: (c * .9 + x, c)), zero, N(5000)),
        ('counter in a counter', lambda c: lax.fori_loop(0, 100, lambda i, c: lax.fori_loop(
            0, 100, lambda j, c: c * .999 + i - j, c), c), zero),
        ('Lorenz', lambda y: lax.scan(lambda y, _: (rk4(y), y), y, length=1000), vector),
        ('gradient of Lorenz', jax.grad(lambda y: lax.scan(lambda y, _: (rk4(y), None), y, length=300)[0].sum()), vector),
        ('Adam', repeat(adam, 1000), (N(2), np.zeros(2, 'f'), np.zeros(2, 'f'), zero)),
        ('LSTM', lambda w, xs: lax.scan(lstm(w), (jnp.zeros(32, 'f'), jnp.zeros(32, 'f')), xs), N(48, 128) * .1, N(100, 16)),
        ('gradient of an LSTM', jax.grad(lambda w, xs: lax.scan(lstm(w), (jnp.zeros(32, 'f'), jnp.zeros(32, 'f')), xs)[1].sum()),
         N(48, 128) * .1, N(100, 16)),
        ('Kalman filter', scan(kalman), (N(4), np.eye(4, dtype='f')), N(200)),
        ('hidden Markov model', lambda t, a, xs: lax.scan(forward(t), a, xs), N(16, 16), N(16), N(500, 16)),
        ('Metropolis', lambda keys: lax.scan(metropolis, (jnp.float32(0), 0), keys), keys),
        ('game of life', repeat(life, 200), I(2, 32, 32)),
        ('heat', repeat(lambda x: x.at[1:-1].add(.1 * (x[2:] - 2 * x[1:-1] + x[:-2])), 1000), N(64)),
        ('bodies', repeat(bodies, 300), (N(8, 3), N(8, 3))),
        ('least squares', lambda x, y, w: descend(x, y)(w), N(32, 8), N(32), N(8)),
        ('Collatz', collatz, np.int32(77031)), ('bisection', bisect, np.float32(50)),
        ('bisection of each', jax.vmap(bisect), np.abs(N(100)) + 1),
        ('edit distance', edit_distance, I(4, 60), I(4, 60)),
        ('shortest paths', shortest, np.abs(N(32, 32))),
        ('power iteration', lambda m, v: lax.fori_loop(0, 300, lambda i, v: (lambda w: w / jnp.linalg.norm(w))(m @ v), v),
         N(16, 16), N(16)),
        ('xorshift', repeat(lambda x: (lambda x: (lambda x: x ^ (x << 5))(x ^ (x >> 17)))(x ^ (x << 13)), 5000), np.uint32(7)),
        ('sum of a table by a loop', lambda x: lax.fori_loop(0, 1000, lambda i, s: s + x[i * 7 % 1000] * (i % 3).astype('f'), jnp.float32(0)), N(1000)),
        ('branch in a loop', lambda x: lax.fori_loop(0, 1000, lambda i, s: lax.cond(
            x[i] > 0, lambda: s + x[i], lambda: s * .5), jnp.float32(0)), N(1000)),
        ('Newton', jax.vmap(lambda a: lax.fori_loop(0, 100, lambda i, x: x - (x * x * x - a) / (3 * x * x + 1e-6), jnp.float32(1))), np.abs(N(16)))]


GROUPS = {
    'elementwise': (elementwise, (*FLOATS, *COMPLEX)), 'moved': (moved, (*FLOATS, *COMPLEX)),
    'reduced': (reduced, (*FLOATS, *COMPLEX)), 'integers': (integers, INTEGERS),
    'batches': (batches, ('float32', 'float64', 'complex64')), 'transforms': (transforms, COMPLEX),
    'convolutions': (convolutions, ('float32', 'bfloat16', 'float64')), 'special': (special, ('float32', 'float64')),
    'random': (random_numbers, ('',)), 'library': (library, ('',)), 'edits': (edits, ('',)),
    'steps': (steps, ('',)),
}
