# SPDX-License-Identifier: Apache-2.0
"""Programs at sizes where memory, cores and vector units decide, not launches.

As zoo.py: each is a function with its arguments, all() gives them in a fixed order. Each has a second set
of small arguments for tests/jax/test_zoo.py; `programs.py --large` times the large ones. Inputs come from
fixed seeds.
"""
import dataclasses
from typing import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import zoo
from zoo import _cross_entropy, _descend, _layers, _mandelbrot, _norm, _random


@dataclasses.dataclass
class Model(zoo.Model):
    make_small: Callable = None


_models = []


def model(description, make, small, large):
    """`make(*large)` are the arguments that are timed, `make(*small)` those that are tested."""
    def add(function):
        _models.append(Model(function.__name__, description, function, lambda: make(*large),
                             make_small=lambda: make(*small)))
        return function
    return add


def all():
    return list(_models)


# --- a matrix and a vector ---

def _system(n):
    _, normal = _random(101)
    a = normal(n, n, scale=n ** -0.5)
    return (a @ a.T + 2 * np.eye(n)).astype(np.float32), normal(n)


@model('Conjugate gradients for 2,048 unknowns, 20 iterations', _system, (67,), (2048,))
def conjugate_gradient_2048(a, b):
    def step(_, state):
        x, r, p, rr = state
        ap = a @ p
        alpha = rr / (p @ ap)
        x, r = x + alpha * p, r - alpha * ap
        new = r @ r
        return x, r, r + new / jnp.maximum(rr, 1e-30) * p, new
    return lax.fori_loop(0, 20, step, (jnp.zeros_like(b), b, b, b @ b))[0]


def _skew(n):
    _, normal = _random(102)
    return (normal(n, n, scale=0.3 * n ** -0.5) + 2 * np.eye(n)).astype(np.float32), normal(n)


@model('Biconjugate gradients for 2,048 unknowns, 10 iterations: A p and p A', _skew, (67,), (2048,))
def biconjugate_gradient(a, b):
    def step(_, state):
        x, r, s, p, q, rs = state
        ap, qa = a @ p, q @ a
        alpha = rs / (q @ ap)
        x, r, s = x + alpha * p, r - alpha * ap, s - alpha * qa
        new = s @ r
        beta = new / jnp.where(rs == 0, 1, rs)
        return x, r, s, r + beta * p, s + beta * q, new
    return lax.fori_loop(0, 10, step, (jnp.zeros_like(b), b, b, b, b, b @ b))[0]


@model('Power iteration on 2,048 x 1,024: the greatest singular value, 20 iterations',
       lambda m, n: (_random(103)[1](m, n, scale=n ** -0.5), np.ones(n, np.float32)),
       (67, 33), (2048, 1024))
def power_iteration(a, v):
    def step(_, v):
        w = a.T @ (a @ v)
        return w / jnp.linalg.norm(w)
    v = lax.fori_loop(0, 20, step, v)
    return jnp.linalg.norm(a @ v)


# --- integers ---

def _words(n):
    rng, _ = _random(104)
    return rng.integers(0, 1 << 32, n, np.uint32), rng.integers(0, 1 << 32, n, np.uint32)


@model('Hashes of 4,194,304 words: shifts, rotates, multiplications', _words, (1001,), (1 << 22,))
def integer_hash(x, y):
    def rotate(v, k):
        return (v << k) | (v >> (32 - k))
    h = y
    for word in (x, x ^ y):
        k = rotate(word * np.uint32(0xcc9e2d51), 15) * np.uint32(0x1b873593)
        h = rotate(h ^ k, 13) * np.uint32(5) + np.uint32(0xe6546b64)
    h = (h ^ (h >> 16)) * np.uint32(0x85ebca6b)
    h = (h ^ (h >> 13)) * np.uint32(0xc2b2ae35)
    return h ^ (h >> 16)


@model('Bits of 4,194,304 words: counts, leading zeros, distances, parity', _words, (1001,),
       (1 << 22,))
def integer_bits(x, y):
    distance = lax.population_count(x ^ y)
    return (distance, lax.population_count(x & y).sum(), lax.clz(x | np.uint32(1)),
            (lax.population_count(x) & 1) ^ (distance >> 2))


def _shifts(n):
    rng, _ = _random(105)
    return (rng.integers(0, 1 << 32, n, np.uint32), rng.integers(0, 32, n, np.uint32),
            rng.integers(-(1 << 31), (1 << 31) - 1, n, np.int32))


@model('4,194,304 words shifted by as many distances, both ways', _shifts, (1001,), (1 << 22,))
def integer_shifts(x, by, signed):
    left = lax.shift_left(x, by) | lax.shift_right_logical(x, (32 - by) & 31)
    return left, lax.shift_right_arithmetic(signed, by.astype(np.int32)), (x >> by) & 1


def _bytes(m, k, n):
    rng, _ = _random(106)
    return (rng.integers(-128, 128, (m, k), np.int8), rng.integers(-128, 128, (k, n), np.int8),
            rng.integers(-128, 128, (n, k), np.int8))


@model('8-bit products 1,024^3 with 32-bit sums: a b, then requantized times c^T', _bytes,
       (37, 65, 49), (1024, 1024, 1024))
def int8_products(a, b, c):
    def product(x, y, dims):
        return lax.dot_general(x, y, (dims, ((), ())), preferred_element_type=jnp.int32)
    first = product(a, b, ((1,), (0,)))
    second = product(a, c, ((1,), (1,)))
    return first, jnp.clip(jnp.round(second.astype(jnp.float32) * 2e-4), -128, 127).astype(jnp.int8)


# --- f16, images ---

def _half(batch, width, classes):
    rng, normal = _random(107)
    return (_layers(normal, width, width, width, classes), np.float32(1024), np.int32(0),
            normal(batch, width), rng.integers(0, classes, batch, np.int32))


@model('MLP 512-512-512-64 in f16, batch 512: step of SGD with dynamic loss scaling', _half,
       (8, 24, 10), (512, 512, 64))
def f16_loss_scaling(weights, scale, good, images, labels):
    # In f64 nothing is narrow, so that a test sees what f16 costs.
    half = jnp.float16 if images.dtype == jnp.float32 else images.dtype

    def loss(weights, x, y):
        x = x.astype(half)
        for w, b in weights[:-1]:
            x = jax.nn.relu(x @ w.astype(half) + b.astype(half))
        w, b = weights[-1]
        logits = (x @ w.astype(half) + b.astype(half)).astype(scale.dtype)
        return _cross_entropy(logits, y) * scale
    value, gradients = jax.value_and_grad(loss)(weights, images, labels)
    gradients = jax.tree.map(lambda g: g / scale, gradients)
    finite = jnp.stack([jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]).all()
    weights = jax.tree.map(lambda w, g: jnp.where(finite, w - 0.05 * g, w), weights, gradients)
    grow = good == 1999
    scale = jnp.where(finite, jnp.where(grow, scale * 2, scale), jnp.maximum(scale / 2, 1))
    return value / scale, weights, scale, jnp.where(finite & ~grow, good + 1, 0)


@model('Mandelbrot set, 1,024 x 1,024 points, until all have left or 100 iterations',
       lambda n, iterations: (np.array([-2.0, -1.25, 2.5], np.float32), np.zeros((n, n), np.int8),
                         np.int32(iterations)), (32, 20), (1024, 100))
def mandelbrot_1024(view, image, iterations):
    return _mandelbrot(view, image.shape[0], iterations)


@model('Game of life, 1,024 x 1,024, 50 iterations of 8-bit integers',
       lambda n: (_random(108)[0].integers(0, 2, (n, n), np.int32).astype(np.int8),),
       (37,), (1024,))
def game_of_life_1024(board):
    def step(_, b):
        n = sum(jnp.roll(b, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - b
        return ((n == 3) | ((b == 1) & (n == 2))).astype(jnp.int8)
    return lax.fori_loop(0, 50, step, board)


# --- chains that memory bounds ---

def _tokens(n, d):
    _, normal = _random(109)
    return normal(n, d), normal(n, d), normal(d), normal(d)


@model('Layer norm, GELU, residual, rotary and a transpose on 4,096 x 1,024', _tokens, (33, 16),
       (4096, 1024))
def token_chain(x, residual, scale, offset):
    y = x + jax.nn.gelu(_norm(x, scale) + offset)
    n, d = y.shape
    angle = jnp.arange(n)[:, None] * 100.0 ** (-jnp.arange(d // 2) / (d // 2))
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    a, b = y[:, :d // 2], y[:, d // 2:]
    y = jnp.concatenate([a * cosine - b * sine, a * sine + b * cosine], 1)
    y = _norm(y + residual, scale)
    return y.T, y.reshape(n, 4, d // 4).transpose(1, 0, 2)


@model('The same chain: gradients', _tokens, (33, 16), (4096, 1024))
def token_chain_grad(x, residual, scale, offset):
    def loss(x, residual, scale, offset):
        y = x + jax.nn.gelu(_norm(x, scale) + offset)
        y = _norm(y + residual, scale)
        return (y.T ** 2).sum(0).mean()
    return jax.grad(loss, (0, 1, 2, 3))(x, residual, scale, offset)


# --- matrix products ---

def _chain(n):
    _, normal = _random(110)
    return tuple(normal(n, n, scale=n ** -0.5) for _ in range(4))


@model('Four products of 1,024 x 1,024 one after the other, tanh between', _chain, (65,), (1024,))
def gemm_chain(a, b, c, d):
    return jnp.tanh(jnp.tanh(jnp.tanh(a @ b) @ c) @ d) @ a.T


def _gan(batch, z, width, image):
    _, normal = _random(111)
    return (_layers(normal, z, width, width, image), _layers(normal, image, width, width, 1),
            normal(batch, z), normal(batch, image))


@model('GAN of perceptrons 128-512-512-784, batch 256: steps of both sides', _gan, (8, 5, 17, 20),
       (256, 128, 512, 784))
def gan_step(generator, discriminator, noise, images):
    def apply(weights, x):
        for w, b in weights[:-1]:
            x = jax.nn.leaky_relu(x @ w + b, 0.2)
        w, b = weights[-1]
        return x @ w + b

    def loss_d(d):
        fake = apply(d, jnp.tanh(apply(generator, noise)))
        return (jax.nn.softplus(-apply(d, images)) + jax.nn.softplus(fake)).mean()

    def loss_g(g):
        return jax.nn.softplus(-apply(discriminator, jnp.tanh(apply(g, noise)))).mean()
    value_d, discriminator = _descend(loss_d, discriminator)
    value_g, generator = _descend(loss_g, generator)
    return value_d, value_g, generator, discriminator


def _gru(steps, batch, inputs, units):
    _, normal = _random(112)
    scale = (inputs + units) ** -0.5
    weights = {'gates': normal(inputs + units, 2 * units, scale=scale),
               'candidate': normal(inputs + units, units, scale=scale)}
    return weights, normal(steps, batch, inputs), normal(batch, units)


@model('GRU, 256 units, 64 steps, batch 64: gradient through the scan', _gru, (5, 3, 9, 17),
       (64, 64, 128, 256))
def gru_train_256(weights, xs, target):
    def loss(weights, xs, target):
        def step(h, x):
            z, r = jnp.split(jax.nn.sigmoid(jnp.concatenate([x, h], -1) @ weights['gates']), 2, -1)
            new = jnp.tanh(jnp.concatenate([x, r * h], -1) @ weights['candidate'])
            return (1 - z) * h + z * new, None
        h, _ = lax.scan(step, jnp.zeros_like(target), xs)
        return ((h - target) ** 2).mean()
    return _descend(loss, weights, xs, target)


def _mlp(batch, inputs, width, classes):
    rng, normal = _random(113)
    return (_layers(normal, inputs, width, width, classes), normal(batch, inputs),
            rng.integers(0, classes, batch, np.int32))


@model('MLP 784-1,024-1,024-10, batch 512: step of SGD', _mlp, (8, 20, 17, 10), (512, 784, 1024, 10))
def mlp_train_1024(weights, images, labels):
    def loss(weights, x, y):
        for w, b in weights[:-1]:
            x = jax.nn.gelu(x @ w + b)
        w, b = weights[-1]
        return _cross_entropy(x @ w + b, y)
    return _descend(loss, weights, images, labels)


def _bags(words, width, batch, length):
    rng, normal = _random(114)
    return (normal(words, width, scale=0.1), normal(width, 16, scale=width ** -0.5),
            rng.integers(0, words, (batch, length), np.int32), rng.integers(0, 16, batch, np.int32))


@model('Embedding bags of 50 of 100,000 words, width 64, batch 1,024: step of SGD', _bags,
       (50, 6, 5, 7), (100000, 64, 1024, 50))
def embedding_bag(table, out, words, labels):
    def loss(weights):
        table, out = weights
        return _cross_entropy(table[words].mean(1) @ out, labels)
    return _descend(loss, (table, out))


# --- attention ---

def _heads(n, heads, width):
    _, normal = _random(120)
    return tuple(normal(1, n, heads, width) for _ in range(3))


@model('Causal attention of 2,048 tokens, 8 heads of 64', _heads, (40, 2, 8), (2048, 8, 64))
def causal_attention(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


# --- transforms, sorts ---

@model('2-D convolution of 1,024 x 1,024 by FFT', lambda n: tuple(
    _random(s)[1](n, n) for s in (115, 116)), (24,), (1024,))
def fft_convolution(x, kernel):
    return jnp.fft.irfft2(jnp.fft.rfft2(x) * jnp.fft.rfft2(kernel), s=x.shape)


@model('Spectrogram of 2^20 samples: windows of 1,024, powers, logarithms',
       lambda n, w: (_random(117)[1](n), np.hanning(w).astype(np.float32)), (512, 64),
       (1 << 20, 1024))
def spectrogram(signal, window):
    half = window.size // 2
    parts = signal.reshape(-1, half)
    frames = jnp.concatenate([parts[:-1], parts[1:]], 1)  # each overlaps half of the next
    return jnp.log1p(jnp.abs(jnp.fft.rfft(frames * window)) ** 2)


@model('Poisson equation on 512 x 512 by FFT: right side, solve, residual',
       lambda n: (_random(118)[1](n, n),), (24,), (512,))
def poisson_fft(f):
    n = f.shape[0]
    f = f - f.mean()
    k = 2 * jnp.pi * jnp.fft.fftfreq(n)
    symbol = 2 * jnp.cos(k)[:, None] + 2 * jnp.cos(k)[None, :] - 4
    hat = jnp.fft.fft2(f) / jnp.where(symbol == 0, 1, symbol)
    u = jnp.fft.ifft2(jnp.where(symbol == 0, 0, hat)).real
    laplace = sum(jnp.roll(u, s, axis) for axis in (0, 1) for s in (1, -1)) - 4 * u
    return u, jnp.abs(laplace - f).max() < 1e-2


def _table(n, groups):
    rng, normal = _random(119)
    return normal(n), rng.integers(0, groups, n, np.int32), normal(64, n // 64)


@model('Sorts of 1,048,576: keys with values, ranks, medians of 64 rows', _table, (640, 7),
       (1 << 20, 1000))
def table_sorts(values, groups, rows):
    order = jnp.lexsort((values, groups))
    ranks = jnp.argsort(jnp.argsort(values))
    return groups[order], values[order], ranks, jnp.median(rows, axis=1)
