# SPDX-License-Identifier: Apache-2.0
"""Layouts that a client asks for: arrays, parameters and results that do not lie row by row."""
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding

pytestmark = pytest.mark.quick

VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
ORDERS = list(itertools.permutations(range(3)))


@pytest.fixture
def laid_out(device):
    return lambda order: Format(Layout(major_to_minor=tuple(order)), SingleDeviceSharding(device))


def order_of(array):
    return tuple(array.format.layout.major_to_minor)


@pytest.mark.parametrize('order', ORDERS)
@pytest.mark.parametrize('dtype', ['float32', 'int8', 'complex64', 'bfloat16', 'bool'])
def test_arrays(laid_out, order, dtype):
    host = np.asarray(jnp.asarray(VALUES).astype(dtype))
    for given in (host, host.T.copy().T, host[::-1][::-1]):
        there = jax.device_put(given, laid_out(order))
        assert order_of(there) == order
        np.testing.assert_array_equal(np.asarray(there), host)


@pytest.mark.parametrize('order', ORDERS)
def test_into_programs_and_on(device, laid_out, order):
    there = jax.device_put(VALUES, laid_out(order))
    out = jax.jit(lambda x: (x * 2 + 1, x.sum(1), x[1]))(there)
    for one, other in zip(out, (VALUES * 2 + 1, VALUES.sum(1), VALUES[1]), strict=True):
        assert order_of(one) == tuple(range(one.ndim))
        np.testing.assert_array_equal(one, other)
    plain = jax.device_put(there, Format(Layout(major_to_minor=(0, 1, 2)), SingleDeviceSharding(device)))
    assert order_of(plain) == (0, 1, 2)
    np.testing.assert_array_equal(plain, VALUES)


@pytest.mark.parametrize('order', ORDERS)
def test_results(device, laid_out, order):
    x = jax.device_put(VALUES, device)
    program = jax.jit(lambda x: (x + 1, x.T), out_shardings=(laid_out(order), laid_out(order)))
    plus, turned = program(x)
    assert order_of(plus) == order_of(turned) == order
    np.testing.assert_array_equal(plus, VALUES + 1)
    np.testing.assert_array_equal(turned, VALUES.T)
    formats = program.lower(x).compile().output_formats
    assert [tuple(f.layout.major_to_minor) for f in formats] == [order, order]
    # And from one program into the next.
    np.testing.assert_array_equal(jax.jit(lambda a, b: a.T * b)(plus, turned), (VALUES + 1).T * VALUES.T)


def test_parameters_that_ask(device, laid_out):
    program = jax.jit(lambda x: x @ x.T, in_shardings=laid_out((1, 0)))
    host = np.arange(12, dtype=np.float32).reshape(3, 4)
    for given in (host, jnp.asarray(host)):
        for _ in range(2):
            np.testing.assert_array_equal(program(given), host @ host.T)
    compiled = program.lower(host).compile()
    assert tuple(compiled.input_formats[0][0].layout.major_to_minor) == (1, 0)


def test_what_is_left_open_needs_no_transpose(device):
    x = jax.device_put(VALUES, device)
    program = jax.jit(lambda x: (x.T, x * 2), out_shardings=Format(Layout.AUTO)).lower(x).compile()
    turned, doubled = program(x)
    assert order_of(turned) == (2, 1, 0) and order_of(doubled) == (0, 1, 2)
    np.testing.assert_array_equal(turned, VALUES.T)
    np.testing.assert_array_equal(doubled, VALUES * 2)


def test_donation_within_a_layout(device, laid_out, shim):
    if not shim:
        pytest.skip('the package allows donation')
    given = laid_out((2, 1, 0))
    x = jax.device_put(VALUES, given)
    out = jax.jit(lambda x: x * x, in_shardings=given, out_shardings=given, donate_argnums=0)(x)
    assert x.is_deleted() and order_of(out) == (2, 1, 0)
    np.testing.assert_array_equal(out, VALUES * VALUES)


def test_kinds_of_memory_keep_them(device, laid_out):
    there = jax.device_put(VALUES, laid_out((2, 0, 1)))
    host = jax.device_put(there, there.sharding.with_memory_kind('pinned_host'))
    np.testing.assert_array_equal(host, VALUES)
    np.testing.assert_array_equal(jax.device_put(host, there.sharding), VALUES)


def test_other_readers_see_values_in_their_places(laid_out, shim, tmp_path):
    there = jax.device_put(VALUES, laid_out((2, 1, 0)))
    if shim:
        np.testing.assert_array_equal(np.from_dlpack(there), VALUES)
    checkpoint = pytest.importorskip('hekla.checkpoint')
    with checkpoint.CheckpointManager(str(tmp_path / 'run')) as manager:
        manager.save(1, {'x': there})
        np.testing.assert_array_equal(manager.restore(like={'x': there})['x'], VALUES)


SHARDED = '''
import json
import jax, numpy as np
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ('x', 'y'))
cut = NamedSharding(mesh, P('x', 'y'))
values = np.arange(128, dtype=np.float32).reshape(8, 16)
column = Format(Layout(major_to_minor=(1, 0)), cut)
outcomes = {}


def note(name, array, want):
    orders = {tuple(s.data.format.layout.major_to_minor) for s in array.addressable_shards}
    outcomes[name] = [sorted(orders), bool(np.array_equal(np.asarray(array), want))]


there = jax.device_put(values, column)
note('put', there, values)
note('product', jax.jit(lambda x: x @ x.T)(there), values @ values.T)
note('result', jax.jit(lambda x: x + 1, out_shardings=column)(jax.device_put(values, cut)), values + 1)
note('open', jax.jit(lambda x: x.T, out_shardings=Format(Layout.AUTO)).lower(jax.device_put(values, cut)).compile()(
    jax.device_put(values, cut)), values.T)
print(json.dumps(outcomes))
'''


def test_over_four_devices(child):
    run = child(SHARDED, HEKLA_NUM_DEVICES='4')
    assert run.returncode == 0, run.stderr
    outcomes = json.loads(run.stdout.splitlines()[-1])
    assert outcomes == {'put': [[[1, 0]], True], 'product': [[[0, 1]], True], 'result': [[[1, 0]], True],
                        'open': [[[1, 0]], True]}
