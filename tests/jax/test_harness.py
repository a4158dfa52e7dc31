# SPDX-License-Identifier: Apache-2.0
"""Programs that nobody here wrote: JAX's own harness of primitives, which its wheel contains.

About 5,600 programs without x64, 7,500 with it (--harness-x64). Run is every --harness-share'th one, chosen by its name, so that
the choice is the same on every machine; --harness-share=1 runs all.
"""
import zlib

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import factors
from compare import check_same, on

test_harnesses = pytest.importorskip('jax._src.internal_test_util.test_harnesses')


def chosen(share):
    for harness in test_harnesses.all_harnesses:
        if zlib.crc32(harness.fullname.encode()) % share == 0 and harness.filter('cpu'):
            yield harness


def pytest_generate_tests(metafunc):
    share = metafunc.config.getoption('--harness-share')
    harnesses = sorted(chosen(share), key=lambda h: h.fullname)
    metafunc.parametrize('harness', harnesses, ids=[h.fullname for h in harnesses])


# Where jaxlib's own f64 is no measure: up to 110 ULP off (docs/accuracy.md).
WIDER = {'atanh': np.arctanh, 'log': np.log, 'log1p': np.log1p, 'pow': np.power, 'tan': np.tan}


def whatever_ties(harness):
    """The harness's function with results that do not depend on the order of what compares as equal."""
    if harness.group_name == 'approx_top_k':
        def by_value(x, *rest):
            values, indices = harness.dyn_fun(x, *rest)
            ordered = jnp.sort(indices, axis=-1)
            return values, jnp.take_along_axis(x, indices, -1), jnp.all(ordered[..., 1:] != ordered[..., :-1])
        return by_value
    if harness.group_name == 'sort' and not harness.params['is_stable']:
        def by_row(*args):
            results = harness.dyn_fun(*args)
            return *results[:harness.params['num_keys']], *lax.sort(
                results, dimension=harness.params['dimension'], num_keys=len(results))
        return by_row
    if harness.group_name == 'cholesky':  # above the diagonal anything may stand
        return lambda *args: jnp.tril(harness.dyn_fun(*args))
    return harness.dyn_fun


def test_same_as_cpu(device, cpu, ours, harness):
    lapack = {'cholesky', 'triangular_solve', 'custom_linear_solve', 'tridiagonal_solve'}
    if not ours and device != cpu and harness.group_name in {*lapack, *factors.OF}:
        pytest.skip('a foreign CPU plugin gets calls into LAPACK that it does not have')
    args = harness.dyn_args_maker(np.random.RandomState(0))
    if harness.group_name in factors.OF:
        # Signs, order and phases of vectors are anybody's choice.
        for each in (cpu, device):
            factors.check(harness, np.asarray(args[0]), on(each, harness.dyn_fun, list(args)))
        return
    check_same(device, cpu, whatever_ties(harness), list(args), wider=WIDER.get(harness.group_name))
