# SPDX-License-Identifier: Apache-2.0
"""Programs over the devices of several processes give what those of one process give, to the bit."""
import concurrent.futures
import re
import socket

import pytest
from plugin_session import build_dir

pytestmark = pytest.mark.any_plugin

START = '''
import hashlib, os, signal, sys, threading, time
watchdog = threading.Timer(100, lambda: os._exit(77))
watchdog.daemon = True
watchdog.start()
count, process, coordinator = {count}, {process}, '{coordinator}'
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
try:
    from jax import shard_map
except ImportError:
    from jax.experimental.shard_map import shard_map
if count > 1:
    jax.distributed.initialize(coordinator, count, process)
devices = jax.devices()
assert len(devices) == 4 and jax.process_count() == count

def mapped(function, mesh, ins, outs):
    try:
        return jax.jit(shard_map(function, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False))
    except TypeError:
        return jax.jit(shard_map(function, mesh=mesh, in_specs=ins, out_specs=outs, check_rep=False))

def array(value, mesh, spec):
    return jax.make_array_from_callback(value.shape, NamedSharding(mesh, spec), lambda at: value[at])

def show(name, value):
    for shard in value.addressable_shards:
        data = np.asarray(shard.data)
        digest = hashlib.sha256(data.tobytes()).hexdigest()[:16]
        print('shard', name, shard.device.id, data.dtype, data.shape, digest)
'''

VALUES = '''
random = np.random.default_rng(0)
line = Mesh(np.array(devices), ('x',))
grid = Mesh(np.array(devices).reshape(2, 2), ('data', 'model'))
x = array(random.standard_normal((16, 12)).astype(np.float32), line, P('x'))

def collectives(v):
    me = jax.lax.axis_index('x')
    return (jax.lax.psum(v, 'x'), jax.lax.pmax(v * v, 'x'), jax.lax.all_gather(v, 'x'),
            jax.lax.psum_scatter(v, 'x', scatter_dimension=0, tiled=True),
            jax.lax.all_to_all(v, 'x', 0, 1, tiled=True),
            jax.lax.ppermute(v + me, 'x', [(i, (i + 1) % 4) for i in range(4)]),
            jax.lax.psum(v, 'x', axis_index_groups=[[0, 3], [1, 2]]), v[:0] + jax.lax.psum(v[:0], 'x'))
for number, value in enumerate(mapped(collectives, line, P('x'), P('x'))(x)):
    show(f'collective{number}', value)
pairs = mapped(lambda v: jax.lax.psum(v, 'model') + jax.lax.pmean(v, 'data'), grid,
               P('data', 'model'), P('data', 'model'))
show('two axes', pairs(array(random.standard_normal((8, 6)).astype(np.float32), grid, P('data', 'model'))))

a = array(random.standard_normal((32, 24)).astype(np.float32), grid, P('data', 'model'))
b = array(random.standard_normal((24, 40)).astype(np.float32), grid, P('model', None))
show('product', jax.jit(lambda a, b: jnp.tanh(a @ b), out_shardings=NamedSharding(grid, P('data')))(a, b))

state = {'w': array(random.standard_normal((24, 16)).astype(np.float32), grid, P(None, 'model')),
         'v': array(random.standard_normal((16, 8)).astype(np.float32), grid, P('model', None))}
batch = array(random.standard_normal((32, 24)).astype(np.float32), grid, P('data'))

@jax.jit
def step(state, batch):
    def loss(state):
        return jnp.mean((jax.nn.relu(batch @ state['w']) @ state['v'] - 1) ** 2)
    value, slopes = jax.value_and_grad(loss)(state)
    return jax.tree.map(lambda s, d: s - 0.01 * d, state, slopes), value
for _ in range(5):      # each launched before the one before has ended
    state, value = step(state, batch)
show('loss', value)
show('w', state['w'])
show('v', state['v'])

from jax.experimental import multihost_utils
multihost_utils.sync_global_devices('all are here')
gathered = multihost_utils.process_allgather(np.array([10 * process, 7], np.int32))
assert np.array_equal(np.reshape(gathered, (count, 2)), [[10 * p, 7] for p in range(count)]), gathered
told = multihost_utils.broadcast_one_to_all(np.arange(3) + 100 * process)
assert np.array_equal(told, np.arange(3)), told
assert np.array_equal(multihost_utils.process_allgather(x, tiled=True).shape, x.shape)
print('done')
'''

# Process 1 dies within a launch, or launches another program.
FAULT = '''
line = Mesh(np.array(devices), ('x',))
x = array(np.ones((4, 8), np.float32), line, P('x'))

def turns(v):
    return jax.lax.fori_loop(0, 100_000_000, lambda i, v: jax.lax.psum(v, 'x') / 4, v)
def other(v):
    return jax.lax.psum(v, 'x') + 1
same = mapped(turns, line, P('x'), P('x'))
assert np.asarray(mapped(lambda v: jax.lax.psum(v, 'x'), line, P('x'), P())(x).addressable_data(0))[0, 0] == 4
try:
    y = mapped(turns if process == 0 else other, line, P('x'), P('x'))(x)
    jax.block_until_ready(y)
    print('no error')
except Exception as error:
    print('mismatch', str(error).replace(chr(10), ' '))
y = same(x)
if process == 1:
    sys.stdout.flush()
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
begin = time.monotonic()
try:
    jax.block_until_ready(y)
    print('no error')
except Exception as error:
    print('death', time.monotonic() - begin < 30, str(error).replace(chr(10), ' '))
sys.stdout.flush()
os._exit(0)     # JAX waits for the dead one
'''


# Process 1 asks for a launch that is refused; the next ones are of the same program.
REFUSED = '''
line = Mesh(np.array(devices), ('x',))
both = jax.jit(shard_map(lambda v, w: (jax.lax.psum(v, 'x'), jax.lax.psum(w, 'x')), mesh=line,
                         in_specs=(P('x'), P('x')), out_specs=(P(), P())), donate_argnums=(0, 1))
def given(value):
    return array(np.full((4, 8), value, np.float32), line, P('x'))
for turn in range(3):
    one, other = given(1 + turn), given(10 + turn)
    try:
        sums = both(one, one if turn == 1 and process == 1 else other)
        print(*(float(np.asarray(each.addressable_data(0))[0, 0]) for each in sums))
    except Exception as error:
        print('refused', str(error).replace(chr(10), ' '))
'''


# What keeps the processes apart.
APART = '''
line = Mesh(np.array(devices), ('x',))
x = array(np.ones((4, 8), np.float32), line, P('x'))
try:
    mapped(lambda v: jax.lax.psum(v, 'x'), line, P('x'), P())(x).block_until_ready()
    print('no error')
except Exception as error:
    print(str(error).replace(chr(10), ' '))
sys.stdout.flush()
os._exit(0)
'''


@pytest.fixture(scope='module')
def known():
    return {}


def program(code, count, process, coordinator):
    start = START.replace('{count}', str(count)).replace('{process}', str(process))
    return start.replace('{coordinator}', coordinator) + code


def run(child, code, count, *, transport='auto', fails=(), **environment):
    """The lines that each process prints."""
    with socket.socket() as free:
        free.bind(('localhost', 0))
        port = free.getsockname()[1]
    def one(process):
        return child(program(code, count, process, f'localhost:{port}'), HEKLA_NUM_DEVICES=str(4 // count),
                     HEKLA_GANG_DEADLINE_SECONDS='60', HEKLA_FAIL_ON_FALLBACK=None,
                     HEKLA_PROCESS_TRANSPORT=transport, **environment)
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        ends = list(pool.map(one, range(count)))
    for process, end in enumerate(ends):
        assert (end.returncode == 0) != (process in fails), end.stderr[-2000:]
    return [end.stdout.split('\n')[:-1] for end in ends]


def has_transport(transport):
    return transport != 'gloo' or (build_dir() / 'lib' / 'hekla' / 'libhekla_gloo.so').exists()


@pytest.mark.parametrize('count, transport', [
    pytest.param(2, 'auto', marks=pytest.mark.quick),
    pytest.param(4, 'auto', marks=pytest.mark.any_platform),
    pytest.param(2, 'gloo', marks=pytest.mark.quick),
    pytest.param(4, 'gloo', marks=pytest.mark.any_platform)])
def test_as_in_one_process(child, ours, known, count, transport):
    if not ours:
        pytest.skip('a foreign plugin has its own way to make devices')
    if not has_transport(transport):
        pytest.skip('built without Gloo')
    if 'shards' not in known:
        lines = run(child, VALUES, 1)[0]
        assert lines.pop() == 'done'
        known['shards'] = sorted(lines)
    assert len(known['shards']) == 4 * 13
    shards = []
    for lines in run(child, VALUES, count, transport=transport):
        assert lines.pop() == 'done'
        assert len(lines) == len(known['shards']) // count
        shards += lines
    assert sorted(shards) == known['shards']


@pytest.mark.quick
@pytest.mark.parametrize('transport', ['shm', 'gloo'])
def test_another_program_and_a_death_are_named(child, ours, transport):
    if not ours:
        pytest.skip('a foreign plugin has its own way to make devices')
    if not has_transport(transport):
        pytest.skip('built without Gloo')
    first, second = run(child, FAULT, 2, transport=transport, fails=(1,))
    for line in (first[0], second[0]):
        assert line.startswith('mismatch'), line
        assert re.search('jit_turns.* process 0, jit_other.* process 1', line) or \
            re.search('jit_other.* process 1, jit_turns.* process 0', line), line
    assert first[1].startswith('death True'), first[1]
    assert re.search(r'process 1 \(pid \d+ on .*\) has died', first[1]), first[1]


@pytest.mark.any_platform
def test_what_one_process_refuses_ends_on_all(child, ours):
    if not ours:
        pytest.skip('a foreign plugin has its own way to make devices')
    first, second = run(child, REFUSED, 2, transport='shm')
    for said in (first, second):
        assert said[0] == '4.0 40.0' and said[2] == '12.0 48.0', said
        assert said[1].startswith('refused') and 'are the same buffer' in said[1], said
    assert 'process 1' in first[1], first


@pytest.mark.any_platform
def test_what_keeps_processes_apart_is_said(child, ours):
    if not ours:
        pytest.skip('a foreign plugin has its own way to make devices')
    for wanted, values in ((r'libhekla_gloo.so cannot be opened: .*/nowhere.so.* libgloo-dev', {'HEKLA_GLOO': '/nowhere.so'}),
                           (r"'nothing0' is no interface, address or name of this machine", {'HEKLA_PROCESS_ADDRESS': 'nothing0'})):
        if 'HEKLA_GLOO' not in values and not has_transport('gloo'):
            continue
        for line, in run(child, APART, 2, transport='gloo', **values):
            assert re.search(f'processes 0, 1.*{wanted}', line), line
