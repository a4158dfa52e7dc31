# SPDX-License-Identifier: Apache-2.0
"""SPMD of PyTorch/XLA over eight logical devices: one process, results and losses beside torch's CPU."""
import json

import pytest

START = '''
import copy, json
import numpy as np
import torch, torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
xr.use_spmd()
count = xr.global_runtime_device_count()
mesh = xs.Mesh(np.arange(count), (2, count // 2), ('x', 'y'))
line = xs.Mesh(np.arange(count), (count, 1), ('fsdp', 'tensor'))
spec = torch_xla._XLAC._get_xla_sharding_spec
torch.manual_seed(0)
outcomes = {'devices': count}


def close(name, given, expected):
    given, expected = torch.as_tensor(given).cpu(), torch.as_tensor(expected)
    outcomes[name] = bool(torch.allclose(given, expected, rtol=1e-4, atol=1e-5))
'''

ARRAYS = '''
a, b = torch.randn(16, 8), torch.randn(8, 12)
on_a, on_b = a.to('xla'), b.to('xla')
xs.mark_sharding(on_a, mesh, ('x', 'y'))
xs.mark_sharding(on_b, mesh, ('y', None))
outcomes['spec'] = spec(on_a) == '{devices=[2,4]0,1,2,3,4,5,6,7}'
close('product', on_a @ on_b, a @ b)
close('gelu', torch.nn.functional.gelu(on_a), torch.nn.functional.gelu(a))
close('sorted', on_a.sort(0).values, a.sort(0).values)
# Shards end in padding where they are uneven.
odd = torch.randn(7, 5)
on_odd = odd.to('xla')
xs.mark_sharding(on_odd, mesh, ('y', None))
close('uneven', (on_odd * 2).sum(0), (odd * 2).sum(0))
close('whole', on_odd, odd)
xs.clear_sharding(on_a)
outcomes['cleared'] = spec(on_a) == ''
close('cleared product', on_a @ on_b, a @ b)
from torch.distributed._tensor import DeviceMesh, Shard, distribute_tensor
t = torch.randn(2 * count, 4)
distributed = distribute_tensor(t, DeviceMesh('xla', list(range(count))), [Shard(0)])
close('DTensor', distributed.global_tensor * 2, t * 2)
outcomes['DTensor spec'] = spec(distributed.global_tensor).startswith('{devices=[8,1]')
'''

TRAINING = '''
from torch_xla.experimental.spmd_fully_sharded_data_parallel import SpmdFullyShardedDataParallel


def train(name, wrap, on, specs):
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 8))
    peer = copy.deepcopy(model)
    model = wrap(model.to('xla'))
    for parameter, cut in zip(model.parameters(), specs):
        xs.mark_sharding(parameter, on, cut)
    optimizers = [torch.optim.AdamW(m.parameters(), 1e-2) for m in (model, peer)]
    losses = []
    for step in range(4):
        x, y = torch.randn(16, 16), torch.randn(16, 8)
        on_x, on_y = x.to('xla'), y.to('xla')
        xs.mark_sharding(on_x, on, (on.axis_names[0], None))
        for m, o, p, q in ((model, optimizers[0], on_x, on_y), (peer, optimizers[1], x, y)):
            loss = ((m(p) - q) ** 2).mean()
            o.zero_grad()
            loss.backward()
            o.step()
            torch_xla.sync()
            losses.append(loss.detach().cpu())
    close(name, torch.stack(losses[0::2]), torch.stack(losses[1::2]))


train('data and tensor parallel', lambda m: m, mesh, [('y', None), ('y',), (None,), (None,), (None, 'y'), (None,)])
train('data parallel', lambda m: m, line, [])
xs.set_global_mesh(line)
train('FSDPv2', SpmdFullyShardedDataParallel, line, [])
'''


@pytest.mark.parametrize('programs', [pytest.param(ARRAYS, id='arrays', marks=pytest.mark.quick),
                                      pytest.param(TRAINING, id='training')])
def test_programs_over_eight_devices(child, platform, programs):
    if platform == 'cpu':
        pytest.skip("torch_xla's own device has its own way to make devices")
    done = child(START + programs + '\nprint(json.dumps(outcomes))', HEKLA_NUM_DEVICES='8')
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = json.loads(done.stdout.strip().split('\n')[-1])
    assert outcomes.pop('devices') == 8
    assert len(outcomes) == (10 if programs is ARRAYS else 3)
    assert all(outcomes.values()), outcomes
