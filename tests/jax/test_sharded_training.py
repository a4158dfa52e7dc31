# SPDX-License-Identifier: Apache-2.0
"""Training over eight logical devices gives the losses of training on one: a GPT cut by its batch, by
its features, by both and fully, attention in a ring, a U-Net cut in space, a mixture of experts."""
import pathlib
import subprocess
import sys

import pytest

STEPS = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks' / 'sharded_steps.py'


def test_losses_over_eight_devices(platform, ours):
    if not ours:
        pytest.skip('a foreign plugin has its own way to make devices')
    done = subprocess.run([sys.executable, STEPS, '--platform', platform, '--devices', '8', '--check'],
                          capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert sum(line.startswith(('gpt', 'ring', 'unet', 'moe')) for line in done.stdout.splitlines()) == 7
