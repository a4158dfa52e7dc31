# SPDX-License-Identifier: Apache-2.0
"""Training steps on the device and on torch's CPU: the same losses, the same parameters."""
import models
import pytest
import torch
import torch_xla.debug.metrics as metrics

CPU = torch.device('cpu')
LIMIT = 1e-3  # rounding differs and is amplified from step to step
ROOM = 8      # as in tests/jax/compare.py


def check(name, got, want):
    """Losses and parameters within LIMIT, or no further from those in f64 than ROOM times the CPU's."""
    (losses, model), (want_losses, on_cpu) = got, want
    assert want_losses[-1] != want_losses[0]
    pairs = {'losses': (torch.tensor(losses), torch.tensor(want_losses))}
    for (key, a), b in zip(model.state_dict().items(), on_cpu.state_dict().values()):
        if not key.endswith('running_var'):  # torch_xla's has no factor n/(n-1), on any device
            pairs[key] = a.cpu(), b
    far = [key for key, (a, b) in pairs.items() if not torch.allclose(a, b, rtol=LIMIT, atol=LIMIT)]
    if far:
        truth, wide = models.train(name, CPU, dtype=torch.float64)
        truths = {'losses': torch.tensor(truth), **wide.state_dict()}
        for key in far:
            a, b = pairs[key]
            own = (b - truths[key]).abs().max().item()
            torch.testing.assert_close(a.double(), truths[key].double(), rtol=LIMIT,
                                       atol=LIMIT + ROOM * own, msg=lambda m, key=key: f'{key}: {m}')


@pytest.mark.parametrize('name', [pytest.param(n, marks=[pytest.mark.quick] if n != 'resnet18' else [])
                                  for n in models.CASES])
def test_trains_as_the_cpu_does(name, device):
    check(name, models.train(name, device), models.train(name, CPU))
    assert not [name for name in metrics.counter_names() if name.startswith('aten::') and
                name != 'aten::_local_scalar_dense']
    # The optimizer's state is made in the first step: from the second on nothing is compiled.
    assert metrics.metric_data('CompileTime')[0] <= 3


@pytest.mark.quick
def test_state_is_updated_in_place(device):
    models.train('lstm', device, width=12)  # a program that no other test compiles
    aliases = metrics.metric_data('InputOutputAliasCount')
    assert aliases is not None and aliases[1] > 0


@pytest.mark.quick
def test_what_is_updated_is_not_held_twice(child, platform):
    """Donation: a step over a parameter of 64 MB takes no second copy of it."""
    if platform == 'cpu':
        pytest.skip('upstream has no memory information')
    if platform == 'reference':
        pytest.skip('the evaluator gives every operation memory of its own')
    done = child('''
import torch, torch_xla
import torch_xla.core.xla_model as xm
d = torch_xla.device()
x = torch.ones(1 << 24).to(d)
for step in range(3):
    x.mul_(1.5).add_(float(step + 3))
    torch_xla.sync(wait=True)
print(xm.get_memory_info(d)['peak_bytes_used'], x[7].item())
''')
    peak, value = done.stdout.split()
    assert float(value) == ((1 * 1.5 + 3) * 1.5 + 4) * 1.5 + 5, done.stderr
    assert int(peak) < 1.5 * (1 << 26)
