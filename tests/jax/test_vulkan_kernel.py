# SPDX-License-Identifier: Apache-2.0
"""hekla.vulkan_kernel: compute shaders of the user's inside of jax.jit, against the same in JAX."""
import importlib
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import build_dir

pytestmark = pytest.mark.quick

# out = a * x + y + k for as many elements as there are; the last constant says how many.
AXPY = '''
#version 460
#extension GL_EXT_buffer_reference : require
layout(local_size_x = 4) in;
layout(constant_id = 3) const float k = 0;
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer In { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Out { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Arrays { In x, y; Out z; };
layout(push_constant) uniform Push { Arrays arrays; uint launch[4]; float a; uint count; } push;
void main() {
  const uint i = gl_GlobalInvocationID.x;
  if (i < push.count) {
    push.arrays.z.at[i] = push.a * push.arrays.x.at[i] + push.arrays.y.at[i] + k;
  }
}
'''


@pytest.fixture(scope='session', autouse=True)
def hekla(shim):
    """The package, of which a session that names the library alone has none."""
    if not shim:
        pytest.skip('kernels come through the package hekla')
    return importlib.import_module('hekla')


@pytest.fixture(scope='session')
def shader(tmp_path_factory):
    """function(source) -> SPIR-V."""
    if shutil.which('glslangValidator') is None:
        pytest.skip('no glslang')
    folder = tmp_path_factory.mktemp('shaders')

    def compile_shader(source):
        (folder / 'shader.comp').write_text(source)
        subprocess.run(['glslangValidator', '-V', '--target-env', 'vulkan1.2', '--quiet',
                        folder / 'shader.comp', '-o', folder / 'shader.spv'], check=True)
        return (folder / 'shader.spv').read_bytes()
    return compile_shader


@pytest.fixture(scope='session')
def axpy(hekla, shader):
    """function(count, a, **options) -> the kernel."""
    spirv = shader(AXPY)

    def make(count, a=2.0, spirv=spirv, **options):
        return hekla.vulkan_kernel(spirv, ((count + 3) // 4,), jax.ShapeDtypeStruct((count,), np.float32),
                                   constants=(a, count), **options)
    return make


@pytest.fixture
def vulkan(platform):
    if platform != 'vulkan':
        pytest.skip('a shader runs on a Vulkan device')


X = np.arange(10, dtype=np.float32)


def plain(x, y, a=2.0):
    return a * x + y


@pytest.mark.parametrize('program', [
    lambda f, x: f(x, x),
    lambda f, x: f(x + 1, x * 3) * 2,
    lambda f, x: f(f(x, x), f(x, -x)),
    lambda f, x: jax.lax.fori_loop(0, 50, lambda i, v: f(v * 0.25, x), x),
    lambda f, x: jax.lax.while_loop(lambda v: v.sum() < 1e4, lambda v: f(v, x) + 1, x),
    lambda f, x: jax.lax.scan(lambda c, v: (f(c * 0.5, v), c.sum()), x, jnp.stack([x, x + 1, x - 2])),
    lambda f, x: jax.lax.cond(x[1] > 0, lambda: f(x, x), lambda: f(x, x + 1)),
    lambda f, x: (lambda y: (f(y, y), y))(x + 1),
], ids=['plain', 'fused', 'nested', 'fori', 'while', 'scan', 'cond', 'kept'])
@pytest.mark.parametrize('donates', [False, True], ids=['kept', 'donated'])
def test_programs(program, donates, vulkan, axpy, device):
    def run(f):
        x = jax.device_put(X, device)
        jitted = jax.jit(lambda x: program(f, x), donate_argnums=(0,) if donates else ())
        return [np.asarray(leaf) for leaf in jax.tree.leaves(jitted(x))]
    for got, want in zip(run(axpy(10)), run(plain)):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize('count', [0, 1, 4, 5, 1000])
def test_sizes(count, vulkan, axpy):
    x = np.arange(count, dtype=np.float32)
    np.testing.assert_array_equal(jax.jit(axpy(count, 3.0))(x, x), 4 * x)


def test_no_step_on_the_host(vulkan, axpy, tmp_path):
    program = tmp_path / 'program.mlir'
    program.write_text(jax.jit(lambda x: axpy(10)(x, x + 1)).lower(X).as_text())
    plan = subprocess.run([build_dir() / 'bin' / 'hekla', 'compile', program, '--device', 'vulkan', '--emit', 'plan'],
                          capture_output=True, text=True, check=True).stdout
    assert 'kernel' in plan and 'host ' not in plan


def test_specialization(vulkan, axpy):
    for k in (1.5, -2.0):
        y = jax.jit(axpy(10, specialization={3: k}))(X, X)
        np.testing.assert_array_equal(y, 3 * X + np.float32(k))


def test_vmap(vulkan, axpy):
    x = np.stack([X, X + 1])
    y = jax.jit(jax.vmap(axpy(10, vmap_method='sequential')))(x, x)
    np.testing.assert_array_equal(y, 3 * x)


def test_refused(hekla, vulkan, shader, axpy):
    def compiled(kernel):
        jax.jit(kernel).lower(X, X).compile()
    descriptors = '''
#version 460
layout(local_size_x = 4) in;
layout(set = 0, binding = 0) buffer B { float at[]; } b;
void main() { b.at[gl_GlobalInvocationID.x] = 1; }
'''
    large = AXPY.replace('local_size_x = 4', 'local_size_x = 8, local_size_y = 1000')
    for spirv, words in [(b'\x00' * 64, 'SPIR-V'), (shader(AXPY)[:-8], 'SPIR-V'),
                         (shader(descriptors), 'descriptors'), (shader(large), 'invocations')]:
        with pytest.raises(jax.errors.JaxRuntimeError, match=f'vulkan_kernel.*{words}'):
            compiled(axpy(10, spirv=spirv))
    with pytest.raises(jax.errors.JaxRuntimeError, match='no compute shader other'):
        compiled(axpy(10, entry='other'))
    struct = jax.ShapeDtypeStruct((10,), np.float32)
    with pytest.raises(jax.errors.JaxRuntimeError, match='0 to 65535'):
        compiled(hekla.vulkan_kernel(shader(AXPY), (70000,), struct))
    with pytest.raises(ValueError, match='room for 26'):
        hekla.vulkan_kernel(shader(AXPY), (1,), struct, constants=range(27))
    with pytest.raises(ValueError, match='words of four bytes'):
        hekla.vulkan_kernel(b'123', (1,), struct)


def test_other_platforms(platform, axpy):
    if platform != 'vulkan':
        with pytest.raises(jax.errors.JaxRuntimeError, match='vulkan_kernel.*platform vulkan'):
            jax.jit(axpy(10)).lower(X, X).compile()
    kernel = axpy(10, fallback=plain)
    np.testing.assert_array_equal(jax.jit(kernel)(X, X), 3 * X)


def test_example(platform, shader, run_example):
    assert f'heat on {platform}' in run_example('vulkan_kernel')
