# SPDX-License-Identifier: Apache-2.0
"""The list of stored programs: function, arguments and donated arguments of each.

Arguments are trees whose leaves are rules (rules.Rule) or numpy arrays; arrays are stored beside
the program. Making the two digits programs reads back the stored weights where they exist, since a
second training on another machine would give slightly different ones.
"""
import dataclasses
import pathlib
from typing import Any, Callable

import jax
import numpy as np

import digits
import models
from rules import Rule, load_inputs

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Program:
    """One program. check(arguments f32, arguments f64) raises where the inputs are ill-chosen."""
    name: str
    description: str
    function: Callable
    arguments: tuple
    donate: tuple = ()
    check: Callable[[Any, Any], None] = lambda narrow, wide: None

    def arrays(self):
        """The arguments as numpy arrays, same trees."""
        return jax.tree.map(lambda x: x.make() if isinstance(x, Rule) else x, self.arguments)

    def leaves(self):
        return jax.tree.leaves(self.arguments)

    def donated_inputs(self):
        """Numbers of the flat inputs that are donated."""
        numbers, first = [], 0
        for i, argument in enumerate(self.arguments):
            count = len(jax.tree.leaves(argument))
            if i in self.donate:
                numbers += range(first, first + count)
            first += count
        return numbers


def kink_check(values, distance=1e-6):
    """A check that no value before a rectifier is closer to zero than distance.

    Closer ones could fall on either side in another order of summation, and a gradient would jump.
    Exact zeros stay exact in any order (all products are zero) and are allowed.
    """
    def check(narrow, wide):
        for a, b in zip(values(*narrow), values(*wide)):
            gap = np.abs(np.asarray(b, np.float64))
            gap = gap[gap > 0].min()
            error = np.abs(np.asarray(a, np.float64) - np.asarray(b)).max()
            if gap < max(distance, 2 * error):
                raise ValueError(f'a rectifier stands {gap:.2g} from its kink: change a seed')
    return check


def k_means_check(narrow, wide):
    """Cluster choice and number of rounds must not hang on rounding: follows all rounds in f64."""
    points, centres = (np.asarray(a, np.float64) for a in wide)
    previous = None
    while True:
        d = ((points[:, None] - centres[None]) ** 2).sum(-1)
        two = np.sort(d, axis=-1)[:, :2]
        if (two[:, 1] - two[:, 0]).min() < 1e-4:
            raise ValueError('a point stands between two clusters: change the seed')
        cluster = d.argmin(-1)
        if previous is not None and (cluster == previous).all():
            return
        previous = cluster
        centres = np.stack([points[cluster == c].mean(0) for c in range(len(centres))])


def stored(name, structure):
    """Stored inputs of program name in the tree structure, or None if nothing is stored yet."""
    if not (HERE / name / 'case.json').exists():
        return None
    return jax.tree.unflatten(jax.tree.structure(structure), load_inputs(HERE / name))


def digits_programs(retrain=False, report=print):
    """-> (classifier, training step). Needs scikit-learn unless both are stored."""
    w = digits.first_weights()
    images = np.zeros((360, 8, 8, 1), np.float32)
    labels = np.zeros(64, np.int32)
    forward = None if retrain else stored('digits_classifier', (w, images))
    step = None if retrain else stored('digits_train_step', (w, w, images[:64], labels))
    if forward is None or step is None:
        weights, step = digits.train(report)
        forward = (weights, digits.load_data()[2])
    return (
        Program('digits_classifier', 'Convolution network on the 360 test images of '
                'scikit-learn\'s digits, weights trained by digits.py: logits, probabilities, '
                'classes',
                digits.classify, tuple(forward)),
        Program('digits_train_step', 'Training step of the digits classifier in the middle of its '
                'training: cross-entropy, backward pass, momentum SGD; parameters donated',
                digits.train_step, tuple(step), donate=(0, 1),
                check=kink_check(lambda w, v, x, y: digits.pre_activations(w, x))))


def other_programs():
    weights = models.gpt_weights(1000)
    tokens = lambda batch, seed: Rule((batch, models.SEQUENCE), seed, 0, models.VOCABULARY,
                                      'integers', 'i32')
    yield Program('gpt_forward', 'GPT-like transformer, 4 layers, width 256, 8 heads, sequence '
                  '128, vocabulary 256, batch 2: logits', models.gpt_logits,
                  (weights, tokens(2, 1900)))
    yield Program('gpt_train_step', 'Training step of the same transformer, batch 1: loss, '
                  'backward pass, Adam; weights, moments and step count donated',
                  models.gpt_train_step,
                  (models.gpt_weights(2000, scale=0.5), models.gpt_weights(3000, -1e-3, 1e-3),
                   models.gpt_weights(4000, 1e-6, 1e-4), Rule((), 0, 10, 0, 'constant', 'i32'),
                   tokens(1, 2900), tokens(1, 2901)), donate=(0, 1, 2, 3))
    yield Program('residual_block', 'Residual convolution block with batch statistics, stride 2 '
                  'and a projection, NHWC: forward and backward', models.residual_step,
                  models.residual_arguments(),
                  check=kink_check(lambda w, r, x, t: models.residual_block(w, r, x)[2]))
    yield Program('vision_block', 'Vision transformer in bf16: patch embedding, one encoder block '
                  '(width 128, 4 heads, 65 tokens, erf-GELU), class head, batch 2',
                  models.vision_block, models.vision_arguments())
    yield Program('wave_equation', '2-D wave equation on 64 x 64 points, 1,000 leapfrog steps in a '
                  'counted loop', models.wave, models.wave_arguments())
    yield Program('k_means', 'k-means of 1,000 points in 4 dimensions, 12 clusters, until no point '
                  'moves: while loop with a data-dependent end, argmin, segment sums',
                  models.k_means, models.k_means_arguments(), check=k_means_check)
    yield Program('monte_carlo', 'Asian options, 4,096 paths of 32 steps: threefry, inverse error '
                  'function, cumulative sum, sort, percentiles, bootstrap by gather, permutation',
                  models.monte_carlo,
                  (np.array([7, 2024], np.uint32), np.array([100, .03, .25, 1], np.float32),
                   np.array([90, 100, 110], np.float32)))


def all_programs(retrain=False, report=print):
    """All programs in the order of the README."""
    return [*digits_programs(retrain, report), *other_programs()]
