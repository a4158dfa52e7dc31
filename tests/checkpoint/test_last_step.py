# SPDX-License-Identifier: Apache-2.0
"""What save_async was asked for is there: after join(), and after the program's end, however it ends."""
import textwrap

import numpy as np
import pytest
from processes import run_python

import hekla.checkpoint as checkpoint

STEPS = 12
# Bytes per second: a save takes a minute, unless somebody waits for it.
SLOW = 1


def state_of(step):
    return {'w': np.full((512, 512), step, np.float32), 'step': step}


def expect_steps(path, steps):
    with checkpoint.CheckpointManager(path) as manager:
        assert manager.all_steps() == list(steps)
        for step in steps:
            restored = manager.restore(step)
            assert restored['step'] == step and (restored['w'] == step).all()


def test_every_step_of_a_fast_loop_is_there_after_join(tmp_path):
    with checkpoint.CheckpointManager(tmp_path / 'run', background_bandwidth=SLOW) as manager:
        handles = [manager.save_async(step, state_of(step)) for step in range(STEPS)]
        manager.join()
        assert [handle.stage for handle in handles] == ['committed'] * STEPS
        assert manager.all_steps() == list(range(STEPS))
    expect_steps(tmp_path / 'run', range(STEPS))


def test_who_chose_skip_is_told_beforehand(tmp_path):
    with checkpoint.CheckpointManager(tmp_path / 'run', on_busy='skip', save_interval=2,
                                      background_bandwidth=SLOW) as manager:
        assert manager.should_save(0)
        first = manager.save_async(0, state_of(0))
        assert not manager.should_save(1) and not manager.should_save(2)
        assert manager.save_async(3, state_of(3)).stage == 'skipped'
        first.wait()
        assert manager.should_save(4)
        last = manager.save_async(4, state_of(4))
        manager.save(5, state_of(5))  # waits in any case
        assert last.stage == 'committed'
    expect_steps(tmp_path / 'run', [0, 4, 5])


PROGRAM = '''
    import os, sys, numpy as np
    import hekla.checkpoint as checkpoint
    def state_of(step):
        return {{'w': np.full((512, 512), step, np.float32), 'step': step}}
    def train(path):
        manager = checkpoint.CheckpointManager(path, background_bandwidth={slow})
        for step in range({steps}):
            manager.save_async(step, state_of(step))
'''

ENDS = {
    'of the main module': (0, 'train({path!r})'),
    'by sys.exit': (3, 'train({path!r}); sys.exit(3)'),
    'by an exception': (1, 'train({path!r}); raise RuntimeError("diverged")'),
    # Whoever starts tests in the background has its children ignore the signal.
    'by SIGINT': (-2, '''
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        train({path!r})
        signal.raise_signal(signal.SIGINT)'''),
    # multiprocessing ends its processes without atexit.
    'of a spawned process': (0, '''
        import multiprocessing
        if __name__ == '__main__':
            child = multiprocessing.get_context('spawn').Process(target=train, args=({path!r},))
            child.start()
            child.join()
            sys.exit(child.exitcode)'''),
    'of a forked process': (0, '''
        import multiprocessing
        child = multiprocessing.get_context('fork').Process(target=train, args=({path!r},))
        child.start()
        child.join()
        sys.exit(child.exitcode)'''),
    # The manager's threads are not in the child, whose end is not the end of the training.
    'after a fork': (0, '''
        train({path!r})
        if os.fork() == 0:
            sys.exit()
        assert os.wait()[1] == 0'''),
}


@pytest.mark.parametrize('how', ENDS)
def test_every_step_is_there_after_the_end(build, tmp_path, how):
    path = tmp_path / 'run'
    code, end = ENDS[how]
    program = tmp_path / 'program.py'
    program.write_text(textwrap.dedent(PROGRAM.format(slow=SLOW, steps=STEPS)) +
                       textwrap.dedent(end.format(path=str(path))))
    # As a file: a spawned process imports it.
    ((found, out),) = run_python(build, f'''
    import os, sys
    os.execv(sys.executable, [sys.executable, {str(program)!r}])
    ''')
    assert found == code, out
    expect_steps(path, range(STEPS))


@pytest.mark.parametrize('platform', ['cpu', 'tbb', 'vulkan'])
def test_arrays_of_jax_are_saved_after_the_end(build, tmp_path, platform):
    """Also when JAX was imported, and will be taken down, after the manager was made."""
    path = tmp_path / 'run'
    ((code, out),) = run_python(build, f'''
    import hekla.checkpoint as checkpoint
    manager = checkpoint.CheckpointManager({str(path)!r}, background_bandwidth={SLOW})
    import jax, jax.numpy as jnp
    step = jax.jit(lambda s: {{'w': s['w'] + 1, 'step': s['step'] + 1}}, donate_argnums=0)
    state = {{'w': jnp.zeros((512, 512)), 'step': jnp.zeros((), jnp.int32)}}
    for i in range(4):
        manager.save_async(i, state)
        state = step(state)
    ''', environment={'JAX_PLATFORMS': f'{platform},cpu'})
    assert code == 0, out
    with checkpoint.CheckpointManager(path) as manager:
        assert manager.all_steps() == [0, 1, 2, 3]
        last = manager.restore(like={'w': np.zeros((512, 512), np.float32),
                                     'step': np.zeros((), np.int32)})
        assert last['step'] == 3 and (last['w'] == 3).all()


def test_the_last_step_of_all_ranks_is_there(build, tmp_path):
    path = tmp_path / 'run'
    for code, out in run_python(build, f'''
    import os, numpy as np, hekla.checkpoint as checkpoint
    rank = int(os.environ['RANK'])
    part = lambda step: checkpoint.Part(np.full((256, 512), step, np.float32), (256 * rank, 0),
                                        (512, 512))
    manager = checkpoint.CheckpointManager({str(path)!r}, background_bandwidth={SLOW})
    for step in range({STEPS}):
        manager.save_async(step, {{'w': part(step), 'step': step}})
    ''', 2, {'HEKLA_STORE': f'file:{tmp_path}/store'}):
        assert code == 0, out
    expect_steps(path, range(STEPS))
