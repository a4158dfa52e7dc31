# SPDX-License-Identifier: Apache-2.0
"""Which donated arrays a launch consumes: those that it consumes on jaxlib's CPU too."""
import json

import pytest

pytestmark = pytest.mark.quick

SCRIPT = '''
import json, warnings
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
warnings.simplefilter('ignore')
devices = jax.devices()[:4]
mesh = Mesh(np.array(devices).reshape(2, 2), ('x', 'y'))
outcomes = {}


def array(shape, spec=None, dtype=np.float32):
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    return jax.device_put(values, devices[0] if spec is None else NamedSharding(mesh, spec))


def note(name, function, *args, donated=None, out=None):
    options = {}
    if out is not None:
        options['out_shardings'] = jax.tree.map(lambda s: NamedSharding(mesh, s), out,
                                                is_leaf=lambda s: isinstance(s, P))
    donated = tuple(range(len(args))) if donated is None else donated
    jax.block_until_ready(jax.jit(function, donate_argnums=donated, **options)(*args))
    outcomes[name] = [a.is_deleted() for a in args]


note('same shape', lambda x: x + 1, array((4, 4)))
note('another shape of the size', lambda x: x.reshape(16) + 1, array((4, 4)))
note('smaller', lambda x: x.sum(0), array((4, 4)))
note('larger', lambda x: jnp.concatenate([x, x]), array((4, 4)))
note('another type of the size', lambda x: x.astype(jnp.int32), array((4, 4)))
note('another type', lambda x: x.astype(jnp.float16), array((4, 4)))
note('two for one', lambda x, y: x + y, array((4, 4)), array((4, 4)))
note('one of two', lambda x, y: x + y, array((4, 4)), array((4, 4)), donated=(1,))
note('two and two', lambda x, y: (x + y, y.T), array((4, 4)), array((4, 4)))
note('not used', lambda x, y: x + 1, array((4, 4)), array((4, 4)))
note('passed on', lambda x: x, array((4, 4)))
for name, spec in {'rows': P('x'), 'both': P('x', 'y'), 'whole': P()}.items():
    note(f'{name}: same shape', lambda x: x * 2, array((8, 8), spec))
    note(f'{name}: product with its transpose', lambda x: x @ x.T, array((8, 2), spec if name != 'both' else P('x')))
    note(f'{name}: sum', lambda x: x.sum(), array((8, 8), spec))
    note(f'{name}: two for one', lambda x, y: x + y, array((8, 8), spec), array((8, 8), spec))
    note(f'{name}: transposed', lambda x: x.T, array((8, 8), spec))
    note(f'{name}: another type of the size', lambda x: x.astype(jnp.int32), array((8, 8), spec))
    note(f'{name}: smaller type', lambda x: x.astype(jnp.float16), array((8, 8), spec))
    note(f'{name}: to rows', lambda x: x + 1, array((8, 8), spec), out=P('x'))
    note(f'{name}: to whole', lambda x: x + 1, array((8, 8), spec), out=P())
    note(f'{name}: one of two results', lambda x: (x + 1, x.sum(0)), array((8, 8), spec))
print(json.dumps(outcomes))
'''


def test_as_on_jaxlibs_cpu(child, shim):
    if not shim:
        pytest.skip('without the package JAX drops donation on a new platform')
    runs = [child(SCRIPT, HEKLA_NUM_DEVICES='4'),
            child(SCRIPT, JAX_PLATFORMS='cpu', XLA_FLAGS='--xla_force_host_platform_device_count=4')]
    for run in runs:
        assert run.returncode == 0, run.stderr
    ours, theirs = (json.loads(run.stdout.splitlines()[-1]) for run in runs)
    assert ours == theirs
