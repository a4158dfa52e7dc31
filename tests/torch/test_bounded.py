# SPDX-License-Identifier: Apache-2.0
"""Arrays with bounded dynamic dimensions (XLA_EXPERIMENTAL), whose sizes are a launch's results."""
import pytest

pytestmark = pytest.mark.quick

EXPERIMENTAL = 'nonzero:masked_select:masked_scatter'
START = '''
import torch, torch_xla
dispatcher = torch._C._EnablePythonDispatcher()  # without it torch takes no such sizes
device = torch_xla.device()
'''
RESULTS = '''
x = torch.tensor([[1., 0, 3], [0, 0, 6], [7, 8, 0]])
there = x.to(device)
for values in (x, x * 0, x + 10):
    there = values.to(device)
    at = torch.nonzero(there)
    assert isinstance(at.shape[0], torch.SymInt) and str(at.shape[0]) == '<=9', at.shape
    torch_xla.sync()  # the rest takes it as a parameter
    want = torch.nonzero(values)
    assert torch.equal(at.cpu().long(), want), (at, want)
    assert int(at.shape[0]) == len(want)
    assert torch.equal((at + 1).cpu().long(), want + 1)
    assert torch.equal((at * torch.tensor([[2, 3]], device=device)).cpu().long(), want * torch.tensor([[2, 3]]))
    picked = torch.masked_select(there, there > 2)
    assert torch.equal(picked.cpu(), torch.masked_select(values, values > 2))
    assert torch.isclose((picked * 2).sum().cpu(), (values[values > 2] * 2).sum())
    ones = torch.ones(1, device=device).expand(at.shape[0])
    assert ones.cpu().tolist() == [1.0] * len(want)
print('right')
'''


def test_results_have_the_size_of_their_launch(child):
    run = child(START + RESULTS, XLA_EXPERIMENTAL=EXPERIMENTAL)
    assert run.returncode == 0 and run.stdout.endswith('right\n'), run.stdout + run.stderr


MANY = '''
values = torch.arange(24).reshape(2, 3, 4) % 5
there = values.to(device)
at = torch.nonzero(there)
again = at
for i in range(4):
    again = again + 1
    torch_xla.sync()
assert torch.equal(again.cpu().long(), torch.nonzero(values) + 4)
assert torch.equal(at.cpu().long(), torch.nonzero(values))
kept = [torch.nonzero(there == i) for i in range(5)]
torch_xla.sync()
for i, one in enumerate(kept):
    assert torch.equal(one.cpu().long(), torch.nonzero(values == i)), i
print('right')
'''


def test_they_are_parameters_again(child):
    run = child(START + MANY, XLA_EXPERIMENTAL=EXPERIMENTAL)
    assert run.returncode == 0 and run.stdout.endswith('right\n'), run.stdout + run.stderr
