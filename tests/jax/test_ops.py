# SPDX-License-Identifier: Apache-2.0
"""Every operation of op_table.py on the device against jaxlib's CPU."""
import zlib

import jax.numpy as jnp
import numpy as np
import pytest

from compare import check_same, x64
from op_table import CASES

WIDE = ('float64', 'int64', 'uint64', 'complex128')
# About one case in twelve belongs to the quick set, the same ones on every machine.
QUICK_SHARE = 12


def param(case):
    quick = zlib.crc32(case.id.encode()) % QUICK_SHARE == 0
    return pytest.param(case, id=case.id, marks=[pytest.mark.quick] if quick else [])


@pytest.mark.parametrize('case', [param(c) for c in CASES])
def test_same_as_cpu(device, cpu, case, platform):
    if case.options.get('lapack') and device.client.platform != platform:
        pytest.skip('a foreign CPU plugin gets calls into LAPACK that it does not have')
    with x64(case.dtype in WIDE):
        rng = np.random.default_rng(zlib.crc32(case.id.encode()))
        args = [make(rng, jnp.dtype(case.dtype)) for make in case.makers]
        check_same(device, cpu, case.function, args,
                   exact=case.options.get('exact', False))


def test_table_is_broad_and_has_no_doubles():
    assert len({c.id for c in CASES}) == len(CASES) >= 300
