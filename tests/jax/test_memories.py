# SPDX-License-Identifier: Apache-2.0
"""Kinds of memory: what devices have, arrays that live there, programs that read and write them."""
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import compute_on
from jax.sharding import SingleDeviceSharding

pytestmark = pytest.mark.quick

KINDS = ('device', 'pinned_host', 'unpinned_host')
HOST_KINDS = KINDS[1:]


@pytest.fixture
def place(device):
    return lambda kind: SingleDeviceSharding(device, memory_kind=kind)


def kind_of(array):
    kinds = {shard.data.sharding.memory_kind for shard in array.addressable_shards}
    assert kinds == {array.sharding.memory_kind}
    return array.sharding.memory_kind


def host_bytes(device):
    """Bytes of arrays in host memory; negative where the device does not count them apart."""
    return device.memory_stats()['bytes_reserved']


def test_kinds(device):
    assert [memory.kind for memory in device.addressable_memories()] == list(KINDS)
    assert device.default_memory().kind == 'device'
    for kind in KINDS:
        memory = device.memory(kind)
        assert memory.kind == kind and memory.addressable_by_devices() == [device]
    with pytest.raises(Exception, match='(?i)memory'):
        device.memory('hbm')
    assert SingleDeviceSharding(device) == SingleDeviceSharding(device, memory_kind='device')


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('shape', [(), (5,), (3, 4), (2, 0)])
def test_arrays_live_there(place, kind, shape):
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    there = jax.device_put(values, place(kind))
    assert kind_of(there) == kind
    np.testing.assert_array_equal(there, values)
    for other in KINDS:
        moved = jax.device_put(there, place(other))
        assert kind_of(moved) == other
        np.testing.assert_array_equal(moved, values)
        back = jax.device_put(moved, there.sharding)
        assert kind_of(back) == kind
        np.testing.assert_array_equal(back, values)


def test_a_copy_is_of_its_own(place):
    there = jax.device_put(np.arange(6.0), place('device'))
    copy = jax.device_put(there, place('pinned_host'))
    there.delete()
    np.testing.assert_array_equal(copy, np.arange(6.0))


@pytest.mark.parametrize('kind', HOST_KINDS)
def test_results_live_where_they_are_wanted(place, kind):
    x = jax.device_put(np.arange(12, dtype=np.float32).reshape(3, 4), place('device'))
    program = jax.jit(lambda x: (x * 2, x.sum(0)), out_shardings=(place(kind), place('device')))
    big, small = program(x)
    assert (kind_of(big), kind_of(small)) == (kind, 'device')
    np.testing.assert_array_equal(big, np.asarray(x) * 2)
    compiled = program.lower(x).compile()
    assert [s.memory_kind for s in compiled.output_shardings] == [kind, 'device']
    sizes = compiled.memory_analysis()
    assert (sizes.output_size_in_bytes, sizes.host_output_size_in_bytes) == (small.nbytes, big.nbytes)
    # From there into a program again, and on.
    again = jax.jit(lambda a: a + 1, in_shardings=place(kind), out_shardings=place('device'))(big)
    assert kind_of(again) == 'device'
    np.testing.assert_array_equal(again, np.asarray(x) * 2 + 1)


def test_parameters_of_another_kind_are_refused(place):
    x = jax.device_put(np.ones(3, np.float32), place('pinned_host'))
    with pytest.raises(ValueError, match='[Mm]emory kind'):
        jax.jit(lambda a: a + 1, in_shardings=place('device'))(x)


@pytest.mark.parametrize('kind', HOST_KINDS)
def test_device_put_within_a_program(place, kind):
    x = jax.device_put(np.arange(8, dtype=np.float32), place('device'))

    @jax.jit
    def program(x):
        saved = jax.device_put(jnp.sin(x), place(kind))
        back = jax.device_put(saved, place('device'))
        return saved, back * 2
    saved, doubled = program(x)
    # JAX itself tells programs of no other host memory than this one.
    assert (kind_of(saved), kind_of(doubled)) == (kind if kind == 'pinned_host' else 'device', 'device')
    np.testing.assert_allclose(saved, np.sin(np.asarray(x)), rtol=1e-6)
    np.testing.assert_allclose(doubled, 2 * np.sin(np.asarray(x)), rtol=1e-6)


def test_values_of_the_host_enter_a_program(place):
    x = jax.device_put(np.arange(8, dtype=np.float32), place('pinned_host'))

    @functools.partial(jax.jit, out_shardings=place('pinned_host'))
    def program(x):
        return jax.device_put(x, place('device')) * 3
    out = program(x)
    assert kind_of(out) == 'pinned_host'
    np.testing.assert_array_equal(out, np.asarray(x) * 3)


def test_loops_stream(place):
    """A step a time of what lives with the host, and its results back there."""
    xs = jax.device_put(np.arange(12, dtype=np.float32).reshape(4, 3), place('pinned_host'))

    @functools.partial(jax.jit, out_shardings=(place('device'), place('pinned_host')))
    def program(xs):
        def step(carry, x):
            carry = carry + jax.device_put(x, place('device'))
            return carry, jax.device_put(carry * 2, place('pinned_host'))
        return jax.lax.scan(step, jnp.zeros(3), xs)
    last, all_of_them = program(xs)
    sums = np.cumsum(np.asarray(xs), axis=0)
    assert (kind_of(last), kind_of(all_of_them)) == ('device', 'pinned_host')
    np.testing.assert_array_equal(last, sums[-1])
    np.testing.assert_array_equal(all_of_them, 2 * sums)


@pytest.mark.parametrize('policy', [
    jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=['y'], names_which_can_be_offloaded=['z'],
        offload_src='device', offload_dst='pinned_host'),
    jax.checkpoint_policies.offload_dot_with_no_batch_dims('device', 'pinned_host')],
    ids=['names', 'dots'])
def test_remat_that_offloads(device, cpu, policy):
    def model(x, w):
        y = checkpoint_name(jnp.sin(x @ w), 'y')
        z = checkpoint_name(jnp.cos(y @ w), 'z')
        return jnp.sum(jnp.tanh(z @ w) ** 2)
    random = np.random.RandomState(0)
    x, w = (random.randn(4, 4).astype(np.float32) for _ in range(2))
    with jax.default_device(cpu):
        want = jax.jit(jax.grad(model, argnums=(0, 1)))(x, w)
    got = jax.jit(jax.grad(jax.checkpoint(model, policy=policy), argnums=(0, 1)))(
        *(jax.device_put(a, device) for a in (x, w)))
    for one, other in zip(got, want, strict=True):
        assert kind_of(one) == 'device'
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize('kind', KINDS)
def test_donation_within_a_kind(place, shim, kind):
    if not shim:
        pytest.skip('the package allows donation')
    x = jax.device_put(np.arange(4096, dtype=np.float32), place(kind))
    out = jax.jit(lambda x: x + 1, donate_argnums=0, in_shardings=place(kind),
                  out_shardings=place(kind))(x)
    assert x.is_deleted() and kind_of(out) == kind
    np.testing.assert_array_equal(out, np.arange(4096) + 1)


@pytest.mark.filterwarnings('ignore:Some donated buffers were not usable')
def test_no_donation_across_kinds(place):
    x = jax.device_put(np.arange(4096, dtype=np.float32), place('pinned_host'))
    out = jax.jit(lambda x: x + 1, donate_argnums=0, out_shardings=place('device'))(x)
    assert not x.is_deleted()
    np.testing.assert_array_equal(out, np.asarray(x) + 1)


def test_host_memory_is_counted_apart(device, place, platform):
    if host_bytes(device) < 0:
        pytest.skip(f"{platform}'s memory is the host's")
    size = 1 << 20
    device_before, host_before = device.memory_stats()['bytes_in_use'], host_bytes(device)
    there = jax.device_put(np.zeros(size, np.uint8), place('pinned_host')).block_until_ready()
    assert host_bytes(device) == host_before + size
    out = jax.jit(lambda x: x + 1, out_shardings=place('unpinned_host'))(there)
    out.block_until_ready()
    assert host_bytes(device) == host_before + 2 * size
    assert device.memory_stats()['bytes_in_use'] < device_before + size
    del there, out
    assert host_bytes(device) == host_before


def double_sine(x):
    return jnp.sin(x) * 2


def in_a_scope(x):
    with compute_on.compute_on('device_host'):
        return double_sine(x)


def as_a_function(x):
    there = getattr(compute_on, 'compute_on2', compute_on.compute_on)
    return there(double_sine, compute_type='device_host', out_memory_spaces=jax.memory.Space.Device)(x)


def test_compute_on_gives_the_same_values(device, place):
    release = tuple(map(int, jax.__version__.split('.')[:2]))
    # The function was added in 0.10 and took the scope's name in 0.11, which has no scope.
    forms = [in_a_scope] * (release < (0, 11)) + [as_a_function] * (release >= (0, 10))
    x = jax.device_put(np.arange(8, dtype=np.float32), place('device'))
    for form in forms:
        np.testing.assert_allclose(jax.jit(lambda x, f=form: f(x) + 1)(x), np.sin(np.arange(8)) * 2 + 1, rtol=1e-6)


SHARDED = '''
import functools, json
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = jax.devices()[:8]
mesh = Mesh(np.array(devices).reshape(2, 4), ('x', 'y'))
outcomes = {}


def kinds(array):
    return sorted({array.sharding.memory_kind, *(s.data.sharding.memory_kind for s in array.addressable_shards)})


def note(name, array, values):
    outcomes[name] = [kinds(array), bool(np.allclose(np.asarray(array), values, rtol=1e-5))]


values = np.arange(64, dtype=np.float32).reshape(8, 8)
cut = NamedSharding(mesh, P('x', 'y'))
host = cut.with_memory_kind('pinned_host')
there = jax.device_put(values, host)
note('put', there, values)
note('back', jax.device_put(there, cut), values)
note('cut otherwise', jax.device_put(there, NamedSharding(mesh, P('y'), memory_kind='unpinned_host')), values)
note('result', jax.jit(lambda x: x @ x, out_shardings=host)(jax.device_put(values, cut)), values @ values)
note('both', jax.jit(lambda x: x * 2, in_shardings=host, out_shardings=host)(there), values * 2)


@jax.jit
def inside(x):
    return jax.device_put(jax.device_put(x, cut) * 3, host)


note('inside', inside(there), values * 3)
collectives = jax.jit(lambda x: x.sum(0), out_shardings=NamedSharding(mesh, P(), memory_kind='pinned_host'))
note('sum', collectives(jax.device_put(values, cut)), values.sum(0))
text = jax.jit(lambda x: x * 2, in_shardings=cut, out_shardings=host).lower(values).compile().as_text()
outcomes['gathers'] = ['all_gather' in text, True]
whole = NamedSharding(mesh, P())
scalar = jax.jit(lambda x: jax.device_put(x, whole) * 3, in_shardings=whole.with_memory_kind('pinned_host'),
                 out_shardings=whole).lower(np.float32(2)).compile()
outcomes['text'] = ['multiply' in scalar.as_text(), True]
print(json.dumps(outcomes))
'''


def test_over_eight_devices(child):
    run = child(SHARDED, HEKLA_NUM_DEVICES='8')
    assert run.returncode == 0, run.stderr
    outcomes = json.loads(run.stdout.splitlines()[-1])
    assert outcomes.pop('text') == [True, True]
    assert outcomes.pop('gathers') == [False, True]  # where an array lies does not undo its cut
    wanted = {'back': 'device', 'cut otherwise': 'unpinned_host'}
    for name, (kinds, is_right) in outcomes.items():
        assert is_right, name
        assert kinds == [wanted.get(name, 'pinned_host')], name


def test_a_device_without_memory_of_the_host(child, platform):
    """The same on a device that shares no memory with the host, as discrete GPUs are."""
    if platform != 'vulkan':
        pytest.skip('what Vulkan devices may be')
    run = child('''
import jax, numpy as np
from jax.sharding import SingleDeviceSharding
device = jax.devices()[0]
place = lambda kind: SingleDeviceSharding(device, memory_kind=kind)
x = jax.device_put(np.arange(1 << 18, dtype=np.float32), place('pinned_host'))
before = device.memory_stats()['bytes_in_use']
y = jax.jit(lambda x: x * 2, donate_argnums=0, out_shardings=place('pinned_host'))(x)
z = jax.jit(lambda y: y + 1, out_shardings=place('device'))(y)
assert x.is_deleted() and np.array_equal(y, 2 * np.arange(1 << 18)) and np.array_equal(z, np.asarray(y) + 1)
assert device.memory_stats()['bytes_in_use'] == before + z.nbytes
assert device.memory_stats()['bytes_reserved'] == y.nbytes
''', HEKLA_VULKAN_STAGING='1')
    assert run.returncode == 0, run.stderr


# Layers in a scan whose kept values are offloaded, and an optimizer whose state lives with the host.
OFFLOADED_TRAINING = '''
import functools
import jax, jax.numpy as jnp, numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import SingleDeviceSharding
random = np.random.RandomState(0)
layers = {name: (random.randn(4, 24, 24) / 5).astype(np.float32) for name in ('up', 'down')}
batch = random.randn(16, 24).astype(np.float32)
POLICIES = {
    'names': jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=['up'], names_which_can_be_offloaded=['down'],
        offload_src='device', offload_dst='pinned_host'),
    'dots': jax.checkpoint_policies.offload_dot_with_no_batch_dims('device', 'pinned_host'),
    'none': None,
}


def loss(layers, batch, policy):
    def layer(x, w):
        up = checkpoint_name(jnp.tanh(x @ w['up']), 'up')
        return x + checkpoint_name(jnp.sin(up @ w['down']), 'down'), None
    if policy is not None:
        layer = jax.checkpoint(layer, policy=policy)
    return jnp.mean(jax.lax.scan(layer, batch, layers)[0] ** 2)


def train(device, name, offloads):
    near = SingleDeviceSharding(device, memory_kind='device')
    far = SingleDeviceSharding(device, memory_kind='pinned_host') if offloads else near

    @functools.partial(jax.jit, out_shardings=(near, far, near), donate_argnums=(0, 1))
    def step(layers, moments, batch):
        value, grads = jax.value_and_grad(loss)(layers, batch, POLICIES[name])
        moments = jax.device_put(moments, near)
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, grads)
        layers = jax.tree.map(lambda p, m: p - 0.1 * m, layers, moments)
        return layers, moments, value
    state = jax.device_put(layers, near), jax.device_put(jax.tree.map(np.zeros_like, layers), far)
    values = []
    for _ in range(6):
        *state, value = step(*state, jax.device_put(batch, near))
        kinds = {leaf.sharding.memory_kind for leaf in jax.tree.leaves(state[1])}
        assert kinds == {far.memory_kind}, kinds
        values.append(float(value))
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)], values


for name in POLICIES:
    # jaxlib's CPU takes no kinds of its own within a program; values are the same wherever they lie.
    want, losses = train(jax.devices('cpu')[0], 'none', False)
    got, ours = train(jax.devices()[0], name, True)
    np.testing.assert_allclose(ours, losses, rtol=1e-5)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert losses[-1] < 0.9 * losses[0]
print('right')
'''


@pytest.mark.parametrize('kind', ['as it is', 'discrete'])
def test_offloaded_training(child, platform, shim, kind):
    if kind == 'discrete' and platform != 'vulkan':
        pytest.skip('what Vulkan devices may be')
    if not shim:
        pytest.skip('the package tells programs of placements')
    options = {'HEKLA_VULKAN_STAGING': '1', 'HEKLA_VULKAN_DEVICE_TYPE': 'discrete'} if kind == 'discrete' else {}
    run = child(OFFLOADED_TRAINING, **options)
    assert run.returncode == 0 and run.stdout.endswith('right\n'), run.stderr
