# SPDX-License-Identifier: Apache-2.0
"""The meshes of sharded JAX arrays: in the index for h5py, in what the tools show and write."""
import json
import subprocess
import textwrap

import h5py
from processes import run_python

from hekla.checkpoint import _arrays


def test_the_meshes_of_a_step_are_in_its_index(build, tmp_path):
    save = '''
    import sys, numpy as np, jax, hekla.checkpoint as checkpoint
    from jax.sharding import NamedSharding, PartitionSpec as P
    devices = jax.devices()
    w, b = np.arange(48 * 40, dtype=np.float32).reshape(48, 40), np.arange(16, dtype=np.int32)
    order = np.array(devices)[::-1].reshape(4, 2)
    other = jax.sharding.Mesh(order, ('data', 'model'))
    state = {'w': jax.device_put(w, NamedSharding(other, P('data', 'model'))),
             'v': jax.device_put(w, NamedSharding(other, P(None, ('model', 'data')))),
             'b': jax.device_put(b, NamedSharding(jax.make_mesh((8,), ('x',)), P())), 'numpy': b}
    with checkpoint.CheckpointManager(sys.argv[1]) as manager:
        manager.save(5, state)
    '''
    text = textwrap.dedent(save).replace('sys.argv[1]', repr(str(tmp_path / 'run')))
    ((code, out),) = run_python(
        build, text, environment={'XLA_FLAGS': '--xla_force_host_platform_device_count=8'})
    assert code == 0, out
    step = tmp_path / 'run' / 'step-000000000005'

    def texts(group):
        ends = [0, *group['end'][...]]
        return [group['utf8'][a:b].tobytes().decode() for a, b in zip(ends, ends[1:])]
    with h5py.File(step / 'index.h5') as index:
        names = texts(index['tensors/name'])
        assert dict(zip(names, index['tensors/mesh'][...].tolist())) == {
            'b': 0, 'numpy': -1, 'v': 1, 'w': 1}
        meshes = index['meshes']
        assert texts(meshes['axis_name']) == ['x', 'data', 'model']
        assert meshes['axis_size'][...].tolist() == [8, 4, 2]
        assert meshes['axis_end'][...].tolist() == [1, 3]
        assert meshes['device'][...].tolist() == [*range(8), *range(7, -1, -1)]
        assert meshes['device_end'][...].tolist() == [8, 16]
        assert meshes['granule'].size == 0  # one process, no slices
        assert meshes['granule_end'][...].tolist() == [0, 0]

    def inspect(*arguments):
        result = subprocess.run([build / 'bin' / 'hekla', 'ckpt', 'inspect', *map(str, arguments)],
                                capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stderr
        return result.stdout
    data = json.loads(inspect(step, '--json'))
    assert data['meshes'][1] == {
        'axes': [{'name': 'data', 'size': 4}, {'name': 'model', 'size': 2}],
        'devices': list(range(7, -1, -1)), 'granules': None}
    assert {t['name']: t['mesh'] for t in data['tensors']} == {'b': 0, 'numpy': None, 'v': 1, 'w': 1}
    assert data['mesh'] == '(x:8) (data:4,model:2)'
    text = inspect(step, '--sharding')
    assert 'mesh 1: (data:4,model:2), devices 7-0' in text
    assert 'dimension 0 by data (4 parts); dimension 1 by model (2 parts)' in text
    assert 'dimension 1 by model, data (8 parts)' in text and 'copies along x' in text
    rows = [line.split('|')[0].strip() for line in text.splitlines() if '|' in line]
    assert [row for row in rows if row] == [f'data={i}' for i in range(4)]
    assert 'model=0             model=1' in text
    # Repair makes the same index again; another mesh stands in a step cut for it.
    before = (step / 'index.h5').read_bytes()
    (step / 'index.h5').write_bytes(b'')
    for arguments in (['repair', tmp_path / 'run'],
                      ['reshard', step, tmp_path / 'out', '--mesh', '(a:2,b:2)', '--spec', 'w=(b)']):
        subprocess.run([build / 'bin' / 'hekla', 'ckpt', *map(str, arguments)], check=True, timeout=120)
    assert (step / 'index.h5').read_bytes() == before
    text = inspect(tmp_path / 'out', '--sharding', '--tensor', '^w$')
    assert 'mesh 0: (a:2,b:2), devices in order' in text
    assert 'dimension 0 by b (2 parts); copies along a' in text and 'b=1 |' in text


def test_numbers_of_a_mesh_have_short_texts():
    text = _arrays._numbers_text
    assert text([]) == '' and text([3]) == '3' and text([0, 2, 1, 3]) == '0,2,1,3'
    assert text([0, 0, 0, 0, 1, 1, 1, 1]) == '0*4,1*4'
    assert text([0, 1, 2, 3, 7, 6, 5, 4, 0, 4, 8, 12, 9]) == '0-3,7-4,0-12/4,9'
