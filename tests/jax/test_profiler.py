# SPDX-License-Identifier: Apache-2.0
"""jax.profiler's traces: what devices did, on their time lines."""
import gzip
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xspace
from plugin_session import build_dir

pytestmark = pytest.mark.quick


def step(x, w):
    for _ in range(2):
        x = jnp.tanh(x @ w)
    return x.sum()


@pytest.fixture
def traced(device, tmp_path):
    """function(work) -> the planes of our devices while it ran."""
    def run(work):
        with jax.profiler.trace(tmp_path):
            jax.block_until_ready(work())
        return xspace.ours(tmp_path, device.platform)
    return run


def test_steps_are_within_their_launch(device, ours, traced):
    if not ours:
        pytest.skip('our planes')
    x = jax.device_put(np.ones((64, 64), np.float32), device)
    program = jax.jit(step)
    program(x, x).block_until_ready()
    planes = traced(lambda: [program(x, x) for _ in range(3)][-1])
    lines = planes[f'{device.platform}:{device.id}']
    launches = [event for event in lines['Launches'] if event[0] == 'jit_step']
    assert len(launches) == 3
    assert len({stats['run_id'] for _, _, _, stats in launches}) == 3
    assert all(stats['hlo_module'] == 'jit_step' for _, _, _, stats in launches)
    for _, begin, duration, _ in launches:
        inside = [event for event in lines['Steps'] if begin <= event[1] and
                  event[1] + event[2] <= begin + duration + 1000]
        assert inside, lines
        # Where each comes from in the source.
        assert any('test_profiler.py' in str(stats.get('source')) for _, _, _, stats in inside), inside
        assert any('dot_general' in str(stats.get('tf_op')) for _, _, _, stats in inside), inside
    ends = 0
    for _, begin, duration, _ in sorted(launches, key=lambda event: event[1]):
        assert begin >= ends - 1000
        ends = begin + duration


def test_the_host_compiles_and_launches(device, ours, tmp_path):
    if not ours:
        pytest.skip('our planes')
    with jax.profiler.trace(tmp_path):
        x = jax.device_put(np.full((8, 8), 3.0, np.float32), device)
        out = jax.jit(lambda x: x * 7.25)(x)
        np.asarray(out).sum()
    planes = xspace.read(tmp_path)
    host = [name for line in planes['/device:CUSTOM:hekla host'].values() for name, _, _, _ in line]
    assert any(name.startswith('compile jit_') for name in host), host
    assert any(name.startswith('launch jit_') for name in host), host
    transfers = planes[f'/device:CUSTOM:{device.platform}:{device.id}']['Transfers']
    up = [stats['bytes_accessed'] for name, _, _, stats in transfers if name == 'host to device']
    assert 8 * 8 * 4 in up


def test_nothing_of_before_or_after(device, ours, traced):
    if not ours:
        pytest.skip('our planes')
    x = jax.device_put(np.ones(4, np.float32), device)
    early, late = jax.jit(lambda x: x + 1), jax.jit(lambda x: x + 2)
    early(x).block_until_ready()
    planes = traced(lambda: late(x))
    late(x).block_until_ready()
    assert len([e for e in planes[f'{device.platform}:{device.id}']['Launches'] if 'lambda' in e[0]]) == 1


def test_perfetto_has_the_device(device, ours, tmp_path):
    if not ours:
        pytest.skip('our planes')
    x = jax.device_put(np.ones((16, 16), np.float32), device)
    with jax.profiler.trace(tmp_path, create_perfetto_trace=True):
        jax.jit(step)(x, x).block_until_ready()
    (path,) = tmp_path.rglob('perfetto_trace.json.gz')
    events = json.loads(gzip.open(path).read())['traceEvents']
    named = {event['pid']: event['args']['name'] for event in events if event.get('name') == 'process_name'}
    ids = [pid for pid, name in named.items() if f'{device.platform}:{device.id}' in name]
    assert ids, named
    assert any(event.get('pid') in ids and event.get('name') == 'jit_step' for event in events)


def test_jax_reads_what_it_wrote(device, ours, tmp_path):
    if not ours:
        pytest.skip('our planes')
    x = jax.device_put(np.ones((16, 16), np.float32), device)
    with jax.profiler.trace(tmp_path):
        jax.jit(step)(x, x).block_until_ready()
    (path,) = tmp_path.rglob('*.xplane.pb')
    data = jax.profiler.ProfileData.from_file(str(path))
    names = {line.name: [event.name for event in line.events] for plane in data.planes for line in plane.lines
             if plane.name == f'/device:CUSTOM:{device.platform}:{device.id}'}
    assert names['Launches'] == ['jit_step'] and names['Steps']


def test_loops_and_host_steps(device, ours, traced):
    if not ours:
        pytest.skip('our planes')
    x = jax.device_put(np.eye(5, dtype=np.float32), device)

    @jax.jit
    def program(x):
        def body(state):
            i, x = state
            return i + 1, jnp.linalg.cholesky(x @ x.T + 5 * jnp.eye(5))
        return jax.lax.while_loop(lambda state: state[0] < 3, body, (0, x))[1]
    planes = traced(lambda: program(x))
    steps = planes[f'{device.platform}:{device.id}']['Steps']
    assert steps and all(duration >= 0 for _, _, duration, _ in steps)


SHARDED = '''
import json, pathlib, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()[:4]), ('x',))
x = jax.device_put(np.ones((8, 16), np.float32), NamedSharding(mesh, P('x')))
program = jax.jit(lambda x: x.sum(0), out_shardings=NamedSharding(mesh, P()))
program(x).block_until_ready()
with jax.profiler.trace(FOLDER):
    program(x).block_until_ready()
'''


def test_each_device_has_its_lines(child, ours, platform, tmp_path):
    if not ours:
        pytest.skip('our planes')
    run = child(f'FOLDER = {str(tmp_path)!r}\n' + SHARDED, HEKLA_NUM_DEVICES='4')
    assert run.returncode == 0, run.stderr
    planes = xspace.ours(tmp_path, platform)
    assert sorted(planes) == [f'{platform}:{i}' for i in range(4)]
    runs = set()
    for name, lines in planes.items():
        (launch,) = lines['Launches']
        runs.add(launch[3]['run_id'])
        met = [event for event in lines['Collectives'] if 'all_reduce' in event[0]]
        assert met, (name, lines)
        stats = met[0][3]
        device = int(name.split(':')[1])
        assert stats['bytes_accessed'] == 16 * 4
        assert 0 <= stats['waited_ns'] <= met[0][2]
        assert 'source' in stats
        assert str(stats['peers']) == ','.join(str(i) for i in range(4) if i != device)
    assert len(runs) == 1


TWO_PLATFORMS = '''
import jax, numpy as np
def first(x): return x + 1
def second(x): return x * 2
placed = [(jax.jit(f), jax.device_put(np.ones(8, np.float32), jax.devices(p)[0])) for f, p in ((first, 'tbb'), (second, 'reference'))]
with jax.profiler.trace(FOLDER, create_perfetto_trace=True):
    jax.block_until_ready([program(x) for program, x in placed])
'''


# Viewers keep planes of one number together.
def test_two_platforms_have_tracks_of_their_own(child, ours, shim, tmp_path):
    if not (ours and shim):
        pytest.skip('our planes')
    run = child(f'FOLDER = {str(tmp_path)!r}\n' + TWO_PLATFORMS, JAX_PLATFORMS='tbb,reference,cpu',
                HEKLA_PLUGIN_PATH=str(build_dir() / 'lib' / 'hekla'))
    assert run.returncode == 0, run.stderr
    (path,) = tmp_path.rglob('perfetto_trace.json.gz')
    events = json.loads(gzip.open(path).read())['traceEvents']
    named = {event['args']['name']: event['pid'] for event in events if event.get('name') == 'process_name'}
    launches = {name: {event['pid'] for event in events if event.get('name') == name}
                for name in ('jit_first', 'jit_second')}
    assert launches == {'jit_first': {named['/device:CUSTOM:tbb:0']},
                        'jit_second': {named['/device:CUSTOM:reference:0']}}
    assert len(set(named.values())) == len(named)
