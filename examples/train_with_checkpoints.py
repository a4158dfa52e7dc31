# SPDX-License-Identifier: Apache-2.0
"""Trains a classifier of handwritten digits, saving as it goes; killed at any moment it goes on.

    PYTHONPATH=build/python JAX_PLATFORMS=tbb,cpu python examples/train_with_checkpoints.py run
    for r in 0 1 2 3; do RANK=$r WORLD_SIZE=4 HEKLA_STORE=file:store ... run & done; wait
"""
import sys

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

from hekla.checkpoint import CheckpointManager

STEPS, BATCH = 600, 64
images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(labels))
images, labels = (images[order] / 16).astype(np.float32), labels[order].astype(np.int32)


def logits(weights, x):
    return jax.nn.relu(x @ weights['w1'] + weights['b1']) @ weights['w2'] + weights['b2']


def loss(weights, x, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits(weights, x)), y[:, None], 1).mean()


@jax.jit
def step(state, x, y):
    grads = jax.grad(loss)(state['weights'], x, y)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state['momentum'], grads)
    weights = jax.tree.map(lambda w, m: w - 0.1 * m, state['weights'], momentum)
    return {'weights': weights, 'momentum': momentum}


random = np.random.default_rng(1)
weights = {'w1': random.normal(0, 0.2, (64, 128)), 'b1': np.zeros(128),
           'w2': random.normal(0, 0.1, (128, 10)), 'b2': np.zeros(10)}
weights = jax.tree.map(lambda w: jnp.asarray(w, jnp.float32), weights)
state = {'weights': weights, 'momentum': jax.tree.map(jnp.zeros_like, weights)}

with CheckpointManager(sys.argv[1], save_interval=50, max_to_keep=3) as manager:
    first = 0
    if manager.latest_step() is not None:
        first, state = manager.latest_step() + 1, manager.restore(like=state)
        print(f'going on at step {first}')
    for i in range(first, STEPS):
        at = np.random.default_rng(i).integers(360, len(labels), BATCH)
        state = step(state, images[at], labels[at])
        if manager.reached_preemption(i):
            manager.exit_for_preemption(i, state)  # exit code 75: start it again
        if manager.should_save(i):
            manager.save_async(i, state)

right = jnp.argmax(logits(state['weights'], images[:360]), 1) == labels[:360]
print(f'{100 * right.mean():.1f} % of the test images, sum of weights '
      f'{float(sum(w.sum() for w in jax.tree.leaves(state["weights"]))).hex()}')
