# SPDX-License-Identifier: Apache-2.0
"""The networks and simulations behind the stored programs, as plain JAX functions.

Every function computes in the dtype of its floating-point arguments, so that the same code run on
f64 arguments gives the reference from which tolerances are measured.
"""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from rules import Rule

# ---------------------------------------------------------------- GPT-like transformer
LAYERS, WIDTH, HEADS, SEQUENCE, VOCABULARY = 4, 256, 8, 128, 256
ADAM = {'rate': 1e-3, 'b1': 0.9, 'b2': 0.99, 'epsilon': 1e-8}


def gpt_weights(seed, low=None, high=None, scale=1.0):
    """Rules for all weights; with low and high every element lies there, else scaled by fan-in."""
    next_seed = iter(range(seed, seed + 1000))

    def matrix(*shape):
        bound = scale * float(np.float32(np.sqrt(3.0 / shape[0])))
        return Rule(shape, next(next_seed), -bound if low is None else low,
                    bound if high is None else high)

    def vector(n, middle):
        return Rule((n,), next(next_seed), middle - 0.1 if low is None else low,
                    middle + 0.1 if high is None else high)

    def norm():
        return {'scale': vector(WIDTH, 1.0), 'bias': vector(WIDTH, 0.0)}

    def dense(rows, columns):
        return {'kernel': matrix(rows, columns), 'bias': vector(columns, 0.0)}

    layers = [{'norm1': norm(), 'qkv': dense(WIDTH, 3 * WIDTH), 'out': dense(WIDTH, WIDTH),
               'norm2': norm(), 'up': dense(WIDTH, 4 * WIDTH), 'down': dense(4 * WIDTH, WIDTH)}
              for _ in range(LAYERS)]
    return {'tokens': matrix(VOCABULARY, WIDTH), 'positions': matrix(SEQUENCE, WIDTH),
            'layers': layers, 'norm': norm()}


def layer_norm(weights, x, epsilon=1e-5):
    """Over the last axis, statistics in at least f32."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    centred = wide - wide.mean(-1, keepdims=True)
    scaled = centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + epsilon)
    return (scaled * weights['scale'] + weights['bias']).astype(x.dtype)


def attention(qkv, heads, causal):
    """[batch, sequence, 3 * width] -> [batch, sequence, width]; softmax in at least f32."""
    batch, length, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    q, k, v = (part.reshape(batch, length, heads, width // heads)
               for part in jnp.split(qkv, 3, axis=-1))
    wide = jnp.promote_types(qkv.dtype, jnp.float32)
    scores = jnp.einsum('bqhe,bkhe->bhqk', q, k, preferred_element_type=wide)
    scores = scores * float((width // heads) ** -0.5)
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
    mixed = jnp.einsum('bhqk,bkhe->bqhe', jax.nn.softmax(scores).astype(v.dtype), v)
    return mixed.reshape(batch, length, width)


def affine(weights, x):
    return x @ weights['kernel'] + weights['bias']


def gpt_logits(weights, tokens):
    """tokens i32 [batch, sequence] -> logits [batch, sequence, vocabulary]; tied embedding."""
    x = weights['tokens'][tokens] + weights['positions'][:tokens.shape[1]]
    for layer in weights['layers']:
        x = x + affine(layer['out'], attention(
            affine(layer['qkv'], layer_norm(layer['norm1'], x)), HEADS, causal=True))
        x = x + affine(layer['down'], jax.nn.gelu(
            affine(layer['up'], layer_norm(layer['norm2'], x))))
    return layer_norm(weights['norm'], x) @ weights['tokens'].T


def gpt_loss(weights, tokens, targets):
    logs = jax.nn.log_softmax(gpt_logits(weights, tokens))
    return -jnp.mean(jnp.take_along_axis(logs, targets[..., None], axis=-1))


def gpt_train_step(weights, first, second, step, tokens, targets):
    """One step of Adam -> (weights, first and second moment, step + 1, loss); four are donated."""
    loss, gradient = jax.value_and_grad(gpt_loss)(weights, tokens, targets)
    step = step + 1
    b1, b2 = ADAM['b1'], ADAM['b2']
    first = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, first, gradient)
    second = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, second, gradient)
    count = step.astype(loss.dtype)
    scale = ADAM['rate'] * jnp.sqrt(1 - b2 ** count) / (1 - b1 ** count)
    weights = jax.tree.map(lambda w, m, v: w - scale * m / (jnp.sqrt(v) + ADAM['epsilon']),
                           weights, first, second)
    return weights, first, second, step, loss


# ---------------------------------------------------------------- residual convolution block
def convolution(x, kernel, stride=1):
    return lax.conv_general_dilated(x, kernel, (stride, stride), 'SAME',
                                    dimension_numbers=('NHWC', 'HWIO', 'NHWC'))


def batch_norm(weights, x, running, momentum=0.9, epsilon=1e-5):
    """Normalises by the batch's own statistics -> (result, new running mean and variance)."""
    mean = x.mean((0, 1, 2))
    variance = jnp.square(x - mean).mean((0, 1, 2))
    new = {'mean': momentum * running['mean'] + (1 - momentum) * mean,
           'variance': momentum * running['variance'] + (1 - momentum) * variance}
    return (x - mean) * lax.rsqrt(variance + epsilon) * weights['scale'] + weights['bias'], new


def residual_block(weights, running, x):
    """-> (result NHWC, new running statistics, values before each rectifier)."""
    y, new1 = batch_norm(weights['norm1'], convolution(x, weights['conv1'], 2), running['norm1'])
    z, new2 = batch_norm(weights['norm2'], convolution(jax.nn.relu(y), weights['conv2']),
                         running['norm2'])
    short, new3 = batch_norm(weights['norm3'], convolution(x, weights['project'], 2),
                             running['norm3'])
    total = z + short
    return jax.nn.relu(total), {'norm1': new1, 'norm2': new2, 'norm3': new3}, (y, total)


def residual_step(weights, running, x, target):
    """Forward and backward -> (result, loss, running statistics, gradients of weights and of x)."""
    def loss(weights, x):
        y, new, _ = residual_block(weights, running, x)
        return jnp.mean((y - target) ** 2), (y, new)
    (value, (y, new)), gradients = jax.value_and_grad(loss, (0, 1), has_aux=True)(weights, x)
    return y, value, new, gradients


def residual_arguments(inputs=16, outputs=32, batch=4, size=16):
    norm = lambda seed: {'scale': Rule((outputs,), seed, 0.8, 1.2),
                         'bias': Rule((outputs,), seed + 1, -0.3, 0.3)}
    statistics = lambda seed: {'mean': Rule((outputs,), seed, -0.2, 0.2),
                               'variance': Rule((outputs,), seed + 1, 0.5, 1.5)}
    weights = {'conv1': Rule((3, 3, inputs, outputs), 301, -0.15, 0.15),
               'conv2': Rule((3, 3, outputs, outputs), 302, -0.1, 0.1),
               'project': Rule((1, 1, inputs, outputs), 303, -0.4, 0.4),
               'norm1': norm(304), 'norm2': norm(306), 'norm3': norm(308)}
    running = {'norm1': statistics(310), 'norm2': statistics(312), 'norm3': statistics(314)}
    return (weights, running, Rule((batch, size, size, inputs), 316, -1.0, 1.0),
            Rule((batch, size // 2, size // 2, outputs), 317, 0.0, 1.0))


# ---------------------------------------------------------------- vision transformer, bf16
def vision_block(weights, images):
    """Patch embedding, one encoder block and a class head; weights f32, arithmetic in bf16."""
    # The second conversion does something only when the program is run again on f64 images.
    weights = jax.tree.map(lambda w: w.astype(jnp.bfloat16).astype(images.dtype), weights)
    patches = lax.conv_general_dilated(images, weights['patch'], (4, 4), 'VALID',
                                       dimension_numbers=('NHWC', 'HWIO', 'NHWC'))
    batch, width = patches.shape[0], patches.shape[-1]
    first = jnp.broadcast_to(weights['class'], (batch, 1, width))
    x = jnp.concatenate([first, patches.reshape(batch, -1, width)], 1) + weights['positions']
    x = x + affine(weights['out'], attention(
        affine(weights['qkv'], layer_norm(weights['norm1'], x)), 4, causal=False))
    hidden = affine(weights['up'], layer_norm(weights['norm2'], x))
    hidden = 0.5 * hidden * (1 + lax.erf(hidden * float(np.sqrt(0.5))))
    x = x + affine(weights['down'], hidden)
    return x, affine(weights['head'], layer_norm(weights['norm3'], x)[:, 0])


def vision_arguments(width=128, batch=2, size=32):
    def dense(rows, columns, seed):
        bound = float(np.float32(np.sqrt(3.0 / rows)))
        return {'kernel': Rule((rows, columns), seed, -bound, bound),
                'bias': Rule((columns,), seed + 1, -0.1, 0.1)}
    norm = lambda seed: {'scale': Rule((width,), seed, 0.9, 1.1),
                         'bias': Rule((width,), seed + 1, -0.1, 0.1)}
    tokens = (size // 4) ** 2 + 1
    weights = {'patch': Rule((4, 4, 3, width), 401, -0.25, 0.25),
               'class': Rule((1, 1, width), 402, -0.5, 0.5),
               'positions': Rule((1, tokens, width), 403, -0.5, 0.5),
               'qkv': dense(width, 3 * width, 404), 'out': dense(width, width, 406),
               'up': dense(width, 4 * width, 408), 'down': dense(4 * width, width, 410),
               'head': dense(width, 10, 412),
               'norm1': norm(414), 'norm2': norm(416), 'norm3': norm(418)}
    images = np.random.default_rng(419).uniform(-1, 1, (batch, size, size, 3))
    return weights, images.astype(jnp.bfloat16)


# ---------------------------------------------------------------- simulations
def wave(height, velocity, speed, steps=1000):
    """Leapfrog on a square with fixed edges -> (height, velocity, energy) after all steps.

    height, velocity [n, n]; speed [n, n] = (wave speed * time step / grid step)^2, below 1/2.
    """
    inside = (slice(1, -1), slice(1, -1))

    def laplacian(u):
        return (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[inside])

    def step(_, state):
        u, v = state
        v = v.at[inside].add(speed[inside] * laplacian(u))
        return u + v, v

    u, v = lax.fori_loop(0, steps, step, (height, velocity))
    energy = 0.5 * jnp.sum(v * v / speed) + 0.25 * (
        jnp.sum(jnp.square(jnp.diff(u, axis=0))) + jnp.sum(jnp.square(jnp.diff(u, axis=1))))
    return u, v, energy


def wave_arguments(n=64):
    x, y = np.meshgrid(np.linspace(-1, 1, n), np.linspace(-1, 1, n), indexing='ij')
    edge = np.sin(np.pi * (x + 1) / 2) * np.sin(np.pi * (y + 1) / 2)
    height = np.exp(-40 * ((x - 0.3) ** 2 + (y + 0.2) ** 2)) * edge
    return (height.astype(np.float32), Rule((n, n), 0, 0.0, kind='constant'),
            Rule((n, n), 501, 0.1, 0.4))


def distances(points, centres):
    return jnp.sum(jnp.square(points[:, None, :] - centres[None, :, :]), -1)


def k_means(points, centres):
    """Lloyd's algorithm until no point changes its cluster -> (centres, cluster of each point i32,
    points per cluster i32, sum of squared distances, number of rounds i32)."""
    count = centres.shape[0]

    def assign(centres):
        return jnp.argmin(distances(points, centres), -1).astype(jnp.int32)

    def go_on(state):
        return state[3] & (state[2] < 200)

    def improve(state):
        centres, cluster, rounds, _ = state
        sums = jax.ops.segment_sum(points, cluster, count)
        sizes = jax.ops.segment_sum(jnp.ones_like(cluster), cluster, count)
        means = sums / jnp.maximum(sizes, 1)[:, None].astype(points.dtype)
        centres = jnp.where(sizes[:, None] > 0, means, centres)
        new = assign(centres)
        return centres, new, rounds + 1, jnp.any(new != cluster)

    start = (centres, assign(centres), jnp.int32(0), jnp.array(True))
    centres, cluster, rounds, _ = lax.while_loop(go_on, improve, start)
    sizes = jax.ops.segment_sum(jnp.ones_like(cluster), cluster, count)
    nearest = jnp.min(distances(points, centres), -1)
    return centres, cluster, sizes, jnp.sum(nearest), rounds


def k_means_arguments(points=1000, clusters=12, features=4):
    generator = np.random.default_rng(11)
    middle = generator.uniform(-3, 3, (clusters, features))
    cloud = middle[generator.integers(0, clusters, points)]
    cloud = (cloud + generator.standard_normal(cloud.shape)).astype(np.float32)
    return cloud, cloud[:clusters].copy()


def monte_carlo(key, market, strikes, paths=4096, steps=32):
    """Asian options by simulation -> (prices, standard errors, percentiles of the path average,
    the ten worst and the ten best averages, bootstrap spread of the mean, a random order of 0..99).

    key: u32[2], threefry. market: [spot, rate, volatility, years].
    """
    spot, rate, volatility, years = market
    draw, resample, order = random.split(random.wrap_key_data(key, impl='threefry2x32'), 3)
    # Always f32 bits, as random.normal draws them, so that an f64 run sees the same numbers.
    low = np.nextafter(np.float32(-1), np.float32(0))
    uniform = random.uniform(draw, (steps, paths), jnp.float32, low, 1.0).astype(market.dtype)
    normal = float(np.sqrt(2)) * lax.erf_inv(uniform)
    dt = years / steps
    logs = jnp.cumsum((rate - 0.5 * volatility ** 2) * dt + volatility * jnp.sqrt(dt) * normal, 0)
    average = jnp.mean(spot * jnp.exp(logs), 0)
    payoff = jnp.maximum(average[None, :] - strikes[:, None], 0) * jnp.exp(-rate * years)
    pick = random.randint(resample, (64, paths), 0, paths, jnp.int32)
    return (payoff.mean(1), payoff.std(1) / float(np.sqrt(paths)),
            jnp.percentile(average, jnp.array([1, 5, 25, 50, 75, 95, 99], average.dtype)),
            jnp.concatenate([jnp.sort(average)[:10], lax.top_k(average, 10)[0]]),
            average[pick].mean(1).std(),
            random.permutation(order, jnp.arange(100, dtype=jnp.int32)))
