# SPDX-License-Identifier: Apache-2.0
"""hekla.checkpoint over a long run and through many ends: 500 saves, SIGTERM at steps drawn by lot."""
import json
import os
import pathlib
import random
import tempfile

import pytest
from processes import run_python

import hekla.checkpoint as checkpoint

MANY_SAVES = '''
    import ctypes, gc, json, os, sys, numpy as np, hekla.checkpoint as checkpoint
    from hekla.checkpoint import _manager

    class Mallinfo2(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in (
            'arena', 'ordblks', 'smblks', 'hblks', 'hblkhd', 'usmblks', 'fsmblks', 'uordblks',
            'fordblks', 'keepcost')]
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Mallinfo2

    def footprint():
        gc.collect()
        info = mallinfo2()
        mapped = int(open('/proc/self/statm').read().split()[0]) * os.sysconf('SC_PAGESIZE')
        return dict(heap=info.uordblks + info.hblkhd, blocks=sys.getallocatedblocks(),
                    other_pages=mapped - info.arena - info.hblkhd,
                    descriptors=len(os.listdir('/proc/self/fd')),
                    threads=len(os.listdir('/proc/self/task')),
                    objects=len(gc.get_objects()), kept_arrays=len(_manager._sources))

    with checkpoint.CheckpointManager(PATH, max_to_keep=2, on_busy='wait',
                                      staging_bytes=4 << 20) as manager:
        measured = []
        for step in range(1, 661):
            state = {'layers': [{'bias': np.full(50, step + i, np.float32)} for i in range(10)],
                     'large': np.full((100, 500), step, np.float32), 'step': step}
            if step % 3:
                manager.save_async(step, state)
            else:
                manager.save(step, state)
            if step % 20 == 0:
                manager.join()
                assert manager.restore(like=state)['step'] == step
                assert int(manager.restore()['large'][99, 499]) == step
            if step in (160, 410, 660):  # after the first ones pools and caches have their sizes
                del state
                measured.append(footprint())
    print(json.dumps(measured))
'''


@pytest.fixture
def quick_folder(tmp_path):
    """In memory where that can be: thousands of fsyncs say nothing about Python."""
    if not os.access('/dev/shm', os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir='/dev/shm', prefix='hekla-test-') as folder:
        yield pathlib.Path(folder)


def test_500_saves_leave_memory_and_descriptors_as_they_were(build, quick_folder):
    root = quick_folder / 'run'
    # One arena: mallinfo2 counts its pages and what mmap gave malloc, not the other arenas. No caches
    # of threads, which count as used and fill for long.
    ((code, out),) = run_python(build, MANY_SAVES.replace('PATH', repr(str(root))), environment={
        'MALLOC_ARENA_MAX': '1', 'GLIBC_TUNABLES': 'glibc.malloc.tcache_count=0'})
    assert code == 0, out
    before, middle, after = json.loads(out.splitlines()[-1])
    # What leaks does so in both halves of 250 saves: 160 bytes of the heap, half of a Python object
    # or 4 KiB of pages kept by each save would not pass. The process's size says less: malloc gives
    # the free end of its arena back at times.
    limits = {'heap': 40 << 10, 'blocks': 125, 'other_pages': 1 << 20, 'objects': 125}
    for what, limit in limits.items():
        growth = min(middle[what] - before[what], after[what] - middle[what])
        assert growth <= limit, (what, before, middle, after)
    for what in ('descriptors', 'threads', 'kept_arrays'):
        assert after[what] == before[what], what
    assert after['kept_arrays'] == 0
    assert len(list(root.glob('step-*'))) == 2


TRAINING = '''
    import os, signal, time, numpy as np, hekla.checkpoint as checkpoint
    rank, at = int(os.environ['RANK']), SIGNAL_AT
    manager = checkpoint.CheckpointManager(PATH, save_interval=9)
    first = manager.latest_step() or 0
    if first:
        state = manager.restore(like={'x': np.zeros(40_000), 'step': 0})
        assert state['step'] == first and (state['x'] == first).all()
    print('from', first, flush=True)
    for step in range(first + 1, first + 5000):
        time.sleep(0.002)
        if step - first == at[rank]:
            os.kill(os.getpid(), signal.SIGTERM)
        state = {'x': np.full(40_000, float(step)), 'step': step}
        if manager.reached_preemption(step):
            manager.exit_for_preemption(step, state)
        if manager.should_save(step):
            manager.save_async(step, state)
'''


def test_signals_to_one_or_all_of_four_processes_at_any_step(build, tmp_path):
    draw, last = random.Random(7), 0
    for life in range(3):
        one = draw.randrange(4)
        at = [draw.randrange(1, 40) if life == 1 or rank == one else -1 for rank in range(4)]
        program = TRAINING.replace('PATH', repr(str(tmp_path / 'run'))).replace('SIGNAL_AT', repr(at))
        store = {'HEKLA_STORE': f'file:{tmp_path}/store'}
        for code, out in run_python(build, program, 4, store):
            assert code == 75 and f'from {last}\n' in out, out
        with checkpoint.CheckpointManager(tmp_path / 'run', chkpt_on_preemption=False) as manager:
            step = manager.latest_step()
        assert step > last
        last = step
