# SPDX-License-Identifier: Apache-2.0
"""How long `hekla train-demo` trains: chosen without a look at the test split.

    python tests/programs/choose_training.py          # about 3 minutes of one core
    python tests/programs/choose_training.py --test   # then, once: what that reaches on the test split

The training images are cut three times, by lot and by class, into four fifths to train on and a fifth
to validate with. Trainings of each cut with eight seeds of the shuffle begin with the first weights of
training.json. The number of epochs with the best mean accuracy on the held-out fifths is taken, of
those within 0.1 % of it the least. The seed is not chosen: it is 1.
"""
import argparse

import jax
import numpy as np

import digits
from rules import Rule

SEEDS, SPLITS, EPOCHS = range(1, 9), range(3), (10, 20, 30, 40, 60, 80)
GOOD_ENOUGH = 0.001
U64 = np.uint64
STEP = jax.jit(digits.train_step)


def splitmix64(z):
    """As tools/train/training.cc has it."""
    with np.errstate(over='ignore'):
        z = np.asarray(z, U64) + U64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> U64(30))) * U64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> U64(27))) * U64(0x94D049BB133111EB)
        return z ^ (z >> U64(31))


def shuffled(n, seed, epoch):
    with np.errstate(over='ignore'):
        keys = splitmix64(splitmix64(seed) + U64(epoch * n) + np.arange(n, dtype=U64))
    return np.lexsort((np.arange(n), keys))


def first_state():
    """Of training.json -> (weights, velocity) as the step takes them."""
    entries = [Rule(**{**entry['rule'], 'shape': tuple(entry['rule']['shape'])}).make()
               for entry in digits.training()[0]['first_state']]
    structure = jax.tree.structure(digits.first_weights())
    half = len(entries) // 2
    return structure.unflatten(entries[:half]), structure.unflatten(entries[half:])


def curve(train_x, train_y, held_x, held_y, seed, epochs=EPOCHS):
    """{epochs: accuracy on the held-out images} of one training."""
    state, found = first_state(), {}
    n, size = len(train_x), digits.BATCH
    steps = n // size
    for epoch in range(max(epochs)):
        order = shuffled(n, seed, epoch)[:steps * size].reshape(steps, size)
        for pick in order:
            state = STEP(*state, train_x[pick], train_y[pick])[:2]
        if epoch + 1 in epochs:
            found[epoch + 1] = digits.accuracy(state[0], held_x, held_y)
    return found


def choose(train_x, train_y):
    from sklearn.model_selection import train_test_split
    curves = []
    for split in SPLITS:
        parts = train_test_split(train_x, train_y, test_size=0.2, random_state=split,
                                 stratify=train_y)
        curves += [curve(parts[0], parts[2], parts[1], parts[3], seed) for seed in SEEDS]
    means = {}
    for epochs in EPOCHS:
        values = np.array([found[epochs] for found in curves])
        means[epochs] = values.mean()
        print(f'{epochs:3d} epochs: validation {100 * values.mean():.2f} % '
              f'({100 * values.min():.2f} to {100 * values.max():.2f})', flush=True)
    best = max(means.values())
    return min(epochs for epochs in EPOCHS if means[epochs] >= best - GOOD_ENOUGH)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--test', action='store_true', help='what the stored choice reaches')
    arguments = parser.parse_args()
    train_x, train_y, test_x, test_y = digits.load_data()
    if arguments.test:
        found = curve(train_x, train_y, test_x, test_y, digits.TRAINING_SEED,
                      (digits.TRAINING_EPOCHS,))
        print(f'test {100 * found[digits.TRAINING_EPOCHS]:.2f} %')
        return
    print(f'taken: {choose(train_x, train_y)} epochs')


if __name__ == '__main__':
    main()
