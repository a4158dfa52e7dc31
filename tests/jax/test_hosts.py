# SPDX-License-Identifier: Apache-2.0
"""Programs over processes of several hosts, which are namespaces of this machine: those of one host share
memory, between hosts they exchange through Gloo, and the bits are those of one process."""
import json
import os
import re
import subprocess
import sys

import hosts
import pytest
from plugin_session import build_dir
from test_processes import VALUES, has_transport, program, run

pytestmark = pytest.mark.any_plugin
PORT = 4711

# Trains until something is lost.
TRAINING = '''
import collections
line = Mesh(np.array(devices), ('x',))
random = np.random.default_rng(0)
w = jax.device_put(np.zeros((64, 8), np.float32), NamedSharding(line, P()))
data = array(random.standard_normal((64, 64)).astype(np.float32), line, P('x'))

@jax.jit
def step(w, data):
    value, slope = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(data @ w) - 1) ** 2))(w)
    return w - 0.1 * slope, value
losses = []
try:
    while True:
        w, value = step(w, data)
        losses.append(float(value))
        if len(losses) == 20:
            print('trains', losses[-1] < losses[0], flush=True)
        time.sleep(0.01)
except Exception as error:
    print('lost', str(error).replace(chr(10), ' '), flush=True)
os._exit(0)     # JAX waits for the others
'''


@pytest.fixture(scope='module', autouse=True)
def permitted():
    if not has_transport('gloo'):
        pytest.skip('built without Gloo')
    if why := hosts.why_not():
        pytest.skip(why)


def start(all_hosts, code, per_host, values):
    """A process for each place, in the order of the processes."""
    count = per_host * len(all_hosts)
    environment = {**os.environ, 'HEKLA_NUM_DEVICES': str(4 // count), **values}
    for name in ('HEKLA_FAIL_ON_FALLBACK', 'HEKLA_PROCESS_TRANSPORT'):
        environment.pop(name, None)
    return [all_hosts[process // per_host].start(
        [sys.executable, '-c', program(code, count, process, f'{all_hosts[0].address}:{PORT}')],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        for process in range(count)]


# What a device sends is read and written on the host: two processes of a host go both ways.
@pytest.mark.parametrize('per_host', [pytest.param(1, marks=pytest.mark.any_platform), 2])
def test_as_in_one_process(child, ours, per_host):
    if not ours:
        pytest.skip('a foreign plugin has its own way to make devices')
    lines = run(child, VALUES, 1)[0]
    assert lines.pop() == 'done'
    shards = []
    with hosts.Hosts(2) as both:
        for process in start(both, VALUES, per_host, {'HEKLA_GANG_DEADLINE_SECONDS': '60'}):
            output, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors[-2000:]
            *more, last = output.split('\n')[:-1]
            assert last == 'done'
            shards += more
    assert sorted(shards) == sorted(lines)


@pytest.mark.quick
@pytest.mark.any_platform
def test_a_host_that_is_cut_off_is_named(ours):
    if not ours:
        pytest.skip('a foreign plugin has its own way to make devices')
    with hosts.Hosts(2) as both:
        processes = start(both, TRAINING, 2, {'HEKLA_PROCESS_SILENCE_SECONDS': '2'})
        for process in processes:
            assert process.stdout.readline() == 'trains True\n', process.stderr.read()[-2000:]
        both[1].cut_off()
        said = [process.communicate(timeout=60)[0] for process in processes]
    for own, text in enumerate(said):
        gone = 'process [23] ' if own < 2 else 'process [01] '
        assert re.search('^lost .*' + gone + r'\(pid \d+ on .*no sign of life for \d', text), (own, text)


# Process groups of two hosts with two ranks each, whose ranks follow each other or alternate: every operation,
# in arrays that cross between the hosts once.
@pytest.mark.any_platform
@pytest.mark.parametrize('places', [(0, 0, 1, 1), (0, 1, 0, 1)], ids=['in_a_row', 'in_turn'])
def test_process_groups(places):
    tool = build_dir() / 'bin' / 'hekla'
    with hosts.Hosts(2) as both:
        values = {**os.environ, 'HEKLA_LOG': 'info', 'WORLD_SIZE': '4', 'MASTER_ADDR': both[0].address,
                  'MASTER_PORT': str(PORT)}
        ranks = [both[place].start(
            [tool, 'group-check', '--init', 'env://', '--transport', 'auto', '--sizes', '0,28,300000',
             '--dtype', 'f32', '--dtype', 'bf16', '--flat-bytes', '1000', '--segment-bytes', '20000'],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**values, 'RANK': str(rank)})
            for rank, place in enumerate(places)]
        for rank, process in enumerate(ranks):
            output, errors = process.communicate(timeout=120)
            said = json.loads(output)
            assert said['problems'] == [] and said['checks'] > 100
            if rank == 0:
                assert 'by messages within and between 2 hosts: ranks 0 and' in errors
