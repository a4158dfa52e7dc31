# SPDX-License-Identifier: Apache-2.0
"""hekla.checkpoint: trees of arrays there and back, cut anew, by several processes, preempted."""
import collections
import os
import subprocess
import sys
import textwrap

import h5py
import ml_dtypes
import numpy as np
import pytest
from processes import run_python

import hekla.checkpoint as checkpoint

Pair = collections.namedtuple('Pair', 'weight bias')


def state():
    rng = np.random.default_rng(5)
    return {
        'layers': [Pair(rng.normal(size=(40, 30)), rng.normal(size=30).astype(np.float32)),
                   Pair(np.asfortranarray(rng.normal(size=(3, 4))), np.zeros((0, 2), np.int16))],
        'moments': {'a/b': rng.normal(size=(7,)).astype(ml_dtypes.bfloat16), '..': np.array(True),
                    '': np.arange(-8, 8).astype(ml_dtypes.int4)},
        'large': rng.normal(size=(300, 1000)).astype(np.float32),
        'values': (None, 3, -2.5, float('inf'), 'ö\n', b'\x00\xff', True, []),
        'scalar': np.int64(-5),
    }


def same(a, b):
    if isinstance(b, np.ndarray) and b.dtype == ml_dtypes.int4:  # the upper four bits say nothing
        a, b = a.astype(np.int8), b.astype(np.int8)
    if isinstance(b, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in b)
    if isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def test_a_tree_comes_back_bit_for_bit(tmp_path):
    with checkpoint.CheckpointManager(tmp_path / 'run') as manager:
        manager.save(3, state(), metrics={'loss': 0.25})
        assert same(manager.restore(like=state()), state())
        plain = manager.restore(3)
        assert same(plain['values'], state()['values'])
        assert same(plain['layers'][0]['weight'], state()['layers'][0].weight)
    with h5py.File(tmp_path / 'run' / 'step-000000000003' / 'model.h5') as view:
        np.testing.assert_array_equal(view['layers/0/weight'][...],
                                      state()['layers'][0].weight)


def test_what_changes_after_save_async_is_not_saved(tmp_path):
    with checkpoint.CheckpointManager(tmp_path, on_busy='wait') as manager:
        array = np.arange(1 << 20, dtype=np.int32)
        for step in range(3):
            array[:] = step
            handle = manager.save_async(step, {'x': array})
            array[:] = -1
            assert handle.step == step
        manager.join()
        assert handle.stage == 'committed' and handle.progress() == (4 << 20, 4 << 20)
        assert [int(manager.restore(step)['x'].max()) for step in manager.all_steps()] == [0, 1, 2]


def test_frozen_tensors_are_linked_while_they_stay(tmp_path):
    rng = np.random.default_rng(1)
    tree = {'base': {'w': rng.normal(size=(300, 300)), 'b': rng.normal(size=5)},
            'lora': rng.normal(size=(300, 4))}
    kept = []
    with checkpoint.CheckpointManager(tmp_path / 'run', max_to_keep=2, frozen=['base/*']) as manager:
        for step in range(4):
            tree['lora'] = tree['lora'] + 1
            if step == 3:
                tree['base']['w'][7, 7] = 0
            manager.save_async(step, tree).wait()
            kept.append({name: array.copy() for name, array in
                         (('base/w', tree['base']['w']), ('base/b', tree['base']['b']),
                          ('lora', tree['lora']))})
        manager.join()
        assert manager.all_steps() == [2, 3]
        assert same(manager.restore(2)['base']['w'], kept[2]['base/w'])
    moved = tmp_path / 'moved'
    (tmp_path / 'run').rename(moved)
    files = [moved / f'step-{step:012}' / 'data' / 'frozen-00000.h5' for step in (2, 3)]
    assert [os.stat(file).st_nlink for file in files] == [1, 1]  # steps 0 and 1 are gone
    assert 'frozen-00000.h5\t' in (files[0].parent.parent / 'COMMIT').read_text()
    for step in (2, 3):
        with h5py.File(moved / f'step-{step:012}' / 'model.h5') as view:
            for name, value in kept[step].items():
                np.testing.assert_array_equal(view[name][...], value)


def compressible():
    rng = np.random.default_rng(2)

    def halves(*shape):
        return rng.normal(size=shape).astype(ml_dtypes.bfloat16).astype(np.float32)
    return {'rows': halves(700, 1000), 'deep': halves(3, 5, 90001), 'one': halves(1 << 18),
            'half': rng.normal(size=(900, 401)).astype(ml_dtypes.bfloat16),
            'complex': (halves(300, 100) * 1j + 1).astype(np.complex64),
            'flags': rng.integers(0, 2, (1 << 17) + 1).astype(bool),
            'nibbles': rng.integers(-2, 2, (601, 1003)).astype(ml_dtypes.int4),
            'noise': rng.integers(0, 256, 1 << 20).astype(np.uint8), 'small': halves(10)}


READ_ALL = """
    import sys, h5py, numpy as np
    with h5py.File(sys.argv[1]) as view:
        np.savez(sys.argv[2], **{name: data[...] for name, data in view.items()
                                 if 'logical_shape' not in data.attrs})
"""


def test_compressed_tensors_are_read_with_the_plugin(tmp_path, build):
    tree = compressible()
    with checkpoint.CheckpointManager(tmp_path / 'run',
                                      compress={'one': 'none', '*': 'zstd'}) as manager:
        manager.save(1, tree)
        assert same(manager.restore(1), tree)
        # Cut otherwise than it was saved.
        like = {'rows': checkpoint.Part(np.zeros((33, 1000), np.float32), (300, 0), (700, 1000))}
        part = manager.restore(1, like=like, strict=False)['rows'].array
        np.testing.assert_array_equal(part, tree['rows'][300:333])
    step = tmp_path / 'run' / 'step-000000000001'
    packed = step / 'data' / 'packed-00000.h5'
    assert packed.stat().st_size < 0.7 * sum(tree[name].nbytes for name in tree if name != 'one')
    with h5py.File(packed) as file:
        assert 'one' not in file['state'] and 'small' not in file['state']
        creation = file['state/rows/p0'].id.get_create_plist()
        assert [creation.get_filter(i)[0] for i in range(creation.get_nfilters())] == [2, 32015]
    (tmp_path / 'run').rename(tmp_path / 'moved')
    view = tmp_path / 'moved' / step.name / 'model.h5'
    out = tmp_path / 'out.npz'

    def read(plugins):
        return subprocess.run(
            [sys.executable, '-c', textwrap.dedent(READ_ALL), view, out], capture_output=True,
            text=True, timeout=120, env={**os.environ, 'HDF5_PLUGIN_PATH': str(plugins)})
    without = read(tmp_path)
    assert without.returncode != 0 and 'OSError' in without.stderr, without.stderr
    # Words of HDF5 1.14 and of 1.10.
    assert 'HDF5_PLUGIN_PATH' in without.stderr or 'filter' in without.stderr, without.stderr
    result = read(build / 'lib' / 'hekla' / 'hdf5_plugins')
    assert result.returncode == 0, result.stderr
    found = np.load(out)
    for name, value in tree.items():
        if name != 'nibbles':
            np.testing.assert_array_equal(found[name], value.astype(found[name].dtype))


def test_tools_read_compressed_steps(tmp_path, build):
    tree = {name: array for name, array in compressible().items() if name != 'nibbles'}
    for root, compress in ((tmp_path / 'a', 'auto'), (tmp_path / 'b', None)):
        with checkpoint.CheckpointManager(root, compress=compress) as manager:
            manager.save(1, tree)

    def hekla(*arguments, code=0):
        result = subprocess.run([build / 'bin' / 'hekla', 'ckpt', *map(str, arguments)],
                                capture_output=True, text=True, timeout=120)
        assert result.returncode == code, (result.stdout, result.stderr)
        return result.stdout
    step = tmp_path / 'a' / 'step-000000000001'
    hekla('verify', step)
    hekla('diff', step, tmp_path / 'b' / 'step-000000000001')
    hekla('consolidate', step, tmp_path / 'plain.h5')
    with h5py.File(tmp_path / 'plain.h5') as plain:
        np.testing.assert_array_equal(plain['rows'][...], tree['rows'])
    hekla('reshard', step, tmp_path / 'c', '--mesh', '(x:4)', '--spec', '(x)')
    with h5py.File(tmp_path / 'c' / step.name / 'model.h5') as view:
        np.testing.assert_array_equal(view['rows'][...], tree['rows'])
        np.testing.assert_array_equal(view['deep'][...], tree['deep'])
    # What index and view were made from is in the shards.
    (step / 'index.h5').write_bytes(b'')
    hekla('verify', step, code=2)
    hekla('repair', tmp_path / 'a')
    hekla('verify', step)


def test_checks_are_asked_for_by_name(tmp_path):
    with checkpoint.CheckpointManager(tmp_path, verify_after_write='all',
                                      check_replicas='sample') as manager:
        manager.save(1, state())
        assert same(manager.restore(like=state()), state())
    with pytest.raises(ValueError, match='none, sample or all'):
        checkpoint.CheckpointManager(tmp_path, verify_after_write='some')


def test_priority_is_chosen_by_name(tmp_path):
    for priority in ('background', 'normal'):
        with checkpoint.CheckpointManager(tmp_path / priority, save_priority=priority) as manager:
            manager.save_async(1, state()).wait()
            assert same(manager.restore(like=state()), state())
    with pytest.raises(ValueError, match='background or normal'):
        checkpoint.CheckpointManager(tmp_path, save_priority='idle')


def test_tiles(tmp_path):
    array = np.arange(4096 * 2048, dtype=np.float32).reshape(4096, 2048)
    with checkpoint.CheckpointManager(tmp_path, tile_hint={'w': (0, 1024)}) as manager:
        manager.save(1, {'w': array})
        assert same(manager.restore(1)['w'], array)
    with h5py.File(tmp_path / 'step-000000000001' / 'data' / 'shard-00000.h5') as file:
        assert [file['state/w'][piece].shape for piece in ('p0', 'p1')] == [(4096, 1024)] * 2


def test_retention_pins_and_steps(tmp_path):
    with checkpoint.CheckpointManager(tmp_path, save_interval=2, max_to_keep=2) as manager:
        assert manager.latest_step() is None
        assert [manager.should_save(step) for step in (2, 3, 4)] == [True, False, True]
        manager.save(1, {'x': np.ones(1)})
        manager.pin(1)
        for step in (2, 3, 4):
            manager.save(step, {'x': np.ones(1)})
        manager.join()
        assert manager.all_steps() == [1, 3, 4] and manager.latest_step() == 4


@pytest.mark.parametrize('bad, error, words', [
    ({'f': lambda: 0}, TypeError, 'at "f" is a builtins.function'),
    ({'o': [np.array(['text'])]}, TypeError, '"o/0" has the dtype'),
    ({3: np.ones(1)}, TypeError, 'keys of a state are text'),
    ({'n': 1 << 70}, OverflowError, '"n"'),
    (np.ones(3), TypeError, 'a state is a dict'),
    ({'p': checkpoint.Part(np.ones(3), (2,), (4,))}, ValueError, '"p"'),
])
def test_what_cannot_be_kept_is_refused_at_once(tmp_path, bad, error, words):
    with checkpoint.CheckpointManager(tmp_path) as manager:
        with pytest.raises(error, match=None) as raised:
            manager.save_async(1, bad)
        assert words in str(raised.value)
        manager.save(1, {'x': np.ones(1)})


def test_a_state_that_does_not_fit_is_named(tmp_path):
    with checkpoint.CheckpointManager(tmp_path) as manager:
        manager.save(1, {'x': np.ones((2, 3)), 'y': np.ones(2, np.float32)})
        with pytest.raises(checkpoint.CheckpointError, match='z'):
            manager.restore(like={'x': np.ones((2, 3)), 'z': np.ones(2)})
        kept = np.full(2, 7.0)
        loaded, report = manager.restore(like={'x': np.ones((2, 3)), 'z': kept}, strict=False,
                                         with_report=True)
        assert loaded['z'] is kept and report.missing == ['z'] and report.unexpected == ['y']
        cast = manager.restore(like={'x': np.ones((2, 3), ml_dtypes.bfloat16),
                                     'y': np.ones(2, np.float32)})
        assert cast['x'].dtype == ml_dtypes.bfloat16
        with pytest.raises(FileNotFoundError):
            manager.restore(9)


def test_damage_is_named_and_the_step_before_is_taken(tmp_path):
    with checkpoint.CheckpointManager(tmp_path) as manager:
        for step in (1, 2):
            manager.save(step, {'x': np.full(100_000, step)})
        shard = next((tmp_path / 'step-000000000002' / 'data').iterdir())
        data = bytearray(shard.read_bytes())
        data[300_000] ^= 1
        shard.write_bytes(data)
        with pytest.raises(checkpoint.CorruptError, match='shard-00000'):
            manager.restore(2)
        assert manager.restore()['x'][0] == 1


SHARDED = '''
    import os, sys, numpy as np, jax, jax.numpy as jnp, hekla.checkpoint as checkpoint
    from jax.sharding import NamedSharding, PartitionSpec as P
    devices = jax.devices()
    def put(array, axes, spec):
        mesh = jax.make_mesh(tuple(axes.values()), tuple(axes), devices=devices)
        return jax.device_put(array, NamedSharding(mesh, P(*spec)))
    w, b = np.arange(48 * 40, dtype=np.float32).reshape(48, 40), np.arange(16, dtype=np.int32)
    key = jax.random.key(7)
'''


def test_sharded_arrays_of_jax_come_back_on_another_mesh(build, tmp_path):
    save = SHARDED + '''
    state = {'w': put(w, {'x': 4, 'y': 2}, ('x', 'y')), 'b': put(b, {'x': 8}, ()), 'key': key}
    with checkpoint.CheckpointManager(sys.argv[1]) as manager:
        step = jax.jit(lambda s: {**s, 'w': s['w'] + 1}, donate_argnums=0)
        handle = manager.save_async(5, state)
        for _ in range(3):
            state = step(state)
        handle.wait()
    '''
    restore = SHARDED + '''
    like = {'w': put(0 * w, {'x': 2}, (None, 'x')), 'b': put(0 * b, {'x': 2}, ('x',)),
            'key': jax.random.key(0)}
    with checkpoint.CheckpointManager(sys.argv[1]) as manager:
        state = manager.restore(like=like)
        assert state['w'].sharding == like['w'].sharding and state['b'].sharding == like['b'].sharding
        np.testing.assert_array_equal(np.asarray(state['w']), w)
        np.testing.assert_array_equal(np.asarray(state['b']), b)
        assert (jax.random.key_data(state['key']) == jax.random.key_data(key)).all()
        whole = manager.restore()
        np.testing.assert_array_equal(np.asarray(whole['w']), w)
    '''
    for program, devices in ((save, 8), (restore, 2)):
        text = textwrap.dedent(program).replace('sys.argv[1]', repr(str(tmp_path / 'run')))
        ((code, out),) = run_python(
            build, text, environment={'XLA_FLAGS': f'--xla_force_host_platform_device_count={devices}'})
        assert code == 0, out


@pytest.mark.parametrize('platform', ['cpu', 'reference', 'tbb', 'vulkan'])
def test_an_array_of_jax_may_be_donated_as_soon_as_save_async_returns(build, tmp_path, platform):
    text = f'''
    import jax, jax.numpy as jnp, numpy as np, hekla.checkpoint as checkpoint
    step = jax.jit(lambda s: {{'w': s['w'] + 1, 'n': s['n'] + 1}}, donate_argnums=0)
    make = lambda: {{'w': jnp.arange(1 << 20, dtype=jnp.float32).reshape(1024, 1024), 'n': jnp.zeros(3)}}
    step(make())  # compiled: the next one begins at once
    assert jax.devices()[0].platform == {platform!r}
    # So slow that the arrays are donated before they are read.
    with checkpoint.CheckpointManager({str(tmp_path / 'run')!r}, background_bandwidth=1) as manager:
        state = make()
        handle = manager.save_async(1, state)
        for _ in range(5):
            state = step(state)
        handle.wait()
        assert float(state['n'][0]) == 5 and float(state['w'][0, 0]) == 5
        saved = manager.restore(1)
        np.testing.assert_array_equal(np.asarray(saved['w']), np.asarray(make()['w']))
        np.testing.assert_array_equal(np.asarray(saved['n']), np.zeros(3))
    '''
    ((code, out),) = run_python(build, textwrap.dedent(text),
                                 environment={'JAX_PLATFORMS': f'{platform},cpu'})
    assert code == 0, out


def test_four_processes_save_and_two_restore(build, tmp_path):
    common = f'''
    import os, numpy as np, hekla.checkpoint as checkpoint
    rank, world = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
    whole = np.arange(12 * 5, dtype=np.int64).reshape(12, 5)
    rows = 12 // world
    part = lambda array: checkpoint.Part(array, (rank * rows, 0), whole.shape)
    manager = checkpoint.CheckpointManager({str(tmp_path / 'run')!r})
    '''
    save = common + '''
    manager.save(1, {'x': part(whole[rank * rows:(rank + 1) * rows]), 'same': np.ones(3), 'n': 4})
    manager.close()
    '''
    restore = common + '''
    state = manager.restore(like={'x': part(np.zeros((rows, 5), np.int64)), 'same': np.zeros(3),
                                  'n': 0})
    np.testing.assert_array_equal(state['x'].array, whole[rank * rows:(rank + 1) * rows])
    assert state['same'].sum() == 3 and state['n'] == 4
    manager.close()
    '''
    for program, processes in ((save, 4), (restore, 2)):
        store = {'HEKLA_STORE': f'file:{tmp_path}/store-{processes}'}
        for code, out in run_python(build, program, processes, store):
            assert code == 0, out


def test_a_step_is_read_in_parts_without_a_manager(tmp_path):
    root = tmp_path / 'run'
    rng = np.random.default_rng(3)
    saved = {'layer': {'w': rng.normal(size=(600, 500)), 'i4': np.arange(-8, 8).astype(ml_dtypes.int4)},
             'scalar': np.float32(2.5), 'empty': np.zeros((0, 3), np.int8), 'n': 7, 'who': 'ö'}
    with checkpoint.CheckpointManager(root) as manager:
        manager.save(4, {'layer': {}})
        manager.save(5, saved, metrics={'loss': 0.5})
    with checkpoint.open_step(root) as step:
        assert (step.step, step.metrics, step.values) == (5, {'loss': 0.5}, {'n': 7, 'who': 'ö'})
        assert step.names() == ['empty', 'layer/i4', 'layer/w', 'scalar'] == list(step)
        w = step['layer/w']
        assert (w.shape, w.dtype, len(w), w.ndim) == ((600, 500), np.float64, 600, 2)
        assert step.bytes_read < w.size * 8 / 10  # commit record and index
        whole = saved['layer']['w']
        for index in (np.s_[3], np.s_[-1, 2:4], np.s_[..., 7], np.s_[5:5], np.s_[10:20, 30:], np.s_[:]):
            np.testing.assert_array_equal(w[index], whole[index])
        assert w[2, 3].shape == () and step['scalar'][...] == 2.5 and step['scalar'][()] == 2.5
        np.testing.assert_array_equal(np.asarray(w), whole)
        parts = step.read_all({'layer/w': ((1, 2), (3, 4)), 'layer/i4': None, 'empty': None})
        np.testing.assert_array_equal(parts['layer/w'], whole[1:4, 2:6])
        assert same(parts['layer/i4'], saved['layer']['i4']) and parts['empty'].shape == (0, 3)
        for wrong in (np.s_[600], np.s_[::2], np.s_[1, 2, 3]):
            with pytest.raises(IndexError, match='layer/w|dimension'):
                w[wrong]
        with pytest.raises(ValueError, match='not in "layer/w"'):
            step.read('layer/w', ((599, 0), (2, 1)))
        assert 'v' not in step
        with pytest.raises(KeyError):
            step['v']
    with pytest.raises(ValueError, match='closed'):
        w[0]
    # As a folder, as a number, in one expression.
    assert checkpoint.open_step(root / 'step-000000000005')['scalar'][()] == 2.5
    assert checkpoint.open_step(root, 4).names() == []
    with pytest.raises(FileNotFoundError):
        checkpoint.open_step(root, 9)
    with pytest.raises(ValueError, match='verify'):
        checkpoint.open_step(root, verify='some')


def test_damage_shows_when_it_is_read(tmp_path):
    with checkpoint.CheckpointManager(tmp_path) as manager:
        manager.save(1, {'x': np.arange(1 << 19), 'y': np.arange(1 << 19)})
    shard = next((tmp_path / 'step-000000000001' / 'data').iterdir())
    data = bytearray(shard.read_bytes())
    data[data.index(np.arange(1 << 19).tobytes()) + 10] ^= 1  # the first tensor's first block
    shard.write_bytes(data)
    with checkpoint.open_step(tmp_path) as step:
        np.testing.assert_array_equal(step['y'][:], np.arange(1 << 19))
        assert step['x'][1 << 18] == 1 << 18
        with pytest.raises(checkpoint.CorruptError, match='shard-00000'):
            step['x'][0]
    with pytest.raises(checkpoint.CorruptError):
        checkpoint.open_step(tmp_path, verify='full')


def test_a_step_that_is_read_stays(tmp_path):
    with checkpoint.CheckpointManager(tmp_path, max_to_keep=1) as manager:
        manager.save(1, {'x': np.arange(3)})
        tensor = checkpoint.open_step(tmp_path)['x']
        manager.save(2, {'x': np.arange(3)})
        manager.join()
        assert manager.all_steps() == [1, 2] and tensor[2] == 2
        del tensor
        manager.save(3, {'x': np.arange(3)})
        manager.join()
        assert manager.all_steps() == [3]
