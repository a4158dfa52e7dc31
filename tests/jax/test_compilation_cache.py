# SPDX-License-Identifier: Apache-2.0
"""JAX's persistent compilation cache: what a process compiled, the next one reads."""
import jax
import numpy as np
import pytest

EVENTS = '/jax/compilation_cache/'


@pytest.fixture
def cache(shim, tmp_path):
    """List of the cache's events while it is in use."""
    if not shim:
        pytest.skip('the package lets JAX keep executables')
    from jax._src import compilation_cache, monitoring
    events = []

    def note(event, **_):
        if event.startswith(EVENTS):
            events.append(event.removeprefix(EVENTS))
    options = {'jax_compilation_cache_dir': str(tmp_path), 'jax_enable_compilation_cache': True,
               'jax_persistent_cache_min_compile_time_secs': 0,
               'jax_persistent_cache_min_entry_size_bytes': -1}
    before = {name: getattr(jax.config, name) for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    monitoring.register_event_listener(note)
    yield events
    monitoring.unregister_event_listener(note)
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_an_executable_is_kept_and_read(device, cache):
    def f(x, y):
        return (x @ y).sum(axis=0), x + 1
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    args = jax.device_put((x, x.T), device)
    first = jax.jit(f)(*args)
    assert 'cache_misses' in cache and 'cache_hits' not in cache
    del cache[:]
    jax.clear_caches()
    second = jax.jit(f)(*args)
    assert 'cache_hits' in cache and 'cache_misses' not in cache
    for a, b in zip(first, second):
        np.testing.assert_array_equal(np.asarray(a).view(np.uint32), np.asarray(b).view(np.uint32))
    np.testing.assert_array_equal(second[0], (x @ x.T).sum(axis=0))


def test_platforms_do_not_share_entries(device, cpu, cache, platform):
    if platform == 'cpu':
        pytest.skip('one platform')
    f = lambda x: x * 3
    x = np.arange(4, dtype=np.float32)
    jax.jit(f)(jax.device_put(x, cpu))
    assert cache.count('cache_misses') == 1
    jax.clear_caches()
    jax.jit(f)(jax.device_put(x, device))
    assert cache.count('cache_misses') == 2 and 'cache_hits' not in cache
