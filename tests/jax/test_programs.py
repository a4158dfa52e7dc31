# SPDX-License-Identifier: Apache-2.0
"""The real programs of tests/programs, written in JAX, against jaxlib's CPU in one process.

Tolerances are those stored in case.json, whose source stands there.
"""
import json
import warnings

import jax
import numpy as np
import pytest

import programs
from compare import expected, wide

ALL = {p.name: p for p in programs.all_programs()}
QUICK = ('digits_classifier', 'k_means')


@pytest.mark.parametrize('name', [
    pytest.param(n, marks=pytest.mark.quick) if n in QUICK else n for n in ALL])
def test_same_as_cpu(device, cpu, shim, name):
    program = ALL[name]
    case = json.loads((programs.HERE / name / 'case.json').read_text())
    arrays = program.arrays()
    want = expected(cpu, program.function, arrays)
    placed = jax.device_put(arrays, device)
    with warnings.catch_warnings():
        warnings.simplefilter('error' if shim else 'ignore')
        got = jax.tree.leaves(jax.jit(program.function, donate_argnums=program.donate)(*placed))
    assert len(got) == len(want) == len(case['outputs'])
    for i, (g, w, entry) in enumerate(zip(got, want, case['outputs'])):
        g = np.asarray(g)
        assert g.dtype == w.dtype and g.shape == w.shape
        np.testing.assert_allclose(wide(g), wide(w), entry['rtol'], entry['atol'],
                                   err_msg=f'output {i}')
    if shim:
        donated = set(case['donated'])
        for i, leaf in enumerate(jax.tree.leaves(placed)):
            assert leaf.is_deleted() == (i in donated), f'input {i}'


def test_training_learns(device):
    """Thirty steps of the digits classifier on the device bring its loss down."""
    program = ALL['digits_train_step']
    weights, velocity, images, labels = jax.device_put(program.arrays(), device)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        step = jax.jit(program.function, donate_argnums=program.donate)
        losses = []
        for _ in range(30):
            weights, velocity, loss = step(weights, velocity, images, labels)
            losses.append(float(loss))
    assert losses[-1] < 0.5 * losses[0], losses
