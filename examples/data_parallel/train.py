# SPDX-License-Identifier: Apache-2.0
"""One model on several processes, each with its part of the batch; JAX computes, Hekla adds up.

    hekla launch --nproc 4 python3 train.py             # gradients averaged while backward makes them
    hekla launch --nproc 4 python3 train.py --shards    # the optimizer's state divided (ZeRO, first stage)

All numbers of processes that divide the batch print the same losses, to rounding.
"""
import sys

import jax
import jax.numpy as jnp
import numpy as np

from hekla import data_parallel, process_group

BATCH, STEPS, RATE = 96, 60, 0.05

group = process_group.init()
random = np.random.default_rng(7)      # the same on all ranks
sizes = (8, 64, 64, 1)
parameters = [{'w': jnp.asarray(random.standard_normal((n, m)) / np.sqrt(n), jnp.float32), 'b': jnp.zeros(m)}
              for n, m in zip(sizes, sizes[1:])]


def loss_of(parameters, x, y):
    for layer in parameters[:-1]:
        x = jnp.tanh(x @ layer['w'] + layer['b'])
    return jnp.mean((x @ parameters[-1]['w'] + parameters[-1]['b'] - y) ** 2)


def own_batch(step):
    """This rank's part of the batch of a step."""
    samples = np.random.default_rng(step)
    x = samples.standard_normal((BATCH, sizes[0])).astype(np.float32)
    y = np.sin(x[:, :1]) + x[:, 1:2] * x[:, 2:3]
    each = BATCH // group.size
    return (part[group.rank * each:][:each] for part in (x, y))


def momentum(step, p, g, m):
    """An update of this rank's shard, in place."""
    m *= 0.9
    m += g
    p -= np.float32(RATE) * m


if '--shards' in sys.argv[1:]:
    optimizer = data_parallel.ShardedOptimizer(group, parameters, momentum, bucket_bytes=8 << 10)
    value_and_grad = jax.jit(jax.value_and_grad(loss_of))
else:
    buckets = data_parallel.GradientBuckets(group, parameters, bucket_bytes=8 << 10)
    # Each gradient leaves for the other ranks while the rest of the backward pass runs.
    value_and_grad = jax.jit(jax.value_and_grad(lambda p, x, y: loss_of(buckets.watch(p), x, y)))
    moments = jax.tree.map(jnp.zeros_like, parameters)

for step in range(STEPS):
    loss, gradients = jax.block_until_ready(value_and_grad(parameters, *own_batch(step)))
    if '--shards' in sys.argv[1:]:
        parameters = optimizer.step(gradients)
    else:
        gradients = buckets.finish(parameters)
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradients)
        parameters = jax.tree.map(lambda p, m: p - RATE * m, parameters, moments)
    mean = group.all_reduce(np.float32(loss), 'avg')
    if group.rank == 0 and step % 10 == 9:
        print(f'step {step + 1}: loss {float(mean):.4f}', flush=True)
group.close()
