# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin for torch_xla's own tests: each case starts as the first of a run of its file would.

Loaded with `-p torch_cases`. A case draws the same numbers whichever cases ran before it, and on each
device, and counts no launch of what those left pending; default dtype and precision of matrix products
are those that the files' own main asks for.
"""
import contextlib
import random

import pytest


@pytest.fixture(autouse=True)
def _fresh_start():
    import numpy
    import torch
    import torch_xla
    torch.set_default_dtype(torch.float32)
    torch_xla._XLAC._xla_set_mat_mul_precision('highest')
    random.seed(42)
    numpy.random.seed(42)
    torch.manual_seed(42)
    # An earlier case that failed, and was reported, may leave tensors for which there is no value.
    with contextlib.suppress(RuntimeError):
        torch_xla.sync(wait=True)
