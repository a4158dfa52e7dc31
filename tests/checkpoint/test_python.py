# SPDX-License-Identifier: Apache-2.0
"""hekla.checkpoint: trees of arrays there and back, cut anew, by several processes, preempted."""
import collections
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


def test_an_array_of_jax_may_be_donated_as_soon_as_save_async_returns(build, tmp_path):
    text = f'''
    import jax, jax.numpy as jnp, numpy as np, hekla.checkpoint as checkpoint
    step = jax.jit(lambda s: {{'w': s['w'] + 1, 'n': s['n'] + 1}}, donate_argnums=0)
    make = lambda: {{'w': jnp.arange(1 << 20, dtype=jnp.float32).reshape(1024, 1024), 'n': jnp.zeros(3)}}
    step(make())  # compiled: the next one begins at once
    with checkpoint.CheckpointManager({str(tmp_path / 'run')!r}) as manager:
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
    ((code, out),) = run_python(build, textwrap.dedent(text), environment={})
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
