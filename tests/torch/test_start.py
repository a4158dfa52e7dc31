# SPDX-License-Identifier: Apache-2.0
"""Loading, devices, what they say of themselves, errors, and processes that end well."""
import gc
import time

import pytest
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

pytestmark = pytest.mark.quick


def test_lists_devices(device, platform):
    assert str(device) == 'xla:0'
    assert torch_xla.real_devices() == [f'{platform.upper()}:0']
    assert torch_xla.device_count() == xr.global_runtime_device_count() == 1
    assert xm.xla_device_hw(device) == platform.upper()
    assert xr.world_size() == 1 and xr.global_ordinal() == 0 and xr.process_count() == 1


def test_describes_devices(device):
    assert isinstance(xr.runtime_device_attributes(str(device)), dict)
    assert len(xr.global_runtime_device_attributes()) == 1


def test_memory_info_follows_allocations(device, platform):
    if platform == 'cpu':
        pytest.skip('upstream raises')
    gc.collect()
    torch_xla.sync(wait=True)
    before = xm.get_memory_info(device)
    x = torch.ones(1 << 18, device=device)
    torch_xla.sync(wait=True)
    held = xm.get_memory_info(device)
    assert before['bytes_limit'] > 0 and held['peak_bytes_used'] >= held['bytes_used']
    assert held['bytes_used'] >= before['bytes_used'] + (1 << 20)
    del x
    torch_xla.sync(wait=True)
    for _ in range(100):  # it is let go where the last launch that names it ends
        if xm.get_memory_info(device)['bytes_used'] < held['bytes_used']:
            break
        time.sleep(0.05)
    assert xm.get_memory_info(device)['bytes_used'] < held['bytes_used']


@pytest.mark.any_platform
def test_package_is_free_of_torch(child):
    done = child("import hekla, sys; print('torch' in sys.modules, 'torch_xla' in sys.modules)")
    assert done.stdout.split() == ['False', 'False'], done.stderr


@pytest.mark.any_platform
def test_other_devices_are_untouched(child):
    done = child('import torch, torch_xla; print(torch.ones(2, device=torch_xla.device()).sum().item(), '
                 'torch_xla.real_devices())', PJRT_DEVICE='CPU', HEKLA_PLUGIN_PATH='/nowhere')
    assert done.stdout.split() == ['2.0', "['CPU:0']"], done.stderr


@pytest.mark.any_platform
def test_says_where_a_missing_library_was_looked_for(child, tmp_path):
    import shutil

    import hekla
    package = shutil.copytree(hekla.__path__[0], tmp_path / 'hekla')
    info = next(package.__class__(hekla.__path__[0]).parent.glob('hekla-*.dist-info'))
    shutil.copytree(info, tmp_path / info.name)
    done = child('import torch_xla; torch_xla.device()', PYTHONPATH=str(tmp_path))
    assert done.returncode != 0
    assert "no Hekla plugin 'tbb'" in done.stderr and str(package / 'lib') in done.stderr, done.stderr


def test_out_of_memory_is_an_exception(device, platform):
    if platform == 'cpu':
        pytest.skip('upstream tries to take the memory')
    x = torch.zeros(1 << 20, device=device)
    with pytest.raises(Exception, match=r'(?i)memory|bytes'):
        (x[:, None].expand(-1, 1 << 20) + 1).cpu()
    # torch_xla tells an error of a launch once more at the next one; the device lives on.
    try:
        (x + 1).sum().item()
    except RuntimeError as error:
        assert 'memory' in str(error)
    assert (x + 1).sum().item() == 1 << 20


def test_process_ends_while_work_is_pending(child):
    done = child('''
import torch, torch_xla
d = torch_xla.device()
x = torch.ones(64, 64, device=d)
for _ in range(20):
    x = x @ x / 64
    torch_xla.sync()
''')
    assert done.returncode == 0, done.stderr
