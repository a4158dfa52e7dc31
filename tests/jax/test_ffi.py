# SPDX-License-Identifier: Apache-2.0
"""jax.ffi: functions of the user's, compiled against jaxlib's headers, in programs.

The same functions are registered for jaxlib's CPU, whose results are compared where it has the form.
"""
import ctypes
import gc
import os
import pathlib
import shutil
import subprocess

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

pytestmark = pytest.mark.quick

TYPED = ['Dump', 'Truthy', 'Axpy', 'Fail', 'Increment', 'Later', 'Pooled', 'Where', 'Tokens']
UNTYPED = ['Untyped', 'UntypedTwo', 'UntypedStatus', 'UntypedOpaque']


@pytest.fixture(scope='session')
def compiler():
    found = shutil.which(os.environ.get('CXX', 'g++'))
    if found is None:
        pytest.skip('no C++ compiler')
    return found


@pytest.fixture(scope='session')
def handlers(compiler, tmp_path_factory, platform, device, cpu):
    """The library of ffi_handlers.cc, registered for the platform under test and jaxlib's CPU, which
    are there: jaxlib hands its CPU early functions before early types."""
    # For all runs with this release, where they have a folder in common (see compare.py).
    folder = pathlib.Path(os.environ.get('HEKLA_EXPECTED') or tmp_path_factory.mktemp('ffi'))
    path = folder / 'ffi_handlers.so'
    if not path.exists():
        part = path.with_suffix(f'.{os.getpid()}')
        subprocess.run([compiler, '-std=c++20', '-O0', '-shared', '-fPIC', '-isystem',
                        jax.ffi.include_dir(), '-o', part, HERE / 'ffi_handlers.cc'], check=True)
        part.rename(path)
    library = ctypes.CDLL(str(path))
    for name in ('BaseTypeId', 'BaseTypeInfo'):
        getattr(library, name).restype = ctypes.c_void_p
    for where in {platform, 'cpu'}:
        for name in TYPED:
            jax.ffi.register_ffi_target(name, capsule(library, name), platform=where)
        jax.ffi.register_ffi_type('Base', {'type_id': pointer(library.BaseTypeId()),
                                           'type_info': pointer(library.BaseTypeInfo())},
                                  platform=where)
        jax.ffi.register_ffi_target('AddBase', stages(library), platform=where)
        for name in UNTYPED:
            jax.ffi.register_ffi_target(name, capsule(library, name), platform=where,
                                        api_version=0)
    return library


def stages(library):
    return {'instantiate': capsule(library, 'MakeBase'), 'prepare': capsule(library, 'PrepareBase'),
            'initialize': capsule(library, 'InitializeBase'),
            'execute': capsule(library, 'AddBase')}


def capsule(library, name):
    return jax.ffi.pycapsule(getattr(library, name))


def pointer(address):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(address, None, None)


@pytest.fixture(scope='module', autouse=True)
def with_rules(shim, platform):
    if platform != 'cpu' and not shim:
        pytest.skip("functions are registered through the package hekla")


def struct(*shape, dtype=np.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def same(function, *args, cpu, device):
    """Equal bytes on both."""
    results = []
    for where in (cpu, device):
        with jax.default_device(where):
            results.append([np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(function)(*args))])
    assert len(results[0]) == len(results[1])
    for want, got in zip(*results):
        assert want.dtype == got.dtype and want.shape == got.shape
        np.testing.assert_array_equal(got, want)
    return results[1]


def dumped(*args, size=4096, **attributes):
    layouts = attributes.pop('layouts', None)
    return jax.ffi.ffi_call('Dump', struct(size, dtype=np.uint8), input_layouts=layouts)(
        *args, **attributes)


def text(result):
    return bytes(result).decode().strip()


ARRAYS = {
    'f32': np.arange(6, dtype=np.float32).reshape(2, 3), 'scalar': np.float32(3),
    'empty': np.zeros((2, 0, 3), np.int32), 'bool': np.array([True, False]),
    'i8': np.array([-1, 2], np.int8), 'u16': np.array([1, 65535], np.uint16),
    'f16': np.array([1.5], np.float16), 'bf16': np.array([1.5], ml_dtypes.bfloat16),
    'c64': np.array([1 + 2j], np.complex64), 'f8': np.array([1.5], ml_dtypes.float8_e4m3fn),
}


@pytest.mark.parametrize('name', ARRAYS)
def test_operands(name, handlers, cpu, device):
    same(dumped, ARRAYS[name], cpu=cpu, device=device)


def test_wide_operands(handlers, cpu, device):
    with jax.enable_x64(True):
        same(dumped, np.array([1.5, -2]), np.array([-7]), np.array([1 + 2j]), cpu=cpu, device=device)


@pytest.mark.parametrize('attributes', [
    {}, {'b': True, 'a': 7, 'text': 'words'}, {'i8': np.int8(-3), 'u8': np.uint8(200)},
    {'i16': np.int16(-300), 'u32': np.uint32(4_000_000_000), 'u64': np.uint64(2**62)},
    {'f32': np.float32(1.5), 'f64': np.float64(2.5), 'python': 3.5},
    {'array': np.arange(5, dtype=np.int32)}, {'floats': np.array([[1.5, 2.5]], np.float32)},
    {'longs': np.arange(3, dtype=np.int64)}, {'splat': np.full(4, 2.0)},
    {'longs_splat': np.full((2, 2), 9)},
    {'inner': {'x': np.int32(1), 'y': 'z'}, 'other': 1}, {'Z': 1, 'a': 2, '_': 3, 'B10': 4, 'B9': 5},
], ids=lambda value: '_'.join(value) or 'none')
def test_attributes(attributes, handlers, cpu, device):
    same(lambda x: dumped(x, **attributes), np.float32(1), cpu=cpu, device=device)


def test_list_attribute(handlers, cpu, device):
    """jaxlib takes none either."""
    for where in (cpu, device):
        with jax.default_device(where), pytest.raises(jax.errors.JaxRuntimeError, match='listed'):
            jax.jit(lambda x: dumped(x, listed=(1, 2)))(np.float32(1))


def test_layouts(handlers, cpu, device):
    x = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    for order in ((0, 1, 2), (0, 2, 1), (2, 0, 1), (2, 1, 0)):
        same(lambda x: dumped(x, layouts=[order]), x, cpu=cpu, device=device)


def test_result_layouts(handlers, cpu, device):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)

    def run(x):
        return jax.ffi.ffi_call('Axpy', struct(2, 3), input_layouts=[(1, 0), (1, 0)],
                                output_layouts=(1, 0))(x, x, a=np.float32(2))
    result, = same(run, x, cpu=cpu, device=device)
    np.testing.assert_array_equal(result, 3 * x)
    same(lambda x: jax.ffi.ffi_call('Axpy', struct(2, 3), output_layouts=(1, 0))(
        x, x, a=np.float32(2)), x, cpu=cpu, device=device)


def axpy(x, y, a=2, method='sequential', **options):
    return jax.ffi.ffi_call('Axpy', struct(*np.shape(x)), vmap_method=method, **options)(
        x, y, a=np.float32(a))


X = np.arange(6, dtype=np.float32)


@pytest.mark.parametrize('function', [
    lambda x: axpy(x + 1, x * 2) * 3,
    lambda x: jax.lax.fori_loop(0, 5, lambda i, v: axpy(v, x, a=0.5), x),
    lambda x: jax.lax.scan(lambda c, v: (axpy(c, v), c.sum()), x, jnp.stack([x, x + 1, x + 2])),
    lambda x: jax.lax.while_loop(lambda v: v.sum() < 1e4, lambda v: axpy(v, x) + 1, x),
    lambda x: jax.lax.cond(x[0] > 1, lambda: axpy(x, x), lambda: axpy(x, x + 1)),
    lambda x: jax.lax.switch(x[2].astype(int), [lambda: x, lambda: -x, lambda: axpy(x, x)]),
    lambda x: jax.vmap(axpy)(jnp.stack([x, x + 1]), jnp.stack([x, x + 2])),
    lambda x: jax.vmap(lambda v: axpy(v, x, method='expand_dims'))(jnp.stack([x, x + 1])),
    lambda x: jax.vmap(lambda v: axpy(v, x, method='broadcast_all'))(jnp.stack([x, x + 1])),
    lambda x: axpy(jnp.zeros(0), jnp.zeros(0)),
    lambda x: axpy(axpy(x, x), axpy(x, x, a=3)),
], ids=['plain', 'fori', 'scan', 'while', 'cond', 'switch', 'sequential', 'expand_dims',
        'broadcast_all', 'empty', 'nested'])
def test_programs(function, handlers, cpu, device):
    same(function, X, cpu=cpu, device=device)


@pytest.mark.parametrize('code, kind', [(3, 'INVALID_ARGUMENT'), (13, 'INTERNAL'),
                                        (9, 'FAILED_PRECONDITION')])
def test_errors(code, kind, handlers):
    call = jax.jit(lambda x: jax.ffi.ffi_call('Fail', struct())(x, code=np.int32(code),
                                                              message='it is Monday'))
    with pytest.raises(jax.errors.JaxRuntimeError, match=f'{kind}.*Fail.*it is Monday'):
        call(np.float32(1)).block_until_ready()
    assert float(jax.jit(lambda x: x + 1)(np.float32(1))) == 2  # the device is as it was


def test_wrong_signature(handlers):
    with pytest.raises(jax.errors.JaxRuntimeError, match='Axpy.*Wrong number of arguments'):
        jax.jit(lambda x: jax.ffi.ffi_call('Axpy', struct())(x, a=np.float32(1)))(
            np.float32(1)).block_until_ready()


def test_unregistered(handlers, ours, platform):
    if not ours:
        pytest.skip('the words are ours')
    with pytest.raises(jax.errors.JaxRuntimeError) as error:
        jax.jit(lambda x: jax.ffi.ffi_call('Nowhere', struct())(x)).lower(np.float32(1)).compile()
    for word in ('UNIMPLEMENTED', 'Nowhere', f'platform {platform}', 'register_ffi_target'):
        assert word in str(error.value)


def test_registration(handlers, ours, platform):
    """The same function again is fine; another one, and one of another version, are not."""
    def add(name, fn, **options):
        jax.ffi.register_ffi_target(name, fn, platform=platform, **options)
    add('Axpy', capsule(handlers, 'Axpy'))
    if not ours:
        return
    for name, fn, words in [('Axpy', capsule(handlers, 'Later'), 'registered already'),
                            ('Newer', capsule(handlers, 'Newer'), 'version 0.99'),
                            ('None', {'prepare': capsule(handlers, 'PrepareBase')}, 'execute'),
                            ('Odd', {'cook': capsule(handlers, 'Axpy')}, 'no stage cook')]:
        with pytest.raises((RuntimeError, ValueError), match=words):
            add(name, fn)
    with pytest.raises(RuntimeError, match='API version 5'):
        add('Odd', capsule(handlers, 'Axpy'), api_version=5)


def test_alias(handlers, cpu, device):
    def run(x):
        y = jax.ffi.ffi_call('Increment', struct(4, dtype=np.int32),
                             input_output_aliases={0: 0})(x)
        return x * 10, y
    x = np.arange(4, dtype=np.int32)
    for donated in ((), (0,)):
        results = []
        for where in (cpu, device):
            held = jax.device_put(x, where)
            results.append([np.asarray(v) for v in jax.jit(run, donate_argnums=donated)(held)])
        for want, got in zip(*results):
            np.testing.assert_array_equal(got, want)


def test_side_effects(handlers):
    """Each call runs once in each launch, whether its result is used or equal to another's."""
    def run(x):
        axpy(x, x, has_side_effect=True)
        a, b = axpy(x, x, has_side_effect=True), axpy(x, x, has_side_effect=True)
        return a + b
    program = jax.jit(run)
    for launches in (1, 2):
        before = handlers.Calls()
        jax.block_until_ready([program(X) for _ in range(launches)])
        assert handlers.Calls() - before == 3 * launches


def test_states(handlers, device):
    """Instantiated once for a call of an executable, prepared and initialized once in a launch."""
    def run(x):
        def body(i, v):
            return jax.ffi.ffi_call('AddBase', struct(2, dtype=np.int32))(v, base=5)
        y = jax.lax.fori_loop(0, 4, body, x)
        return jax.ffi.ffi_call('AddBase', struct(2, dtype=np.int32))(y, base=100)
    gc.collect()
    before = handlers.LiveStates()
    program = jax.jit(run).lower(np.zeros(2, np.int32)).compile()
    assert handlers.LiveStates() - before == 2
    counts = handlers.Prepared(), handlers.Initialized()
    for _ in range(3):
        np.testing.assert_array_equal(program(np.array([1, 2], np.int32)), [121, 122])
    after = handlers.Prepared(), handlers.Initialized()
    if device.platform != 'cpu':
        assert [b - a for a, b in zip(counts, after)] == [6, 6]
    with pytest.raises(jax.errors.JaxRuntimeError, match='AddBase.*the base is negative'):
        jax.jit(lambda x: jax.ffi.ffi_call('AddBase', struct(2, dtype=np.int32))(x, base=-1)).lower(
            np.zeros(2, np.int32)).compile()
    del program
    jax.clear_caches()
    gc.collect()
    assert handlers.LiveStates() == before


def test_later(handlers, cpu, device):
    def run(x, fails=False):
        return jax.ffi.ffi_call('Later', struct(3, dtype=np.int32))(x, fails=fails) + 1
    x = np.arange(3, dtype=np.int32)
    same(run, x, cpu=cpu, device=device)
    with pytest.raises(jax.errors.JaxRuntimeError, match='broke later'):
        jax.jit(lambda x: run(x, fails=True))(x).block_until_ready()


def test_pool(handlers, cpu, device):
    x = np.arange(50, dtype=np.int32)
    program = jax.jit(lambda x: jax.ffi.ffi_call('Pooled', struct(50, dtype=np.int32))(x))
    for result in [program(jax.device_put(x + i, device)) for i in range(8)]:
        assert result.dtype == np.int32
    np.testing.assert_array_equal(program(x), x * x)


def test_context(handlers, device):
    result = jax.jit(lambda: jax.ffi.ffi_call('Where', struct(2, dtype=np.int32))())()
    np.testing.assert_array_equal(result, [1, device.id])


def test_tokens(handlers):
    # Its name from 0.11 on.
    kind = jax.ffi.abstract_token if hasattr(jax.ffi, 'abstract_token') else jax.core.abstract_token
    def run(x):
        token = jax.lax.create_token()
        token, y = jax.ffi.ffi_call('Tokens', (kind, struct(6)))(token, x)
        return y * 2
    np.testing.assert_array_equal(jax.jit(run)(X), X * 2)


def test_untruthful_bools(handlers):
    """A bool is true whatever else a function writes there."""
    def run():
        flags = jax.ffi.ffi_call('Truthy', struct(3, dtype=np.bool_))()
        return flags.astype(np.int32), jnp.logical_not(flags), flags
    ones, zeros, flags = jax.jit(run)()
    np.testing.assert_array_equal(ones, [1, 1, 1])
    np.testing.assert_array_equal(zeros, [False] * 3)
    np.testing.assert_array_equal(flags, [True] * 3)


F = np.array([1, 2, 3, 4], np.float32)


@pytest.mark.parametrize('name, version, config', [
    ('Untyped', 1, None), ('UntypedStatus', 2, None), ('UntypedOpaque', 3, 'the config')])
def test_untyped(name, version, config, handlers):
    def run(x):
        return jax.ffi.ffi_call(name, struct(4), custom_call_api_version=version,
                                legacy_backend_config=config)(x) + 1
    np.testing.assert_array_equal(jax.jit(run)(F)[:3], 2 * F[:3] + 1)
    assert float(jax.jit(run)(F)[3]) == (8 if config else 9)
    if version == 2:
        with pytest.raises(jax.errors.JaxRuntimeError, match='UntypedStatus.*below zero'):
            jax.jit(run)(-F).block_until_ready()


def test_untyped_with_two_results(handlers):
    def run(x):
        return jax.ffi.ffi_call('UntypedTwo', (struct(4), struct(4)), custom_call_api_version=1)(
            x, x + 1)
    a, b = jax.jit(run)(F)
    np.testing.assert_array_equal(a, 2 * F)
    np.testing.assert_array_equal(b, 2 * F + 2)


def test_two_devices(handlers, child, ours):
    """In a gang each device calls, with its own number."""
    if not ours:
        pytest.skip('a foreign plugin has its own way to make devices')
    done = child(f'''
import ctypes, functools, jax, numpy as np
from jax import shard_map
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
library = ctypes.CDLL({handlers._name!r})
platform = jax.default_backend()
for name in ('Where', 'Axpy'):
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform=platform)
mesh = Mesh(np.array(jax.devices()[:2]), ('x',))
def run(v):
    where = jax.ffi.ffi_call('Where', jax.ShapeDtypeStruct((2,), np.int32))()
    call = jax.ffi.ffi_call('Axpy', jax.ShapeDtypeStruct(v.shape, v.dtype))
    return where, call(v, v, a=np.float32(3))
replicated = NamedSharding(mesh, P())
f = jax.jit(shard_map(run, mesh=mesh, in_specs=P(), out_specs=(P(), P()), check_vma=False),
            out_shardings=replicated)
where, y = f(jax.device_put(np.arange(3, dtype=np.float32), replicated))
print([np.asarray(s.data).tolist() for s in where.addressable_shards])
print([np.asarray(s.data).tolist() for s in y.addressable_shards])
''', HEKLA_NUM_DEVICES='2', HEKLA_FAIL_ON_FALLBACK=None)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split('\n')[:-1] == ['[[1, 0], [1, 1]]', '[[0.0, 4.0, 8.0], [0.0, 4.0, 8.0]]']


def test_example(compiler, platform, run_example):
    assert f'rms_norm on {platform}: [[1.0, 1.535, 2.069, 2.604]' in run_example('ffi')
