# SPDX-License-Identifier: Apache-2.0
"""Programs whose temporaries are in several pieces of memory, as where a device has no piece that is large
enough for all of them: the same bits, however small the pieces are (hekla_arena_limit_bytes)."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest

LIMITS = [1, 4096, 1 << 16, 1 << 40]


@pytest.fixture(scope='module')
def device():
    device = jax.devices()[0]
    if device.platform in ('reference', 'cpu'):
        pytest.skip('has no launch plans')
    return device


def train(weights, x, y):
    def loss(weights):
        def layer(h, w):
            return jnp.tanh(h @ w + jnp.sort(h, axis=1) * 0.1), h.mean()
        h, means = jax.lax.scan(layer, x, weights)
        return ((h - y) ** 2).mean() + means.sum()
    value, gradient = jax.value_and_grad(loss)(weights)
    return value, weights - 0.1 * gradient


def search(x):
    def body(state):
        i, x, best = state
        moved = jnp.roll(x, 1, axis=0) @ x.T @ x / 1000
        return i + 1, moved / jnp.abs(moved).max(), jnp.maximum(best, moved.max())
    def goes_on(state):
        return (state[0] < 7) & (state[2] < 1e6)
    return jax.lax.while_loop(goes_on, body, (0, x, jnp.float32(-1)))


def branches(x):
    return jax.lax.cond(x.sum() > 0, lambda x: jnp.cumsum(x @ x.T, axis=0), lambda x: (x @ x.T) ** 2, x)


def asks_the_host(x):
    y = jnp.exp(x @ x.T / 100)
    z = jax.pure_callback(lambda y: np.asarray(y) * 2, jax.ShapeDtypeStruct(y.shape, y.dtype), y)
    return (z @ y).sum(axis=0) + jnp.sort(y, axis=0)


def normal(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


PROGRAMS = {
    'train': (train, (normal(3, 48, 48) / 7, normal(40, 48), normal(40, 48)), (0,)),
    'search': (search, (normal(30, 64),), ()),
    'branches': (branches, (normal(64, 33),), ()),
    'asks_the_host': (asks_the_host, (normal(50, 60),), ()),
}


@pytest.mark.quick
@pytest.mark.parametrize('fuse', ['true', 'false'])
@pytest.mark.parametrize('name', PROGRAMS)
def test_gives_the_same_bits(device, shim, name, fuse):
    if name == 'asks_the_host' and not shim:
        pytest.skip("the rules for callbacks are the package hekla's")
    function, args, donated = PROGRAMS[name]

    def run(**options):
        compiled = jax.jit(function, donate_argnums=donated, compiler_options={'hekla_fuse': fuse, **options})
        results = []
        for _ in range(2):
            got = compiled(*[jax.device_put(x, device) for x in args])
            results.append([np.asarray(leaf) for leaf in jax.tree.leaves(got)])
        return results
    want = run()[0]
    for leaf in want:
        assert np.isfinite(leaf).all()
    for limit in LIMITS:
        for got in run(hekla_arena_limit_bytes=str(limit)):
            for mine, expected in zip(got, want, strict=True):
                assert mine.tobytes() == expected.tobytes(), limit


@pytest.mark.quick
def test_sizes_are_of_all_pieces(device):
    """Two values of 160,000 bytes do not fit where one of 262,144 was."""
    def function(x, y):
        a = x @ x.T
        ends = a.sum(0), a.sum(1)
        b, c = y @ y.T, -y @ y.T
        return *ends, b.sum(0), c.sum(0), b.sum(1), c.sum(1)

    def temporary(**options):
        shapes = [jax.ShapeDtypeStruct((n, 2), np.float32, sharding=jax.sharding.SingleDeviceSharding(device))
                  for n in (256, 200)]
        compiled = jax.jit(function, compiler_options={'hekla_fuse': 'false', **options}).lower(*shapes).compile()
        return compiled.memory_analysis().temp_size_in_bytes
    least = 262_144 + 160_000
    assert temporary() < least <= temporary(hekla_arena_limit_bytes='1')
    assert temporary(hekla_arena_limit_bytes=str(1 << 40)) == temporary()
