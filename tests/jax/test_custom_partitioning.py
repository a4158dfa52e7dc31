# SPDX-License-Identifier: Apache-2.0
"""Functions that users partition themselves (jax.experimental.custom_partitioning), over eight logical
devices, beside the functions themselves on jaxlib's CPU."""
import json

import pytest

pytestmark = [pytest.mark.quick, pytest.mark.any_plugin]

PROGRAMS = '''
import json
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
if GSPMD:
    jax.config.update('jax_use_shardy_partitioner', False)
devices = jax.devices()[:8]
mesh = Mesh(np.array(devices).reshape(2, 4), ('x', 'y'))
other = Mesh(np.array(devices)[[0, 2, 4, 6, 1, 3, 5, 7]].reshape(2, 4), ('x', 'y'))
random = np.random.RandomState(0)
cpu = jax.devices('cpu')[0]
outcomes, asked = {}, []


def spec_of(shaped):
    spec = tuple(shaped.sharding.spec)
    return spec + (None,) * (len(shaped.shape) - len(spec))


def define(body, own, results, rule, **options):
    """body as one function that asks `own` for its parts; results(specs of the operands): their specs."""
    f = custom_partitioning(body)

    def partition(mesh, operands, result):
        specs = [spec_of(o) for o in operands]
        asked.append(([str(P(*s)) for s in specs], [str(P(*spec_of(r))) for r in jax.tree.leaves(result)]))
        local, ins, outs = own(specs, [spec_of(r) for r in jax.tree.leaves(result)])
        place = lambda spec: NamedSharding(mesh, P(*spec))
        outs = place(outs) if not isinstance(outs, list) else tuple(place(o) for o in outs)
        return mesh, local, outs, tuple(place(i) for i in ins)

    def infer(mesh, operands, result):
        outs = results([spec_of(o) for o in operands])
        place = lambda spec: NamedSharding(mesh, P(*spec))
        return place(outs) if not isinstance(outs, list) else tuple(place(o) for o in outs)

    f.def_partition(partition, infer_sharding_from_operands=infer, sharding_rule=rule, **options)
    return f


def check(name, f, plain, args, specs, out=None, on=mesh, within=None):
    try:
        with on:
            placed = [jax.device_put(a, NamedSharding(on, s)) for a, s in zip(args, specs)]
            options = {} if out is None else {'out_shardings': NamedSharding(on, out)}
            given = jax.jit(lambda *a: (within or (lambda g, *b: g(*b)))(f, *a), **options)(*placed)
        with jax.default_device(cpu):
            expected = (within or (lambda g, *b: g(*b)))(plain, *args)
        problem = ''
        for one, right in zip(jax.tree.leaves(given), jax.tree.leaves(expected), strict=True):
            if one.shape != right.shape or not np.allclose(one, right, rtol=1e-5, atol=1e-5):
                problem = f'{one.shape}, {np.max(np.abs(np.asarray(one) - np.asarray(right)))} off'
        outcomes[name] = problem
    except Exception as error:
        outcomes[name] = repr(error)[:600]


def array(*shape):
    return random.randn(*shape).astype(np.float32)


def twice(x):
    return jnp.sin(x) * 2


# Elementwise: any parts will do.
keep = define(twice, lambda ins, outs: (twice, [ins[0]], ins[0]), lambda ins: ins[0], 'i j -> i j')
for name, spec in {'whole': P(), 'rows': P('x'), 'both': P('y', 'x'), 'one': P(('x', 'y'))}.items():
    check(f'elementwise {name}', keep, twice, [array(8, 16)], [spec])
    check(f'elementwise {name} to rows', keep, twice, [array(8, 16)], [spec], out=P('y'))
check('uneven', keep, twice, [array(8, 6)], [P('x')], out=P('x'))
check('another order', keep, twice, [array(8, 16)], [P('y', 'x')], out=P('x', 'y'), on=other)
assert any(ins[0] != str(P(None, None)) for ins, _ in asked), asked


# What is not elementwise: rows stay cut, columns are wanted whole.
def softmax(x):
    return jax.nn.softmax(x, axis=-1)


rows = define(softmax, lambda ins, outs: (softmax, [(ins[0][0], None)], (ins[0][0], None)),
              lambda ins: (ins[0][0], None), 'i j -> i j', **({} if GSPMD else {'need_replication_factors': ('j',)}))
for spec in (P('x'), P(None, 'y'), P('y', 'x')):
    check(f'softmax {spec}', rows, softmax, [array(8, 16)], [spec])


# A product whose parts add up their own sums: a collective of the user's.
def product(a, b):
    z = a @ b
    return z, jnp.sum(z, axis=1)


def parts_of_product(ins, outs):
    axis = ins[1][0] if ins[1][0] != ins[0][0] else None

    def local(a, b):
        z = a @ b
        if axis is not None:
            z = lax.psum(z, axis)
        return z, jnp.sum(z, axis=1)

    return local, [(ins[0][0], axis), (axis, None)], [(ins[0][0], None), (ins[0][0],)]


contract = define(product, parts_of_product, lambda ins: [(ins[0][0], None), (ins[0][0],)], 'i j, j k -> i k, i',
                  **({} if GSPMD else {'reduction_factors': ('j',), 'need_replication_factors': ('k',)}))
check('product', contract, product, [array(8, 16), array(16, 4)], [P('x', 'y'), P('y')])
check('product whole', contract, product, [array(8, 16), array(16, 4)], [P(), P()])
check('product in a loop', contract, product, [array(8, 8), array(8, 8)], [P('x', 'y'), P('y')],
      within=lambda f, a, b: lax.fori_loop(0, 3, lambda i, x: jnp.tanh(f(x, b)[0]), a))
check('two calls', contract, product, [array(8, 8), array(8, 8)], [P('x', 'y'), P('y')],
      within=lambda f, a, b: (f(a, b)[0] + f(b, a)[0], f(a, a)[1]))


# Where each part knows its place.
def numbered(x):
    return x + jnp.arange(x.shape[0], dtype=x.dtype)[:, None]


def parts_of_numbered(ins, outs):
    axis = ins[0][0]

    def local(x):
        begin = 0 if axis is None else lax.axis_index(axis) * x.shape[0]
        return x + (begin + jnp.arange(x.shape[0])).astype(x.dtype)[:, None]

    return local, [(axis, None)], (axis, None)


number = define(numbered, parts_of_numbered, lambda ins: (ins[0][0], None), 'i j -> i j')
check('places', number, numbered, [array(8, 4)], [P('y')])
check('places in another order', number, numbered, [array(8, 4)], [P('y')], on=other)


# What fails is said with its words.
def refuse(ins, outs):
    raise ValueError('cut by no means')


bad = define(twice, refuse, lambda ins: ins[0], 'i j -> i j')
try:
    with mesh:
        jax.jit(bad)(jax.device_put(array(8, 4), NamedSharding(mesh, P('x'))))
    outcomes['errors'] = 'none'
except Exception as error:
    outcomes['errors'] = '' if 'cut by no means' in str(error) else str(error)
print(json.dumps(outcomes))
'''


@pytest.mark.parametrize('gspmd', [False, True])
def test_functions_that_users_partition(child, ours, gspmd):
    if not ours:
        pytest.skip('a foreign plugin has its own way to make devices')
    done = child(PROGRAMS.replace('GSPMD', str(gspmd)), HEKLA_NUM_DEVICES='8')
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = json.loads(done.stdout.split('\n')[-2])
    assert len(outcomes) == 20
    assert not {name: problem for name, problem in outcomes.items() if problem}


CACHED = '''
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jax._src import monitoring
options = {'jax_compilation_cache_dir': FOLDER, 'jax_persistent_cache_min_compile_time_secs': 0,
           'jax_persistent_cache_min_entry_size_bytes': -1,
           'jax_remove_custom_partitioning_ptr_from_cache_key': True}
for name, value in options.items():
    jax.config.update(name, value)
events, asked = [], []
monitoring.register_event_listener(lambda event, **_: events.append(event))
mesh = Mesh(np.array(jax.devices()[:4]), ('x',))
place = NamedSharding(mesh, P('x'))


def total(x):
    return x / jnp.sum(x)


@custom_partitioning
def share(x):
    return total(x)


def partition(mesh, operands, result):
    asked.append(operands)
    place = NamedSharding(mesh, P('x'))
    return mesh, lambda x: x / lax.psum(jnp.sum(x), 'x'), place, (place,)


share.def_partition(partition, infer_sharding_from_operands=lambda mesh, operands, result: operands[0].sharding,
                    sharding_rule='i -> i')
x = jax.device_put(np.arange(1, 9, dtype=np.float32), place)
given = jax.jit(share, in_shardings=place, out_shardings=place)(x)
assert given.sharding.is_equivalent_to(place, 1), given.sharding
np.testing.assert_allclose(given, np.arange(1, 9) / 36, rtol=1e-6)
print(len(asked), events.count('/jax/compilation_cache/cache_hits'))
'''


def test_executables_are_loaded_without_the_functions_that_partitioned_them(child, ours, shim, tmp_path):
    """The next process has other functions, or none, by the name that the program gave them."""
    if not ours or not shim:
        pytest.skip('a foreign plugin has its own way to make devices; the package lets JAX keep executables')
    outcomes = []
    for _ in range(2):
        done = child(CACHED.replace('FOLDER', repr(str(tmp_path))), HEKLA_NUM_DEVICES='4')
        assert done.returncode == 0, done.stderr[-2000:]
        outcomes.append(done.stdout.split('\n')[-2])
    assert outcomes[0].endswith(' 0') and outcomes[0] != '0 0', outcomes
    assert outcomes[1].startswith('0 ') and outcomes[1] != '0 0', outcomes
