# SPDX-License-Identifier: Apache-2.0
"""Programs that nobody here wrote: JAX's own harness of primitives, which its wheel contains.

About 5,600 programs without x64, 7,500 with it (--harness-x64). Run is every --harness-share'th one, chosen by its name, so that
the choice is the same on every machine; --harness-share=1 runs all.
"""
import zlib

import jax.numpy as jnp
import numpy as np
import pytest

from compare import check_same

test_harnesses = pytest.importorskip('jax._src.internal_test_util.test_harnesses')

# Primitives that JAX cannot lower for a new platform, with or without the package.
NO_RULE = {'eig', 'schur', 'hessenberg', 'tridiagonal', 'geqp3'}
# Results that are not unique: signs, order and phases of vectors. test_linalg.py checks these.
NOT_UNIQUE = {'eigh', 'svd', 'qr', 'lu', 'geqrf', 'householder_product'}


def chosen(share):
    for harness in test_harnesses.all_harnesses:
        if zlib.crc32(harness.fullname.encode()) % share == 0 and harness.filter('cpu'):
            if harness.group_name not in NO_RULE | NOT_UNIQUE:
                yield harness


def pytest_generate_tests(metafunc):
    share = metafunc.config.getoption('--harness-share')
    harnesses = sorted(chosen(share), key=lambda h: h.fullname)
    metafunc.parametrize('harness', harnesses, ids=[h.fullname for h in harnesses])


def test_same_as_cpu(device, cpu, ours, harness):
    lapack = {'cholesky', 'triangular_solve', 'custom_linear_solve', 'tridiagonal_solve'}
    if not ours and device != cpu and harness.group_name in lapack:
        pytest.skip('a foreign CPU plugin gets calls into LAPACK that it does not have')
    args = harness.dyn_args_maker(np.random.RandomState(0))
    function = harness.dyn_fun
    if harness.group_name == 'cholesky':  # above the diagonal anything may stand
        function = lambda *args: jnp.tril(harness.dyn_fun(*args))
    check_same(device, cpu, function, list(args))
