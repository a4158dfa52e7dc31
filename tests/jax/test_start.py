# SPDX-License-Identifier: Apache-2.0
"""Start-up, devices, what they say of themselves, and processes that must stay alive."""
import gc
import os
import pickle
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytestmark = pytest.mark.quick


def test_is_the_default_device(platform, device):
    assert jax.devices()[0] == device
    assert jax.jit(lambda x: x + 1)(1).devices() == {device}


def test_lists_devices(device, platform, ours):
    devices = jax.devices(platform)
    assert jax.local_devices(backend=platform) == devices
    assert jax.device_count(platform) == len(devices) >= 1
    assert sorted({d.id for d in devices}) == sorted(d.id for d in devices)
    assert device.process_index == 0
    if ours:
        assert device.platform == platform


def test_describes_devices(device):
    assert str(device) and repr(device)
    assert isinstance(device.device_kind, str) and device.device_kind
    assert device.client.platform_version.strip()
    assert repr(jnp.zeros(2).sharding)


def test_memories(device):
    memory = device.default_memory()
    assert memory in device.addressable_memories()
    assert device.memory(memory.kind) == memory
    assert repr(memory) and str(memory)


def settled_memory_stats(device):
    """Statistics once nothing of earlier tests is let go any more."""
    gc.collect()
    stats = device.memory_stats()
    while stats is not None:
        time.sleep(0.05)
        last, stats = stats, device.memory_stats()
        if last['bytes_in_use'] == stats['bytes_in_use']:
            break
    return stats


def test_memory_stats_follow_allocations(device, ours):
    before = settled_memory_stats(device)
    if not ours and before is None:
        pytest.skip('the foreign plugin has no memory statistics')
    x = jax.block_until_ready(jax.device_put(np.ones(1 << 20, np.float32), device))
    held = device.memory_stats()
    assert held['bytes_in_use'] >= before['bytes_in_use'] + x.nbytes
    assert held['peak_bytes_in_use'] >= held['bytes_in_use']
    x.delete()
    assert device.memory_stats()['bytes_in_use'] < held['bytes_in_use']


def test_live_arrays(device, platform):
    x = jax.device_put(np.arange(7), device)
    assert any(a is x for a in jax.live_arrays(platform))
    x.delete()
    assert not any(a is x for a in jax.live_arrays(platform))


def test_pickles_arrays():
    x = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(x)), x)


def test_analysis_of_a_compiled_program():
    compiled = jax.jit(lambda x: x @ x).lower(jnp.ones((4, 4))).compile()
    compiled.cost_analysis()
    compiled.memory_analysis()
    compiled.as_text()
    np.testing.assert_array_equal(compiled(jnp.ones((4, 4))), np.full((4, 4), 4.0))


def test_unknown_custom_call_is_a_clear_error():
    call = jax.ffi.ffi_call('hekla_no_such_kernel', jax.ShapeDtypeStruct((2,), jnp.float32))
    with pytest.raises(Exception, match='hekla_no_such_kernel'):
        jax.block_until_ready(jax.jit(call)(jnp.zeros(2)))
    assert float(jnp.sum(jnp.ones(3))) == 3.0


def test_unknown_compile_option_is_refused():
    lowered = jax.jit(lambda x: x + 1).lower(jnp.zeros(2))
    with pytest.raises(Exception, match='hekla_no_such_option'):
        lowered.compile(compiler_options={'hekla_no_such_option': '1'})


def test_out_of_memory_is_an_error_and_the_process_lives_on():
    # 64 TiB: no machine of ours has it, whatever its overcommit setting.
    with pytest.raises(Exception, match='(?i)memory|RESOURCE_EXHAUSTED|alloc'):
        jax.block_until_ready(jnp.zeros((1 << 44,), jnp.float32))
    assert float(jnp.sum(jnp.ones(3))) == 3.0


def test_process_ends_well_with_live_arrays(child):
    done = child('import jax, jax.numpy as jnp\n'
                 'keep = [jnp.arange(i) + 1 for i in range(1, 9)]\n'
                 'f = jax.jit(lambda x: x * 2); keep.append(f(keep[-1])); print("end")')
    assert done.returncode == 0 and done.stdout.endswith('end\n'), done.stderr


def test_clients_can_be_made_again(child):
    done = child('import jax, jax.numpy as jnp, jax.extend\n'
                 'for _ in range(3):\n'
                 '    print(float((jnp.ones(4) + 1).sum())); jax.extend.backend.clear_backends()')
    assert done.returncode == 0 and done.stdout == '8.0\n' * 3, done.stderr


def test_default_device_stays_without_a_wish(child, shim, platform):
    if not shim:
        pytest.skip('only the package promises this')
    done = child('import jax; print(jax.default_backend()); '
                 f'print(jax.devices({platform!r})[0].id)', JAX_PLATFORMS=None)
    # A machine with another plugin of JAX has its device, every other one the CPU.
    assert done.returncode == 0 and done.stdout.split()[0] in ('cpu', 'gpu', 'tpu'), done.stderr


def test_missing_library_leaves_jax_alive(child, shim, tmp_path):
    if not shim:
        pytest.skip('only the package promises this')
    bad = tmp_path / 'pjrt_broken.so'
    bad.write_bytes(b'no library')
    done = child('import jax; print(jax.devices()[0].platform)', JAX_PLATFORMS='cpu',
                 HEKLA_PLUGIN_PATH=f'{bad}{os.pathsep}{tmp_path / "nowhere"}')
    assert done.returncode == 0 and done.stdout == 'cpu\n', done.stderr
    assert 'pjrt_broken.so' in done.stderr


def test_package_finds_libraries(shim, platform):
    if not shim:
        pytest.skip('tests the package')
    import hekla
    assert hekla.plugin_path(platform) == hekla.plugins()[platform]
    with pytest.raises(FileNotFoundError, match=f"no_such.*{platform}"):
        hekla.plugin_path('no_such')


def test_donation_reaches_the_program(shim, platform):
    if not shim:
        pytest.skip('without the package JAX drops donation on a new platform')
    lowered = jax.jit(lambda x: x + 1, donate_argnums=0).trace(jnp.zeros(4)).lower(
        lowering_platforms=(platform,))
    assert 'tf.aliasing_output = 0' in lowered.as_text()


def test_library_named_by_the_environment_too(child, shim, platform):
    if not shim:
        pytest.skip('tests the package')
    import hekla
    done = child(f"""
import jax, jax.numpy as jnp
jax.devices({platform!r})
f = jax.jit(lambda x: (x + 1, jnp.linalg.eigh(x)), donate_argnums=0)
text = f.trace(jnp.eye(3)).lower(lowering_platforms=({platform!r},)).as_text()
print('tf.aliasing_output' in text, 'lapack_ssyevd_ffi' in text)""",
                 PJRT_NAMES_AND_LIBRARY_PATHS=f'{platform}:{hekla.plugin_path(platform)}')
    has_lapack = hekla.has_lapack(hekla.plugin_path(platform))
    assert done.returncode == 0 and done.stdout == f'True {has_lapack}\n', done.stderr


def test_release_without_the_private_names(child, shim):
    """What a coming JAX may lack costs a feature and a warning, not the platform."""
    if not shim:
        pytest.skip('tests the package')
    done = child("""
import jax, jax.numpy as jnp
from jax._src.interpreters import mlir
from jax._src.lax import linalg
kept = mlir._platforms_with_donation
del mlir._platforms_with_donation, linalg.eigh_p
from hekla import jax_plugin
jax_plugin.initialize()
mlir._platforms_with_donation = kept   # JAX itself needs it
print(float(jnp.sum(jnp.ones(3) + 1)))""")
    assert done.returncode == 0 and done.stdout == '6.0\n', done.stderr
    assert 'donation' in done.stderr and 'linear algebra' in done.stderr
