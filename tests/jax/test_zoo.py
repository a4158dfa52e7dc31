# SPDX-License-Identifier: Apache-2.0
"""The programs of benchmarks/zoo.py, and those of zoo_large.py in small, on the device against jaxlib's CPU.

Tolerance: eight times the distance between jaxlib's f32 result and the same program in f64, at least
1e-5 of the output's size; integers are equal. The programs are chosen so that no integer hangs on
rounding. docs/numerics.md says what else may differ.
"""
import pathlib
import sys

import jax
import numpy as np
import pytest

from compare import expected, wide

# Last, since that folder has a module `programs` too, which is not the one that tests mean.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'))
import zoo  # noqa: E402
import zoo_large  # noqa: E402

ALL = {m.name: (m, m.make) for m in zoo.all()} | {m.name: (m, m.make_small) for m in zoo_large.all()}
QUICK = ('attention', 'segment_sums')


def in_f64(model, arguments, cpu):
    is_float = lambda x: np.issubdtype(x.dtype, np.floating)
    with jax.enable_x64(True):
        wider = jax.tree.map(lambda x: x.astype(np.float64) if is_float(x) else x, arguments)
        return expected(cpu, model.function, wider, 'in f64')


@pytest.mark.parametrize('name', [
    pytest.param(n, marks=pytest.mark.quick) if n in QUICK else n for n in ALL])
def test_same_as_cpu(device, cpu, name):
    model, make = ALL[name]
    arguments = make()
    want = expected(cpu, model.function, arguments)
    exact = in_f64(model, arguments, cpu)
    got = jax.tree.leaves(jax.jit(model.function)(*jax.device_put(arguments, device)))
    assert len(got) == len(want)
    for i, (g, w, e) in enumerate(zip(got, want, exact)):
        g, w = np.asarray(g), np.asarray(w)
        assert g.dtype == w.dtype and g.shape == w.shape
        if not np.issubdtype(w.dtype, np.floating):
            np.testing.assert_array_equal(g, w, err_msg=f'output {i}')
            continue
        w, e = wide(w), np.asarray(e, np.float64)
        size = np.abs(w).max(initial=0)
        # Random numbers have other bits in f64.
        distance = np.abs(w - e).max(initial=0) if name != 'random_numbers' else 0
        assert distance <= 1e-2 * size, 'the program hangs on rounding: it tests nothing'
        np.testing.assert_allclose(wide(g), w, rtol=0, atol=max(8 * distance, 1e-5 * size),
                                   err_msg=f'output {i}')
