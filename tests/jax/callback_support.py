# SPDX-License-Identifier: Apache-2.0
"""What the tests of host callbacks have in common; importing `with_rules` makes a file use it."""
import contextlib

import jax
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def with_rules(shim, platform):
    if platform != 'cpu' and not shim:
        pytest.skip("the rules for callbacks are the package hekla's")
    yield
    # An error of an ordered effect stays with its token, for the next program too.
    with contextlib.suppress(Exception):
        jax.effects_barrier()
    from jax._src import dispatch
    dispatch.runtime_tokens.clear()


def struct(*shape, dtype=np.float32):
    return jax.ShapeDtypeStruct(shape, dtype)
