# SPDX-License-Identifier: Apache-2.0
"""The digits classifier: its network, its training step, and the training that gives its weights.

Data: scikit-learn's copy of the UCI digits (1,797 images of 8 x 8 pixels, values 0 to 16, ten
classes), split once with a fixed seed into 1,437 for training and 360 for the test.
"""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rules import Rule

LEARNING_RATE = 0.05
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4
EPOCHS = 60
# Of training.json, chosen by choose_training.py on images held out of the training ones; the seed is
# not chosen.
TRAINING_EPOCHS = 80
TRAINING_SEED = 1
BATCH = 64
# The training step starts here, early in the training, where gradients are still large.
CHECKPOINT_STEP = 40


def load_data():
    """-> train images, train labels, test images, test labels (f32 in [0, 1], NHWC; i32)."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32).reshape(-1, 8, 8, 1)
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels.astype(np.int32), test_size=360, random_state=7, stratify=labels)
    return train_x, train_y, test_x, test_y


def first_weights():
    """He-scaled normal weights from a fixed seed."""
    random = np.random.default_rng(2024)

    def normal(*shape):
        scale = np.sqrt(2.0 / np.prod(shape[:-1]))
        return (random.standard_normal(shape) * scale).astype(np.float32)

    zeros = lambda n: np.zeros(n, np.float32)
    return {'conv1': {'kernel': normal(3, 3, 1, 16), 'bias': zeros(16)},
            'conv2': {'kernel': normal(3, 3, 16, 32), 'bias': zeros(32)},
            'dense': {'kernel': normal(128, 10), 'bias': zeros(10)}}


def pre_activations(weights, images):
    """Values before each rectifier: what decides on which side of a kink an element lies."""
    numbers = ('NHWC', 'HWIO', 'NHWC')
    first = lax.conv_general_dilated(images, weights['conv1']['kernel'], (1, 1), 'SAME',
                                     dimension_numbers=numbers) + weights['conv1']['bias']
    # Pooling right after the first layer: equal maxima there come from equal patches of the image,
    # so it does not matter for the gradient which of them is chosen.
    pooled = lax.reduce_window(jax.nn.relu(first), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1),
                               'VALID')
    second = lax.conv_general_dilated(pooled, weights['conv2']['kernel'], (1, 1), 'SAME',
                                      dimension_numbers=numbers) + weights['conv2']['bias']
    return first, second


def logits(weights, images):
    hidden = jax.nn.relu(pre_activations(weights, images)[1])
    n, h, w, c = hidden.shape
    hidden = hidden.reshape(n, h // 2, 2, w // 2, 2, c).mean((2, 4)).reshape(n, -1)
    return hidden @ weights['dense']['kernel'] + weights['dense']['bias']


def classify(weights, images):
    """The forward program -> (logits, probabilities, predicted class i32)."""
    z = logits(weights, images)
    return z, jax.nn.softmax(z), jnp.argmax(z, -1).astype(jnp.int32)


def loss(weights, images, labels):
    z = jax.nn.log_softmax(logits(weights, images))
    cross_entropy = -jnp.mean(jnp.sum(z * jax.nn.one_hot(labels, 10, dtype=z.dtype), -1))
    return cross_entropy + 0.5 * WEIGHT_DECAY * sum(
        jnp.sum(w * w) for w in jax.tree.leaves(weights) if w.ndim > 1)


def train_step(weights, velocity, images, labels):
    """One step of momentum SGD -> (weights, velocity, loss). The first two are donated."""
    value, gradient = jax.value_and_grad(loss)(weights, images, labels)
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, gradient)
    weights = jax.tree.map(lambda w, v: w - LEARNING_RATE * v, weights, velocity)
    return weights, velocity, value


def train(report=print):
    """Trains from scratch -> (weights, (weights, velocity, images, labels) at CHECKPOINT_STEP)."""
    train_x, train_y, test_x, test_y = load_data()
    random = np.random.default_rng(5)
    step = jax.jit(train_step)
    weights = first_weights()
    velocity = jax.tree.map(np.zeros_like, weights)
    count, checkpoint = 0, None
    for epoch in range(EPOCHS):
        order = random.permutation(len(train_x))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            pick = order[start:start + BATCH]
            if count == CHECKPOINT_STEP:
                checkpoint = jax.tree.map(
                    np.asarray, (weights, velocity, train_x[pick], train_y[pick]))
            weights, velocity, value = step(weights, velocity, train_x[pick], train_y[pick])
            count += 1
        if epoch % 10 == 9:
            report(f'  epoch {epoch + 1}: loss {float(value):.4f}, '
                   f'test accuracy {accuracy(weights, test_x, test_y):.4f}')
    return jax.tree.map(np.asarray, weights), checkpoint


def training():
    """What `hekla train` needs beside the programs -> (training.json as a dictionary, arrays).

    The first weights are uniform with He's variance, made by rules, so that only the images are
    stored; fewer epochs than above, for slow devices.
    """
    train_x, train_y, _, test_y = load_data()
    weights = first_weights()
    names = ['/'.join(key.key for key in path)
             for path, _ in jax.tree_util.tree_flatten_with_path(weights)[0]]
    entries, first = [], []
    for seed, (name, leaf) in enumerate(zip(names, jax.tree.leaves(weights))):
        entries.append(f'weights/{name}')
        if leaf.ndim == 1:
            first.append(Rule(leaf.shape, 0, 0.0, kind='constant').to_json())
            continue
        limit = round(float(np.sqrt(6.0 / np.prod(leaf.shape[:-1]))), 4)
        first.append(Rule(leaf.shape, seed, -limit, limit).to_json())
    for name, leaf in zip(names, jax.tree.leaves(weights)):
        entries.append(f'velocity/{name}')
        first.append(Rule(leaf.shape, 0, 0.0, kind='constant').to_json())
    arrays = {'train_images.npy': np.round(train_x * 16).astype(np.uint8),
              'train_labels.npy': train_y.astype(np.uint8),
              'test_labels.npy': test_y.astype(np.uint8)}
    stored = lambda name: {'file': name, 'dtype': 'ui8', 'shape': list(arrays[name].shape)}
    return {'state': entries, 'first_state': first,
            'examples': [stored('train_images.npy'), stored('train_labels.npy')],
            'scales': [0.0625, 1], 'epochs': TRAINING_EPOCHS, 'seed': TRAINING_SEED,
            'classifier': 'digits_classifier', 'test_labels': [stored('test_labels.npy')],
            'accuracy': 0.98}, arrays


def accuracy(weights, images, labels):
    return float(np.mean(np.asarray(jax.jit(classify)(weights, images)[2]) == labels))
