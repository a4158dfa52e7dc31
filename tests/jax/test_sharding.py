# SPDX-License-Identifier: Apache-2.0
"""Programs over eight logical devices: arrays that are cut, manual regions, pmap.

One process runs all programs; each is compared with itself on one device of jaxlib's CPU.
"""
import json

import jaxlib
import pytest

pytestmark = [pytest.mark.quick, pytest.mark.any_plugin]

START = '''
import functools, json
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
try:
    from jax import shard_map
except ImportError:
    from jax.experimental.shard_map import shard_map
if GSPMD:
    jax.config.update('jax_use_shardy_partitioner', False)
devices = jax.devices()[:8]
mesh = Mesh(np.array(devices).reshape(2, 4), ('x', 'y'))
line = Mesh(np.array(devices), ('i',))
permuted = Mesh(np.array(devices)[[0, 2, 4, 6, 1, 3, 5, 7]].reshape(2, 4), ('x', 'y'))
random = np.random.RandomState(0)


def array(*shape):
    return random.randn(*shape).astype(np.float32)


cpu = jax.devices('cpu')[0]
outcomes = {}


def report(name, given, expected):
    problem = ''
    for k, (one, other) in enumerate(zip(jax.tree.leaves(given), jax.tree.leaves(expected), strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            problem = f'result {k}: {one.dtype}{one.shape}, not {other.dtype}{other.shape}'
        elif not np.allclose(one, other, rtol=1e-5, atol=1e-5, equal_nan=True):
            problem = f'result {k} differs by {np.max(np.abs(np.asarray(one) - np.asarray(other)))}'
        for a, b in [(s, t) for s in getattr(one, 'addressable_shards', []) for t in one.addressable_shards
                     if s.index == t.index]:
            if np.asarray(a.data).tobytes() != np.asarray(b.data).tobytes():
                problem = f'result {k}: copies on devices differ'
    outcomes[name] = problem


def check(name, f, *args, specs, out=None, on=mesh, **options):
    """f of arrays cut by `specs` (None: left open), results by `out` (None: left open)."""
    try:
        shardings = [None if s is None else NamedSharding(on, s) for s in specs]
        if out is not None:
            options['out_shardings'] = jax.tree.map(lambda s: NamedSharding(on, s), out,
                                                    is_leaf=lambda s: isinstance(s, P))
        placed = [a if s is None else jax.device_put(a, s) for a, s in zip(args, shardings)]
        given = jax.jit(f, **options)(*placed)
        with jax.default_device(cpu):
            expected = jax.jit(f)(*args)
        report(name, given, expected)
        if out is not None:
            for one, sharding in zip(jax.tree.leaves(given), jax.tree.leaves(options['out_shardings'])):
                if not one.sharding.is_equivalent_to(sharding, one.ndim):
                    outcomes[name] = f'has the sharding {one.sharding}'
    except Exception as error:
        outcomes[name] = repr(error)[:400]


def manual(name, f, expected, *args, ins, outs, on=line, **options):
    """f in parts beside `expected`, which numpy or jaxlib's CPU computes of the whole."""
    try:
        given = jax.jit(shard_map(f, mesh=on, in_specs=ins, out_specs=outs, **options))(*args)
        with jax.default_device(cpu):
            report(name, given, expected(*args))
    except Exception as error:
        outcomes[name] = repr(error)[:400]


def constrained(x, *spec):
    # On jaxlib's CPU, without a mesh, a constraint means nothing.
    return x if jax.config.jax_default_device == cpu else lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))
'''

CUT = '''
a, b, c = array(8, 16), array(16, 12), array(8, 16)
check('elementwise', lambda a, c: jnp.tanh(a) * 2 + c, a, c, specs=[P('x', 'y'), P('x', 'y')], out=P('x', 'y'))
check('elementwise apart', lambda a, c: jnp.where(a > 0, a, c), a, c, specs=[P('x', 'y'), P('y')], out=P(None, 'x'))
check('product', jnp.dot, a, b, specs=[P('x', 'y'), P('y')], out=P('x'))
check('product, open', jnp.dot, a, b, specs=[P('x', None), P(None, 'y')])
check('product, argument open', jnp.dot, a, b, specs=[P('x', None), None], out=P('x', 'y'))
check('device order', jnp.dot, a, b, specs=[P('x', 'y'), P('y')], out=P('y', 'x'), on=permuted)
check('sub-axes', lambda a: a.reshape(2, 4, 16).sum(1), a, specs=[P(('y', 'x'))], out=P('x', 'y'))
check('reductions', lambda a: (a.sum(0), a.max(1), a.argmin(0), a.mean()), a, specs=[P('x', 'y')])
check('softmax', lambda a: jax.nn.softmax(a, 1), a, specs=[P(None, ('x', 'y'))], out=P('y', 'x'))
check('sort', lambda a: (jnp.sort(a, 0), jnp.argsort(a, 1)), a, specs=[P('x', 'y')], out=(P('x'), P('y')))
check('running sums', lambda a: (jnp.cumsum(a, 0), lax.cummax(a, 1)), a, specs=[P('x', 'y')])
check('gather, scatter', lambda a, i: (a[i], a.at[i].add(1.0)), a, np.array([3, 0, 9, -1, 3]), specs=[P('x', 'y'), P()])
check('convolution', lambda v, w: lax.conv_general_dilated(v, w, (1, 1), 'SAME'), array(2, 3, 8, 8), array(4, 3, 3, 3),
      specs=[P('x', None, 'y'), P()], out=P('x', 'y'))
check('gradient', jax.grad(lambda a, b: jnp.sum(jnp.tanh(a @ b) ** 2), (0, 1)), a, b, specs=[P('x'), P(None, 'y')])
check('loop', lambda a: lax.fori_loop(0, 5, lambda i, v: v * 0.5 + jnp.roll(v, 1, 0), a), a, specs=[P('x', 'y')], out=P('x', 'y'))
check('scan', lambda a, c: lax.scan(lambda s, r: (s + r, s * r), c[0], a), a, c, specs=[P('x'), P(None, 'y')])
check('branches', lambda a: lax.cond(a[0, 0] > 0, lambda v: v + 1, lambda v: v[::-1], a), a, specs=[P('x', 'y')])
check('uneven inside', lambda v: constrained(constrained(v, 'y') * 2, None, 'x')[1:, ::-1], array(7, 5), specs=[P()])
check('constraint and none', lambda a: constrained(a, P.UNCONSTRAINED, 'x') + 1, a, specs=[P('x')])
check('functions', lambda a: jax.jit(jnp.sin)(a) + jax.jit(jnp.sin)(a.T).T, a, specs=[P('x', 'y')])
check('random numbers', lambda k: jax.random.normal(k, (8, 4)), np.array([1, 2], np.uint32), specs=[P()], out=P('x', 'y'))
check('factorisation', lambda v: jnp.linalg.cholesky(v @ v.swapaxes(1, 2) + 9 * jnp.eye(4)), array(4, 4, 4), specs=[P('y')], out=P('y'))
check('transform', lambda a: jnp.fft.fft(a, axis=1), a, specs=[P('x', 'y')], out=P('x', 'y'))
check('no elements', lambda v: (v * 2, v.sum(0)), array(0, 8), specs=[P(None, 'y')])
check('integers of four bits', lambda v: (v.astype(jnp.int4) + jnp.int4(1)).astype(jnp.int8), np.arange(-4, 4, dtype=np.int8), specs=[P('x')])
check('one result twice', lambda a: (a + 1, a + 1, a), a, specs=[P('x')], out=(P('y'), P(), P('x')))
check('complex', lambda v: jnp.conj(v) @ v.T, (array(4, 4) + 1j * array(4, 4)).astype(np.complex64), specs=[P('x', 'y')], out=P('y'))
'''

# Dimensions that are cut, of which neighbours need borders. The first three are those that jaxlib's
# own partitioner computes wrongly over a mesh with an axis left over.
NEIGHBOURS = '''
image, kernel = array(2, 3, 10, 8), array(4, 3, 3, 3)


def convolved(v, w, strides=(1, 1), pads='SAME', **more):
    return lax.conv_general_dilated(v, w, strides, pads, **more)


def pooled(v, size=3, stride=2):
    return lax.reduce_window(v, -np.inf, lax.max, (1, 1, size, size), (1, 1, stride, stride), 'SAME')


tall = P(None, None, 'y')
# Gradients of whole numbers, whose sums are exact: jaxlib's of others differ between processors.
whole, weights = jnp.floor(array(2, 3, 16, 8) * 2), jnp.floor(kernel * 4)
check('gradients of a convolution', jax.grad(lambda v, w: jnp.sum(convolved(v, w) ** 2), (0, 1)), whole, weights,
      specs=[tall, P()], out=(tall, P()))
check('two initial values', lambda v: (lax.reduce_window(v, 0., lax.add, (3, 1), (1, 1), 'SAME'),
                                       lax.reduce_window(v, -np.inf, lax.max, (3, 1), (1, 1), 'SAME')), array(8, 4) - 5,
      specs=[P('y')], out=(P('y'), P('y')))
check('pads', lambda v: (lax.pad(v, 1., [(-1, 1, 0), (0, 0, 0)]), lax.pad(v, 2., [(-2, 3, 2), (0, 0, 0)]), lax.pad(v, 3., [(3, -1, 1), (0, 2, 0)])),
      array(9, 4), specs=[P()], out=(P(), P('x'), P(None, 'x')))
check('convolutions', lambda v, w: (convolved(v, w, (2, 1)), convolved(v, w, rhs_dilation=(2, 2)), convolved(v, w, pads=[(2, 1), (0, 0)], lhs_dilation=(2, 3)),
                                    convolved(v, w, pads='VALID')), array(2, 3, 16, 8), kernel, specs=[P('x', None, 'y'), P()])
check('gradient of strides', jax.grad(lambda v, w: jnp.sum(convolved(v, w, (2, 2)) ** 2), (0, 1)), whole, weights, specs=[tall, P()], out=(tall, P()))
check('gradient of pools', jax.grad(lambda v: jnp.sum(pooled(v) ** 2)), jnp.floor(array(2, 3, 16, 9) * 2), specs=[P(None, None, 'y', None)],
      out=P(None, None, 'y', None))
check('moves', lambda v: (v[2:10], v[::2], v[::-1], jnp.roll(v, 5, 0), jnp.concatenate([v, 2 * v]), jnp.pad(v[1:], ((0, 1), (0, 0)))), array(16, 4),
      specs=[P('y')], out=(P('y'),) * 6)
check('differences', lambda v: (jnp.sum((v[1:] - v[:-1]) ** 2), (v[2:] - 2 * v[1:-1] + v[:-2]).max(0)), array(13, 8), specs=[P(None, 'x')], out=(P(), P('x')))
check('steps', lambda v: lax.fori_loop(0, 4, lambda i, u: u + .1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u), v),
      array(16, 8), specs=[P('y', 'x')], out=P('y', 'x'))
check('scans', lambda v: (lax.associative_scan(jnp.multiply, v), jnp.cumsum(v[::-1], 0), lax.cummin(v, 0, reverse=True)), array(16, 4) * .1 + 1,
      specs=[P('y')], out=(P('y'),) * 3)
check('uneven', lambda v: jnp.cumsum(constrained(jnp.sin(v), 'y')[1:] * constrained(v, 'y')[:-1], 0, dtype=jnp.float32), array(11, 3), specs=[P()])
check('pieces', lambda v, u, i: (lax.dynamic_slice_in_dim(v, i, 3), lax.dynamic_update_slice_in_dim(v, u, i, 0), lax.dynamic_update_slice_in_dim(v, v[:9], i, 0)),
      array(16, 4), array(2, 4), np.int32(5), specs=[P('y'), P(), P()], out=(P(), P('y'), P('y')))
check('sums of sums', lambda a, b, v: a @ b + v @ b - b.T @ b, array(8, 8), array(8, 8), array(8, 8), specs=[P(None, 'y'), P('y'), P(None, 'y')], out=P('y'))
check('transforms', lambda v: (jnp.fft.ifft(jnp.fft.fft(v, axis=0) * 2, axis=0).real, jnp.sort(v, 0)), array(16, 8), specs=[P('y')], out=(P('y'), P('y')))
'''

MANUAL = '''
v = np.arange(16, dtype=np.float32)
manual('sum', lambda v: lax.psum(v, 'i'), lambda v: v.reshape(8, 2).sum(0), v, ins=P('i'), outs=P())
manual('sum and place', lambda v: lax.psum_scatter(v, 'i', tiled=True), lambda v: v.reshape(8, 16).sum(0), array(128), ins=P('i'), outs=P('i'))
manual('ring', lambda v: lax.ppermute(v, 'i', [(k, (k + 1) % 8) for k in range(8)]), lambda v: np.roll(v, 2), v, ins=P('i'), outs=P('i'))
manual('gather', lambda v: lax.all_gather(v, 'i', tiled=True) * (1 + lax.axis_index('i')),
       lambda v: np.concatenate([v * (1 + k) for k in range(8)]), v, ins=P('i'), outs=P('i'))
manual('exchange', lambda v: lax.all_to_all(v, 'i', 1, 0, tiled=True), lambda v: v, array(8, 8), ins=P('i', None), outs=P(None, 'i'))
manual('two axes', lambda a, b: lax.psum(a @ b, 'y'), lambda a, b: a @ b, array(8, 16), array(16, 4), ins=(P('x', 'y'), P('y', None)), outs=P('x', None), on=mesh)
manual('device order', lambda a, b: lax.psum(a @ b, 'y'), lambda a, b: a @ b, array(8, 16), array(16, 4), ins=(P('x', 'y'), P('y', None)), outs=P('x', None), on=permuted)
manual('loop', lambda v: lax.fori_loop(0, 3, lambda i, s: s + lax.pmean(s, 'i'), v),
       lambda v: functools.reduce(lambda s, _: s + np.tile(s.reshape(8, 2).mean(0), 8), range(3), v), v, ins=P('i'), outs=P('i'))
check('inside of a program', lambda a: shard_map(lambda p: p - lax.pmax(p, 'x'), mesh=mesh, in_specs=P('x', 'y'), out_specs=P('x', 'y'))(a * 2).sum(0)
      if jax.config.jax_default_device != cpu else (a * 2 - jnp.tile((a * 2).reshape(2, 4, 16).max(0), (2, 1))).sum(0), array(8, 16), specs=[P('y')])
check('parts as they come', lambda a: shard_map(lambda p: p, mesh=mesh, in_specs=P('x', 'y'), out_specs=P('x', 'y'))(a)
      if jax.config.jax_default_device != cpu else a, array(8, 16), specs=[P('x', 'y')])
if hasattr(jax, 'shard_map'):
    check('some axes', lambda a: shard_map(lambda p: (p + lax.axis_index('x')) @ p.T, mesh=mesh, in_specs=P('x'), out_specs=P('x'), axis_names={'x'})(a)
          if jax.config.jax_default_device != cpu else jnp.concatenate([a[:4] @ a[:4].T, (a[4:] + 1) @ a[4:].T]), array(8, 16), specs=[P('x', 'y')])
try:
    w = array(8, 3)
    report('pmap', jax.pmap(lambda v: v / lax.psum(v, 'i'), axis_name='i')(w), w / w.sum(0))
    report('pmap, nothing shared', jax.pmap(lambda v, s: v * s, in_axes=(0, None))(w, np.float32(3)), w * 3)
    placed = jax.device_put(w, NamedSharding(line, P('i')))
    turned = jax.device_put(placed, NamedSharding(Mesh(np.array(devices)[::-1], ('i',)), P('i')))
    report('another device order', turned, w)
    report('indexed', placed[3:5, 1], w[3:5, 1])
    step = jax.jit(lambda s: s * 2 + 1, donate_argnums=0)
    placed = step(step(placed))
    report('donated', placed, w * 4 + 3)
except Exception as error:
    outcomes['pmap and the rest'] = repr(error)[:400]
'''


# Bodies over x alone, in which y goes on cutting: the same with x as a batch on one device.
PARTIAL = '''
NEW = jax.__version_info__ >= (0, 9)


def over_x(name, body, whole, *args, specs, ins, outs, out=None, **options):
    check(name, lambda *a: shard_map(body, mesh=mesh, in_specs=ins, out_specs=outs, axis_names={'x'}, **options)(*a)
          if jax.config.jax_default_device != cpu else whole(*a), *args, specs=specs, out=out)


def halves(a, axis=0):
    return jnp.stack(jnp.split(a, 2, axis))


def inside(p, *spec):
    return lax.with_sharding_constraint(p, P(*spec)) if NEW else p


over_x('free axis contracted', lambda p, w: lax.psum(jnp.tanh(p @ w) @ w.T, 'x'), lambda a, w: (jnp.tanh(halves(a) @ w) @ w.T).sum(0),
       array(8, 16), array(16, 12), specs=[P('x', 'y'), P('y', None)], ins=(P('x'), P()), outs=P(), out=P())
over_x('collectives of parts', lambda p: (lax.all_gather(p, 'x', tiled=True) * 2, lax.psum_scatter(p, 'x', tiled=True), lax.ppermute(p, 'x', [(0, 1), (1, 0)]),
                                          lax.all_to_all(p, 'x', 0, 2, tiled=True), lax.pmax(p, 'x')),
       lambda a: (jnp.concatenate([a, a]) * 2, halves(a).sum(0), jnp.roll(a, 4, 0), jnp.concatenate([a[:4], a[4:]], 2), halves(a).max(0)),
       array(8, 8, 6), specs=[P('x', 'y')], ins=P('x'), outs=(P('x'), P('x'), P('x'), P('x'), P()), check_vma=False)
over_x('sorts and sums', lambda p: (jnp.sort(p, 1), jnp.cumsum(p, 1), p.sum(1), p[:, ::-1], jnp.roll(p, 3, 1)),
       lambda a: (jnp.sort(a, 1), jnp.cumsum(a, 1), a.sum(1), a[:, ::-1], jnp.roll(a, 3, 1)), array(8, 16), specs=[P('x', 'y')],
       ins=P('x'), outs=(P('x'),) * 5, out=(P('x', 'y'), P('x', 'y'), P('x'), P('x', 'y'), P('x', 'y')))
over_x('loop of parts', lambda p, w: lax.fori_loop(0, 3, lambda i, s: jnp.tanh(s @ w) + lax.psum(s, 'x').mean(0), p),
       lambda a, w: lax.fori_loop(0, 3, lambda i, s: jnp.concatenate([jnp.tanh(h @ w) + (s[:4] + s[4:]).mean(0) for h in (s[:4], s[4:])]), a),
       array(8, 12), array(12, 12), specs=[P('x'), P(None, 'y')], ins=(P('x'), P()), outs=P('x'))
over_x('constraints inside', lambda p: inside(inside(p * 2, None, 'y') + 1, 'y', None).T @ p, lambda a: jnp.concatenate([(h * 2 + 1).T @ h for h in halves(a)]),
       array(8, 8), specs=[P()], ins=P('x'), outs=P('x'))
over_x('uneven inside', lambda p: jnp.cumsum(inside(jnp.sin(p), None, 'y'), 1)[:, 1:], lambda a: jnp.cumsum(jnp.sin(a), 1)[:, 1:], array(8, 7), specs=[P()],
       ins=P('x'), outs=P('x'))
check('one in another', lambda a, b: shard_map(lambda p, q: shard_map(lambda r, s: lax.psum(r @ s, 'y'), in_specs=(P(None, 'y'), P('y')), out_specs=P(), axis_names={'y'})(jnp.sin(p), q) * 2,
                                               mesh=mesh, in_specs=(P('x'), P()), out_specs=P('x'), axis_names={'x'})(a, b)
      if jax.config.jax_default_device != cpu else jnp.sin(a) @ b * 2, array(8, 16), array(16, 4), specs=[P('x', 'y'), P('y')])
'''


# Both dialects are one graph before a device sees it, and releases but the newest run on one device.
IS_NEWEST = tuple(map(int, jaxlib.__version__.split('.')[:2])) >= (0, 10)


@pytest.mark.parametrize('gspmd', [
    pytest.param(False, id='shardy'),
    pytest.param(True, id='gspmd', marks=[pytest.mark.any_platform] if IS_NEWEST else [])])
@pytest.mark.parametrize('programs', [CUT, NEIGHBOURS, MANUAL, PARTIAL], ids=['cut', 'neighbours', 'manual', 'partial'])
def test_programs_over_eight_devices(child, ours, gspmd, programs):
    if not ours:
        pytest.skip('a foreign plugin has its own way to make devices')
    code = START.replace('GSPMD', str(gspmd)) + programs + '\nprint(json.dumps(outcomes))'
    done = child(code, HEKLA_NUM_DEVICES='8')
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = json.loads(done.stdout.split('\n')[-2])
    assert len(outcomes) >= {CUT: 27, NEIGHBOURS: 14, MANUAL: 14, PARTIAL: 7}[programs]
    assert not {name: problem for name, problem in outcomes.items() if problem}
