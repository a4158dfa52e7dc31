# SPDX-License-Identifier: Apache-2.0
"""Arrays to the device and back: every dtype, shape and stride; copies, views, errors."""
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from compare import wide, x64

NARROW = ['bool', 'int8', 'int16', 'int32', 'uint8', 'uint16', 'uint32', 'float16', 'float32',
          'complex64', 'bfloat16', 'int4', 'uint4', 'int2', 'uint2', 'float8_e4m3fn',
          'float8_e5m2', 'float8_e4m3b11fnuz', 'float8_e4m3fnuz', 'float8_e5m2fnuz',
          'float8_e3m4', 'float8_e4m3', 'float8_e8m0fnu', 'float4_e2m1fn']
WIDE = ['int64', 'uint64', 'float64', 'complex128']


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def sample(name, shape):
    """Values that are exact in the dtype."""
    dtype = dtype_of(name)
    count = int(np.prod(shape))
    if name == 'float8_e8m0fnu':
        return (2.0 ** (np.arange(count) % 5)).astype(dtype).reshape(shape)
    low, period = (0, 2) if name in ('bool', 'uint2') else (-1, 2)
    if name.startswith('u'):
        low = 0
    return (np.arange(count) % period + low).astype(dtype).reshape(shape)


# ml_dtypes 0.6 leaves them zero, releases before it extend the sign.
@pytest.mark.quick
@pytest.mark.parametrize('above', [0x00, 0xff, 0xa5])
@pytest.mark.parametrize('name', ['int4', 'uint4', 'int2', 'uint2'])
def test_bits_above_narrow_integers_mean_nothing(device, name, above):
    bits = int(name[-1])
    every = np.arange(1 << bits)
    mask = (1 << bits) - 1
    host = (every | (above & ~mask & 0xff)).astype(np.uint8).view(dtype_of(name))
    want = every - (every >> (bits - 1) << bits) if name.startswith('int') else every
    for values in (host, host[::-1]):
        there = jax.device_put(values, device)
        wider = np.asarray(jax.jit(lambda x: x.astype(jnp.int32))(there))
        np.testing.assert_array_equal(wider, want if values is host else want[::-1])
        np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: x < 1)(there)), wider < 1)
        np.testing.assert_array_equal(np.asarray(there).astype(np.int32), wider)


@pytest.mark.quick
@pytest.mark.parametrize('name', NARROW + WIDE)
def test_round_trip(device, name):
    with x64(name in WIDE):
        for shape in ((), (1,), (5,), (3, 4), (2, 0, 3), (2, 3, 1, 4)):
            host = sample(name, shape)
            there = jax.device_put(host, device)
            assert there.dtype == host.dtype and there.shape == shape
            assert there.devices() == {device}
            # Bytes too, but of narrow integers, whose upper bits mean nothing.
            is_bytes = shape == (5,) and not name.endswith(('int2', 'int4'))
            np.testing.assert_array_equal(np.asarray(there).view(np.uint8) if is_bytes else
                                          wide(np.asarray(there)),
                                          host.view(np.uint8) if is_bytes else wide(host))


@pytest.mark.parametrize('name', NARROW + WIDE)
def test_identity_program(device, name):
    with x64(name in WIDE):
        host = sample(name, (3, 5))
        out = jax.jit(lambda x: (x.T, x[1]))(jax.device_put(host, device))
        np.testing.assert_array_equal(wide(np.asarray(out[0])), wide(host.T))
        np.testing.assert_array_equal(wide(np.asarray(out[1])), wide(host[1]))


@pytest.mark.quick
@pytest.mark.parametrize('view', [
    lambda x: x.T, lambda x: x[::-1], lambda x: x[:, ::2], lambda x: x[::-1, ::-3],
    lambda x: np.broadcast_to(x[:1], x.shape), lambda x: x[1:1], np.asfortranarray,
    lambda x: x.reshape(2, 3, 8).transpose(2, 0, 1), lambda x: x[2:5, 1:7]],
    ids=['transposed', 'reversed', 'every_other', 'negative', 'broadcast', 'empty', 'fortran',
         'permuted', 'window'])
def test_strided_host_arrays(device, view):
    host = view(np.arange(48, dtype=np.float32).reshape(6, 8))
    there = jax.device_put(host, device)
    np.testing.assert_array_equal(np.asarray(there), host)
    np.testing.assert_array_equal(np.asarray(there + 1), host + 1)


@pytest.mark.quick
def test_special_values_survive(device):
    bits = np.array([0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFFC12345, 1, 0x80000001],
                    np.uint32)
    there = jax.device_put(bits.view(np.float32), device)
    np.testing.assert_array_equal(np.asarray(there).view(np.uint32), bits)


@pytest.mark.quick
def test_host_array_may_change_afterwards(device):
    host = np.arange(1 << 16, dtype=np.int32)
    there = jax.block_until_ready(jnp.array(host))
    want = host.copy()
    host[:] = -1
    np.testing.assert_array_equal(np.asarray(there), want)


def test_result_outlives_its_array(device):
    view = np.asarray(jax.device_put(np.arange(1000), device))
    other = [jax.device_put(np.full(1000, i), device) for i in range(8)]
    jax.block_until_ready(other)
    np.testing.assert_array_equal(view, np.arange(1000))


@pytest.mark.quick
def test_between_devices(device, cpu):
    x = jax.device_put(np.arange(12.0).reshape(3, 4), device)
    y = jax.device_put(x, cpu)
    assert y.devices() == {cpu}
    z = jax.device_put(y, device)
    assert z.devices() == {device}
    np.testing.assert_array_equal(np.asarray(z), np.arange(12.0).reshape(3, 4))


@pytest.mark.quick
def test_deleted_array(device):
    x = jax.device_put(np.ones(3), device)
    x.delete()
    assert x.is_deleted()
    with pytest.raises(RuntimeError, match='(?i)delete'):
        np.asarray(x)


def test_many_and_large(device):
    arrays = [jax.device_put(np.full((64, 64), i, np.float32), device) for i in range(300)]
    total = sum(arrays)
    assert float(total[0, 0]) == 300 * 299 / 2
    big = np.arange(1 << 22, dtype=np.int32)
    np.testing.assert_array_equal(np.asarray(jax.device_put(big, device) + 1)[::4097],
                                  (big + 1)[::4097])


def test_threads(device):
    from concurrent.futures import ThreadPoolExecutor

    def work(i):
        x = jax.device_put(np.full((8, 8 + i % 3), i, np.float32), device)
        return float(jax.jit(lambda a: (a * 2).sum())(x)) == 16 * i * (8 + i % 3)
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(40)))


@pytest.mark.parametrize('name', ['bool', 'int8', 'uint32', 'float16', 'float32', 'complex64'])
def test_dlpack_out(device, shim, name):
    if not shim:
        pytest.skip('the package packs arrays')
    for shape in ((), (3, 4), (2, 0)):
        x = jax.device_put(sample(name, shape), device)
        there = np.from_dlpack(x)
        assert there.dtype == x.dtype
        np.testing.assert_array_equal(there, sample(name, shape))


@pytest.mark.quick
def test_dlpack_out_is_in_place(device, shim):
    if not shim:
        pytest.skip('the package packs arrays')
    x = jax.jit(lambda x: x + 1)(jax.device_put(np.arange(1000, dtype=np.float32), device))
    try:
        pointer = x.unsafe_buffer_pointer()
    except jax.errors.JaxRuntimeError as error:
        assert 'no address for the host' in str(error)
        pointer = None
    if np.asarray(x).ctypes.data == pointer:  # the host reads the device's memory
        there = np.from_dlpack(x, copy=False)
        assert there.ctypes.data == pointer
        del x
    else:
        with pytest.raises(BufferError, match='copy=False'):
            np.from_dlpack(x, copy=False)
        there = np.from_dlpack(x)
    np.testing.assert_array_equal(there, np.arange(1000) + 1)
    assert np.from_dlpack(jax.device_put(there, device), copy=True).ctypes.data != pointer


def test_dlpack_out_of_memory_that_the_host_does_not_see(child, platform, shim):
    if platform != 'vulkan' or not shim:
        pytest.skip('there is none')
    result = child("""
import jax, numpy as np
x = jax.device_put(np.arange(3, dtype=np.int32), jax.devices('vulkan')[0])
print(np.from_dlpack(x).tolist())
try:
    np.from_dlpack(x, copy=False)
except BufferError as error:
    print(error)
""", HEKLA_VULKAN_STAGING='1')
    assert result.returncode == 0, result.stderr
    values, refusal = result.stdout.splitlines()
    assert values == '[0, 1, 2]' and 'copy=False cannot be had' in refusal
