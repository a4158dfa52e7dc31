# SPDX-License-Identifier: Apache-2.0
"""Twenty-seven programs that nobody tuned for: what people write in JAX, in small.

Each is a function with its arguments; all() gives them in a fixed order. benchmarks/programs.py times
them, tests/jax/test_zoo.py checks them on every device. Inputs come from fixed seeds.
"""
import dataclasses
from typing import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


@dataclasses.dataclass
class Model:
    name: str
    description: str
    function: Callable
    make: Callable  # the arguments as numpy arrays, any trees
    # Whether its time is that of moving its arguments and results once.
    memory_bound: bool = False


_models = []


def model(description, make, memory_bound=False):
    def add(function):
        _models.append(Model(function.__name__, description, function, make, memory_bound))
        return function
    return add


def all():
    return list(_models)


def _random(seed):
    rng = np.random.default_rng(seed)

    def normal(*shape, scale=1.0):
        return (rng.standard_normal(shape) * scale).astype(np.float32)
    return rng, normal


def _layers(normal, *sizes):
    return [(normal(a, b, scale=a ** -0.5), np.zeros(b, np.float32))
            for a, b in zip(sizes, sizes[1:])]


def _cross_entropy(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1).mean()


def _descend(loss, weights, *data, rate=0.05):
    value, gradient = jax.value_and_grad(loss)(weights, *data)
    return value, jax.tree.map(lambda w, g: w - rate * g, weights, gradient)


# --- training steps ---

def _mlp():
    rng, normal = _random(1)
    return _layers(normal, 784, 256, 128, 10), normal(128, 784), rng.integers(0, 10, 128, np.int32)


@model('MLP 784-256-128-10, batch 128: step of SGD', _mlp)
def mlp_train(weights, images, labels):
    def loss(weights, x, y):
        for w, b in weights[:-1]:
            x = jax.nn.gelu(x @ w + b)
        w, b = weights[-1]
        return _cross_entropy(x @ w + b, y)
    return _descend(loss, weights, images, labels)


def _cnn():
    rng, normal = _random(2)
    weights = {'c1': normal(3, 3, 1, 16, scale=0.3), 'c2': normal(3, 3, 16, 32, scale=0.1),
               'out': _layers(normal, 7 * 7 * 32, 10)[0]}
    return weights, normal(16, 28, 28, 1), rng.integers(0, 10, 16, np.int32)


@model('CNN of two 3x3 convolutions with max pooling on 28x28, batch 16: step of SGD', _cnn)
def cnn_train(weights, images, labels):
    def loss(weights, x, y):
        for name in ('c1', 'c2'):
            x = lax.conv_general_dilated(x, weights[name], (1, 1), 'SAME',
                                         dimension_numbers=('NHWC', 'HWIO', 'NHWC'))
            x = jax.nn.relu(x)
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), 'VALID')
        w, b = weights['out']
        return _cross_entropy(x.reshape(x.shape[0], -1) @ w + b, y)
    return _descend(loss, weights, images, labels)


def _norm(x, scale):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * scale


def _transformer():
    _, normal = _random(3)
    d = 128
    weights = {'qkv': normal(d, 3 * d, scale=d ** -0.5), 'o': normal(d, d, scale=d ** -0.5),
               'up': normal(d, 4 * d, scale=d ** -0.5), 'down': normal(4 * d, d, scale=0.05),
               'n1': np.ones(d, np.float32), 'n2': np.ones(d, np.float32)}
    return weights, normal(4, 64, d), normal(4, 64, d)


@model('Transformer block, width 128, 4 heads, sequence 64, batch 4: step of SGD', _transformer)
def transformer_train(weights, x, target):
    def loss(w, x, target):
        b, n, d = x.shape
        q, k, v = jnp.split(_norm(x, w['n1']) @ w['qkv'], 3, axis=-1)
        q, k, v = (t.reshape(b, n, 4, d // 4).transpose(0, 2, 1, 3) for t in (q, k, v))
        scores = jnp.einsum('bhqd,bhkd->bhqk', q, k) * (d // 4) ** -0.5
        scores = jnp.where(jnp.tril(jnp.ones((n, n), bool)), scores, -1e9)
        mixed = jnp.einsum('bhqk,bhkd->bhqd', jax.nn.softmax(scores), v)
        x = x + mixed.transpose(0, 2, 1, 3).reshape(b, n, d) @ w['o']
        x = x + jax.nn.gelu(_norm(x, w['n2']) @ w['up']) @ w['down']
        return ((x - target) ** 2).mean()
    return _descend(loss, weights, x, target)


# --- recurrent nets ---

def _lstm():
    _, normal = _random(4)
    return normal(64 + 128, 512, scale=0.07), np.zeros(512, np.float32), normal(64, 16, 64)


@model('LSTM, 128 units, 64 steps, batch 16: forward', _lstm)
def lstm_scan(w, b, xs):
    def step(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(jnp.concatenate([x, h], -1) @ w + b, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h
    start = jnp.zeros((xs.shape[1], 128), xs.dtype)
    return lax.scan(step, (start, start), xs)


def _gru():
    _, normal = _random(5)
    weights = {'gates': normal(96, 128, scale=0.1), 'candidate': normal(96, 64, scale=0.1)}
    return weights, normal(32, 16, 32), normal(16, 64)


@model('GRU, 64 units, 32 steps, batch 16: gradient through the scan', _gru)
def gru_train(weights, xs, target):
    def loss(weights, xs, target):
        def step(h, x):
            z, r = jnp.split(jax.nn.sigmoid(jnp.concatenate([x, h], -1) @ weights['gates']), 2, -1)
            new = jnp.tanh(jnp.concatenate([x, r * h], -1) @ weights['candidate'])
            return (1 - z) * h + z * new, None
        h, _ = lax.scan(step, jnp.zeros_like(target), xs)
        return ((h - target) ** 2).mean()
    return _descend(loss, weights, xs, target)


# --- parts of nets ---

def _attention():
    _, normal = _random(6)
    return normal(4, 256, 64), normal(4, 256, 64), normal(4, 256, 64)


@model('Attention with softmax, 4 heads, 256 tokens, 64 dimensions', _attention)
def attention(q, k, v):
    return jnp.einsum('hqk,hkd->hqd', jax.nn.softmax(jnp.einsum('hqd,hkd->hqk', q, k) / 8), v)


def _layer_norm():
    _, normal = _random(7)
    return normal(2048, 512), normal(512), normal(2048, 512)


@model('Layer norm of 2,048 rows of 512: value and gradients', _layer_norm)
def layer_norm(x, scale, cotangent):
    y, back = jax.vjp(_norm, x, scale)
    return y, *back(cotangent)


def _batch_norm():
    _, normal = _random(8)
    return normal(32, 32, 32, 16), normal(16), normal(16)


@model('Batch norm and ReLU of 32x32x32x16 with batch statistics: gradients of a loss', _batch_norm)
def batch_norm(x, scale, offset):
    def loss(x, scale, offset):
        mean = x.mean((0, 1, 2))
        variance = ((x - mean) ** 2).mean((0, 1, 2))
        y = jax.nn.relu((x - mean) * lax.rsqrt(variance + 1e-5) * scale + offset)
        return (y ** 2).mean()
    return jax.grad(loss, (0, 1, 2))(x, scale, offset)


def _softmax():
    rng, normal = _random(9)
    return normal(2048, 1000), rng.integers(0, 1000, 2048, np.int32)


@model('Softmax cross-entropy of 2,048 rows of 1,000: loss and gradient', _softmax)
def softmax_loss(logits, labels):
    return jax.value_and_grad(_cross_entropy)(logits, labels)


def _embedding():
    rng, normal = _random(10)
    return normal(10000, 64), rng.integers(0, 10000, (16, 128), np.int32), normal(16, 128, 64)


@model('Embedding of 10,000 words: gather, and the gradient by scatter', _embedding)
def embedding_train(table, words, target):
    def loss(table):
        return ((table[words] - target) ** 2).mean()
    return jax.value_and_grad(loss)(table)


# --- science ---

def _heat():
    _, normal = _random(11)
    return (normal(48, 48, 48),)


@model('Heat equation, seven points on 48x48x48, 50 steps', _heat)
def heat_stencil(u):
    def step(_, u):
        total = sum(jnp.roll(u, s, axis) for axis in range(3) for s in (1, -1))
        return u + 0.1 * (total - 6 * u)
    return lax.fori_loop(0, 50, step, u)


def _bodies():
    rng, normal = _random(12)
    return normal(256, 3), normal(256, 3, scale=0.1), rng.uniform(0.5, 1.5, 256).astype(np.float32)


@model('256 bodies, 20 leapfrog steps', _bodies)
def n_body(x, v, mass):
    def pull(x):
        gap = x[None] - x[:, None]
        return (gap * (mass / ((gap ** 2).sum(-1) + 0.05) ** 1.5)[..., None]).sum(1)

    def step(_, state):
        x, v = state
        v = v + 0.5e-3 * pull(x)
        x = x + 1e-3 * v
        return x, v + 0.5e-3 * pull(x)
    return lax.fori_loop(0, 20, step, (x, v))


def _lorenz():
    _, normal = _random(13)
    return (normal(3, 4096),)


@model('4,096 Lorenz systems, 100 steps of Runge-Kutta', _lorenz)
def rk4_lorenz(state):
    def slope(s):
        x, y, z = s
        return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    def step(s, _):
        h = 2e-3
        a = slope(s)
        b = slope(s + h / 2 * a)
        c = slope(s + h / 2 * b)
        d = slope(s + h * c)
        return s + h / 6 * (a + 2 * b + 2 * c + d), s[0].mean()
    return lax.scan(step, state, None, length=100)


def _poisson():
    _, normal = _random(14)
    return (normal(128, 128),)


@model('Poisson equation on 128x128 by Jacobi, until the change is small', _poisson)
def jacobi(f):
    def body(state):
        u, _, n = state
        p = jnp.pad(u, 1)
        new = 0.25 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 1e-3 * f)
        return new, jnp.abs(new - u).max(), n + 1
    u, change, _ = lax.while_loop(lambda s: (s[1] > 2e-7) & (s[2] < 500), body,
                                  (jnp.zeros_like(f), jnp.ones((), f.dtype), 0))
    return u, change


def _conjugate():
    _, normal = _random(15)
    a = normal(512, 512, scale=512 ** -0.5)
    return (a @ a.T + 2 * np.eye(512)).astype(np.float32), normal(512)


@model('Conjugate gradients for 512 unknowns, 40 iterations', _conjugate)
def conjugate_gradient(a, b):
    def step(_, state):
        x, r, p, rr = state
        ap = a @ p
        alpha = rr / (p @ ap)
        x, r = x + alpha * p, r - alpha * ap
        new = r @ r
        return x, r, r + new / jnp.maximum(rr, 1e-30) * p, new
    return lax.fori_loop(0, 40, step, (jnp.zeros_like(b), b, b, b @ b))[0]


def _gram():
    _, normal = _random(16)
    return (normal(128, 64),)


@model('QR of 128x64 by modified Gram-Schmidt', _gram)
def gram_schmidt(a):
    def step(k, state):
        q, r = state
        v = lax.dynamic_index_in_dim(q, k, 1, keepdims=False)
        norm = jnp.sqrt(v @ v)
        v = v / norm
        row = jnp.where(jnp.arange(q.shape[1]) > k, v @ q, 0).at[k].set(norm)
        q = q - jnp.outer(v, jnp.where(jnp.arange(q.shape[1]) > k, row, 0))
        return q.at[:, k].set(v), r.at[k].set(row)
    return lax.fori_loop(0, a.shape[1], step, (a, jnp.zeros((a.shape[1], a.shape[1]))))


def _mandelbrot(view, n, iterations):
    grid = jnp.arange(n, dtype=view.dtype) / n * view[2]
    cx, cy = (view[0] + grid)[None, :], (view[1] + grid)[:, None]

    def body(state):
        x, y, count, k = state
        inside = x * x + y * y < 4
        new_x = jnp.where(inside, x * x - y * y + cx, x)
        new_y = jnp.where(inside, 2 * x * y + cy, y)
        return new_x, new_y, count + inside, k + 1
    zero = jnp.zeros((n, n), view.dtype)
    _, _, count, _ = lax.while_loop(lambda s: (s[3] < iterations) & (s[0] ** 2 + s[1] ** 2 < 4).any(),
                                    body, (zero, zero, zero, 0))
    # Points at the border leave an iteration sooner or later by rounding: a mean says little of them.
    return count.reshape(n // 32, 32, n // 32, 32).mean((1, 3))


@model('Mandelbrot set, 384x384 points, at most 40 iterations', lambda: (
    np.array([-2.0, -1.25, 2.5], np.float32),))
def mandelbrot(view):
    return _mandelbrot(view, 384, 40)


def _life():
    rng, _ = _random(18)
    return (rng.integers(0, 2, (256, 256), np.int32).astype(np.int8),)


@model('Game of life, 256x256, 50 iterations of 8-bit integers', _life)
def game_of_life(board):
    def step(_, b):
        n = sum(jnp.roll(b, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - b
        return ((n == 3) | ((b == 1) & (n == 2))).astype(jnp.int8)
    return lax.fori_loop(0, 50, step, board)


# --- sorts, scans, indices, random numbers ---

def _sort():
    rng, normal = _random(19)
    return normal(1 << 16), rng.integers(0, 1 << 30, 1 << 16, np.int32)


@model('Sorts of 65,536: numbers, places, the greatest 100', _sort)
def sorts(x, keys):
    return jnp.sort(x), jnp.argsort(keys), lax.top_k(x, 100)


def _segments():
    rng, normal = _random(20)
    return normal(1 << 16), rng.integers(0, 1000, 1 << 16, np.int32)


@model('Sums and maxima of 65,536 numbers in 1,000 segments', _segments)
def segment_sums(x, segments):
    return (jax.ops.segment_sum(x, segments, 1000), jax.ops.segment_max(x, segments, 1000))


@model('262,144 normal and as many uniform random numbers (threefry)', lambda: (
    np.array([3, 14], np.uint32),))
def random_numbers(key):
    a, b = jax.random.split(jax.random.wrap_key_data(key))
    return jax.random.normal(a, (512, 512)), jax.random.uniform(b, (512, 512))


def _cumulative():
    _, normal = _random(22)
    return (normal(64, 4096),)


@model('Cumulative sum, maximum and log-sum-exp of 64 rows of 4,096', _cumulative)
def cumulative(x):
    return jnp.cumsum(x, 1), lax.cummax(x, axis=1), lax.cumlogsumexp(x, axis=1)


def _beam():
    _, normal = _random(23)
    return normal(500, 64), normal(64, 500, scale=0.5), np.int32(1)


@model('Beam search, 8 beams over 500 words, 24 steps', _beam)
def beam_search(table, out, first):
    beams, steps = 8, 24

    def step(t, state):
        words, scores, h = state
        last = lax.dynamic_index_in_dim(words, t, 1, keepdims=False)
        h = jnp.tanh(0.5 * h + table[last])
        total = scores[:, None] + jax.nn.log_softmax(h @ out)
        scores, flat = lax.top_k(total.reshape(-1), beams)
        parent, word = flat // 500, (flat % 500).astype(jnp.int32)
        words = lax.dynamic_update_index_in_dim(words[parent], word, t + 1, 1)
        return words, scores, h[parent]
    words = jnp.zeros((beams, steps + 1), jnp.int32).at[:, 0].set(first)
    scores = jnp.where(jnp.arange(beams) == 0, 0.0, -1e9)
    return lax.fori_loop(0, steps, step, (words, scores, jnp.zeros((beams, 64))))[:2]


# --- images, bandwidth ---

def _images():
    _, normal = _random(24)
    return (normal(8, 64, 64, 3),)


@model('Eight images of 64x64 to 160x160, bilinear and cubic', _images)
def image_resize(images):
    shape = (8, 160, 160, 3)
    return jax.image.resize(images, shape, 'bilinear'), jax.image.resize(images, shape, 'cubic')


def _long():
    _, normal = _random(25)
    return normal(1 << 22), normal(1 << 22)


@model('Twelve elementwise operations on 4,194,304 numbers', _long, memory_bound=True)
def elementwise(x, y):
    z = x * y + 0.5 * x - y
    return jnp.where(z > 0, z * z + x, jnp.abs(y) - z) * 0.25 + jnp.maximum(x, y)


@model('Sum, maximum and mean square of 4,194,304 numbers', lambda: _long()[:1],
       memory_bound=True)
def reductions(x):
    return x.sum(), x.max(), (x * x).mean()


def _matrix():
    _, normal = _random(27)
    return (normal(2048, 1536),)


@model('Transpose of 2,048 x 1,536 and the sums of its rows', _matrix, memory_bound=True)
def transpose_sum(x):
    return x.T * 2, x.sum(1)
