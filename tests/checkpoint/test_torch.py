# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch in hekla.checkpoint. Skipped where torch is not installed: it is 900 MB to download,
more than all other packages of the tests together, and so not in tests/requirements.txt."""
import textwrap

import h5py
import numpy as np
import pytest
from processes import run_python

import hekla.checkpoint as checkpoint

torch = pytest.importorskip('torch')


def same(a, b):
    """Bit for bit, of one dtype and shape."""
    if not isinstance(a, torch.Tensor) or a.dtype != b.dtype or a.shape != b.shape:
        return False
    a, b = (x.detach().resolve_conj().resolve_neg().contiguous().reshape(-1) for x in (a, b))
    return a.numel() == 0 or torch.equal(a.view(torch.uint8), b.view(torch.uint8))


DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16,
          torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
          torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e4m3fnuz,
          torch.float8_e5m2, torch.float8_e5m2fnuz]


def random_tensor(dtype, shape, generator):
    """Every pattern of bits may come, NaN too."""
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(torch.bool)
    size = torch.empty((), dtype=dtype).element_size()
    raw = torch.randint(0, 256, (*shape, size), generator=generator).to(torch.uint8)
    return raw.view(dtype).reshape(shape)


@pytest.mark.parametrize('like', [False, True])
def test_every_dtype_and_shape_comes_back_bit_for_bit(tmp_path, like):
    generator = torch.Generator().manual_seed(1)
    state = {str(dtype): {str(i): random_tensor(dtype, shape, generator)
                          for i, shape in enumerate([(), (5,), (0, 3), (70, 50), (2, 1, 3, 1)])}
             for dtype in DTYPES}
    with checkpoint.CheckpointManager(tmp_path / 'run') as manager:
        manager.save(1, state)
        back = manager.restore(like=state) if like else manager.restore()
    assert back.keys() == state.keys()
    for dtype, tensors in state.items():
        for name, tensor in tensors.items():
            assert same(back[dtype][name], tensor), (dtype, name)


def test_views_and_other_memory(tmp_path):
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    state = {
        'base': base, 'transposed': base.t(), 'strided': base[::2, 1::3], 'row': base[2],
        'element': base[3, 5], 'expanded': base[:, :1].expand(4, 3),
        'channels_last': torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        'conjugate': torch.randn(3, 2, dtype=torch.complex64).conj(),
        'negative': torch.randn(3, dtype=torch.complex64).conj().imag,
        'gradient': torch.randn(3, requires_grad=True),
        'result': torch.randn(3, requires_grad=True) * 2,
        'parameter': torch.nn.Parameter(torch.randn(2, 2, dtype=torch.bfloat16)),
        'bf16 column': torch.randn(5, 4).to(torch.bfloat16)[:, 1],
        'read only': torch.from_numpy(np.arange(3)),
    }
    with checkpoint.CheckpointManager(tmp_path / 'run') as manager:
        manager.save(1, state)
        for back in (manager.restore(), manager.restore(like=state)):
            for name, tensor in state.items():
                assert same(back[name], tensor), name
                # Tensors of their own: nothing is shared, everything may be written.
                back[name].detach().zero_()
        assert same(manager.restore()['row'], base[2])
    with h5py.File(tmp_path / 'run' / 'step-000000000001' / 'model.h5') as view:
        np.testing.assert_array_equal(view['transposed'][...], base.t().numpy())
        np.testing.assert_array_equal(view['bf16 column'][...],
                                      state['bf16 column'].float().numpy())


def test_training_goes_on_with_the_same_bits(tmp_path):
    def job():
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16),
                                    torch.nn.ReLU(), torch.nn.Linear(16, 2))
        return model, torch.optim.Adam(model.parameters(), lr=0.01)

    def steps(model, optimizer, first, last):
        for step in range(first, last):
            x = torch.randn(32, 8, generator=torch.Generator().manual_seed(step))
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def state_of(model, optimizer):
        moments = {str(i): {name: value for name, value in entry.items()}
                   for i, entry in optimizer.state_dict()['state'].items()}
        return {'model': dict(model.state_dict()), 'optimizer': moments}

    model, optimizer = job()
    steps(model, optimizer, 0, 5)
    with checkpoint.CheckpointManager(tmp_path, on_busy='wait') as manager:
        manager.save_async(5, state_of(model, optimizer))
        steps(model, optimizer, 5, 10)  # changes every tensor while the save goes on
        manager.join()
        other, other_optimizer = job()
        loaded = manager.restore()
    other.load_state_dict(loaded['model'])
    whole = other_optimizer.state_dict()
    whole['state'] = {int(i): entry for i, entry in loaded['optimizer'].items()}
    other_optimizer.load_state_dict(whole)
    steps(other, other_optimizer, 5, 10)
    for name, tensor in model.state_dict().items():
        assert same(other.state_dict()[name], tensor), name


def test_a_like_of_another_dtype_casts_and_of_numpy_gives_numpy(tmp_path):
    tensor = torch.tensor([1.00390625, -2.5, float('nan'), 3e38])
    with checkpoint.CheckpointManager(tmp_path) as manager:
        manager.save(1, {'x': tensor, 'half': tensor.to(torch.bfloat16)})
        back = manager.restore(like={'x': torch.zeros(4, dtype=torch.bfloat16),
                                     'half': np.zeros(4, np.float32)})
    assert same(back['x'][:2], tensor.to(torch.bfloat16)[:2]) and back['x'][2].isnan()
    assert isinstance(back['half'], np.ndarray) and back['half'].dtype == np.float32
    np.testing.assert_array_equal(back['half'], tensor.to(torch.bfloat16).float().numpy())


def test_a_like_without_values_is_enough(tmp_path):
    """As for a model made on the device meta: shape and dtype alone."""
    with checkpoint.CheckpointManager(tmp_path) as manager:
        manager.save(1, {'w': torch.randn(3, 4).to(torch.bfloat16)})
        back = manager.restore(like={'w': torch.empty(3, 4, dtype=torch.bfloat16, device='meta')})
        assert back['w'].device.type == 'cpu' and same(back['w'], manager.restore()['w'])


def test_what_is_not_dense_memory_is_refused(tmp_path):
    with checkpoint.CheckpointManager(tmp_path) as manager:
        for bad in (torch.eye(3).to_sparse(), torch.empty(2, device='meta'),
                    torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)):
            with pytest.raises(TypeError, match='"x"'):
                manager.save(1, {'x': bad})
        manager.save(1, {'x': torch.ones(1)})


def test_parts_of_four_processes_and_back_by_two(build, tmp_path):
    common = f'''
    import os, torch, hekla.checkpoint as checkpoint
    rank, world = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
    whole = torch.arange(12 * 5, dtype=torch.bfloat16).reshape(12, 5)
    rows = slice(rank * 12 // world, (rank + 1) * 12 // world)
    part = lambda tensor: checkpoint.Part(tensor, (rows.start, 0), (12, 5))
    manager = checkpoint.CheckpointManager({str(tmp_path / 'run')!r})
    '''
    save = common + '''
    manager.save(1, {'x': part(whole[rows]), 'same': torch.ones(3)})
    manager.close()
    '''
    restore = common + '''
    back = manager.restore(like={'x': part(torch.zeros_like(whole[rows])), 'same': torch.zeros(3)})
    assert torch.equal(back['x'].array, whole[rows]) and back['same'].sum() == 3
    manager.close()
    '''
    for program, processes in ((save, 4), (restore, 2)):
        store = {'HEKLA_STORE': f'file:{tmp_path}/store-{processes}'}
        for code, out in run_python(build, textwrap.dedent(program), processes, store):
            assert code == 0, out
