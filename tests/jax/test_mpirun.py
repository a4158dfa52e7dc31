# SPDX-License-Identifier: Apache-2.0
"""Under Open MPI's mpirun, without a launcher of ours: process groups and JAX find their ranks, and what
one rank does not do is said on the others."""
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from plugin_session import build_dir

pytestmark = [pytest.mark.any_plugin, pytest.mark.any_platform]

GROUP = '''
import json
import numpy as np
from hekla import process_group
group = process_group.init()
mine = np.arange(5, dtype=np.float32) + 10 * group.rank
print(json.dumps({'rank': group.rank, 'size': group.size, 'sum': group.all_reduce(mine).tolist(),
                  'all': group.all_gather(np.int64([group.rank])).ravel().tolist()}))
'''

ONE_LEAVES = '''
import numpy as np
from hekla import process_group
group = process_group.init(timeout=20)
group.barrier()
if group.rank == 0:
    try:
        group.all_reduce(np.ones(3, np.float32))
        print('no error')
    except process_group.GroupError as error:
        print(error)
'''

JAX = '''
import json
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.distributed.initialize()
devices = jax.devices()
mesh = Mesh(np.array(devices), ('x',))
x = np.arange(4 * len(devices), dtype=np.float32)
whole = jax.make_array_from_callback(x.shape, NamedSharding(mesh, P('x')), lambda at: x[at])
total = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, P()))(whole)
print(json.dumps({'process': jax.process_index(), 'processes': jax.process_count(), 'platform': devices[0].platform,
                  'sum': float(total)}))
'''


# Each rank writes a file of its own: mpirun joins what ranks print piece by piece, so that a line can
# begin within another's.
TO_A_FILE = '''
import os, sys
sys.stdout = open(os.path.join(os.environ['PRINTED'], str(os.getpid())), 'w')
'''


def mpirun(program, ranks, printed, **environment):
    """What each rank prints, a text for each, in no order; `printed` is an empty folder."""
    assert shutil.which('mpirun'), 'tools/install.sh installs Open MPI'
    values = {**os.environ, 'PYTHONPATH': str(build_dir() / 'python'), 'PRINTED': str(printed), **environment}
    for name in ('RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT', 'HEKLA_STORE'):
        values.pop(name, None)
    done = subprocess.run(['mpirun', '--allow-run-as-root', '--oversubscribe', '-n', str(ranks), sys.executable,
                           '-c', TO_A_FILE + program], capture_output=True, text=True, timeout=200, env=values,
                          check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    files = list(printed.iterdir())
    assert len(files) == ranks
    return [file.read_text() for file in files]


@pytest.mark.parametrize('size', (2, 4))
def test_process_groups_find_their_ranks(size, tmp_path):
    ranks = sorted((json.loads(text) for text in mpirun(GROUP, size, tmp_path, JAX_PLATFORMS='cpu')),
                   key=lambda rank: rank['rank'])
    total = sum(np.arange(5) + 10 * rank for rank in range(size)).tolist()
    assert ranks == [{'rank': rank, 'size': size, 'sum': total, 'all': list(range(size))} for rank in range(size)]


def test_a_rank_that_leaves_is_named(tmp_path):
    said = '\n'.join(mpirun(ONE_LEAVES, 2, tmp_path, JAX_PLATFORMS='cpu'))
    assert 'all_reduce' in said and 'rank 1' in said


def test_jax_finds_its_processes(platform, tmp_path):
    ranks = sorted((json.loads(text) for text in mpirun(JAX, 2, tmp_path, JAX_PLATFORMS=platform)),
                   key=lambda rank: rank['process'])
    devices = 2
    assert [rank['process'] for rank in ranks] == [0, 1]
    for rank in ranks:
        assert rank == {**ranks[0], 'process': rank['process']}
        assert rank['processes'] == 2 and rank['platform'] == platform
        assert rank['sum'] == sum(range(4 * devices))
