# SPDX-License-Identifier: Apache-2.0
"""What TORCH_TEST_DEVICES names: torch_xla's own choice of torch's device tests, on a device of ours too.

torch_xla's file knows TPUs and its CPU device; our devices are asked for what its CPU device is.
"""
import pytorch_test_base
import torch_xla
import torch_xla.core.xla_model as xm

_chosen = pytorch_test_base.DISABLED_TORCH_TESTS
_chosen.setdefault(xm.xla_device_hw(torch_xla.device()), _chosen['CPU'])
TEST_CLASS = pytorch_test_base.TEST_CLASS
