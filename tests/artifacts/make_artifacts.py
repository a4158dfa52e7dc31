#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make portable artifacts from small JAX programs (jax and jaxlib from PyPI, tried with 0.10.2).

  make_artifacts.py OUTDIR [--only SUBSTRING]

For each program: NAME.mlirbc (portable artifact as jaxlib gives it to a PJRT plugin, target = the
newest version this jaxlib writes) and NAME.mlir (the same module as StableHLO text, before
serialization). NAME.vX.Y.Z.mlirbc is the program serialized for an older target.
Programs are lowered for a platform name JAX does not know, so that only the default lowering rules
apply, as for any out-of-tree plugin; where a program needs a known platform the entry says so.
"""
import argparse, json, os
os.environ.setdefault('JAX_PLATFORMS', 'cpu')
os.environ['XLA_FLAGS'] = os.environ.get('XLA_FLAGS', '') + ' --xla_force_host_platform_device_count=8'
import warnings; warnings.simplefilter('ignore')
from functools import partial
import numpy as np
import jax, jax.numpy as jnp
from jax import lax, random
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, AxisType
from jax._src.lib import _jax
from jax._src.interpreters import mlir as jmlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
jax.config.update('jax_hlo_source_file_canonicalization_regex', '.*/')   # no machine paths in locations
CURRENT = stablehlo.get_current_version()
PROGRAMS = {}   # name -> (note, function returning (lowered or module or bytes, ...))

f32, bf16, f16, i32, u32, i8 = jnp.float32, jnp.bfloat16, jnp.float16, jnp.int32, jnp.uint32, jnp.int8
def S(shape, dt=f32, **k): return jax.ShapeDtypeStruct(shape, dt, **k)

def program(note, platform=None, x64=False, name=None, **cfg):
    def deco(f):
        PROGRAMS[name or f.__name__] = (note, f, platform, x64, cfg); return f
    return deco

def jit(f, *args, platform, **kw):
    return jax.jit(f, **kw).trace(*args).lower(lowering_platforms=(platform,))

def simple(name, note, f, *args, platform=None, x64=False, **cfg):
    PROGRAMS[name] = (note, lambda platform: jit(f, *args, platform=platform), platform, x64, cfg)

# ---------------------------------------------------------------- models
@program('two-layer perceptron, cross-entropy, gradient, SGD step, parameters donated')
def mlp_train(platform):
    def loss(p, x, y):
        h = jax.nn.relu(x @ p['w1'] + p['b1']); z = h @ p['w2'] + p['b2']
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(z) * jax.nn.one_hot(y, 10), -1))
    def step(p, x, y):
        l, g = jax.value_and_grad(loss)(p, x, y)
        return jax.tree.map(lambda a, b: a - 0.1 * b, p, g), l
    p = dict(w1=S((16, 32)), b1=S((32,)), w2=S((32, 10)), b2=S((10,)))
    jmlir._platforms_with_donation.append(platform)
    return jit(step, p, S((8, 16)), S((8,), i32), platform=platform, donate_argnums=0)

@program('convolution network: conv, bias, relu, max pool, average pool, dense; gradient')
def conv_net_grad(platform):
    def net(p, x):
        y = lax.conv_general_dilated(x, p['k'], (2, 2), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC'))
        y = jax.nn.relu(y + p['b'])
        y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), 'VALID')
        y = lax.reduce_window(y, 0., lax.add, (1, 2, 2, 1), (1, 1, 1, 1), 'SAME') / 4
        return jnp.mean((y.reshape(y.shape[0], -1) @ p['w']) ** 2)
    p = dict(k=S((3, 3, 3, 8)), b=S((8,)), w=S((128, 5)))
    return jit(jax.grad(net), p, S((2, 16, 16, 3)), platform=platform)

@program('causal multi-head attention in bf16 with f32 softmax')
def attention_bf16(platform):
    def att(x, wq, wk, wv, wo):
        q, k, v = (jnp.einsum('bsd,dhe->bshe', x, w) for w in (wq, wk, wv))
        s = jnp.einsum('bqhe,bkhe->bhqk', q, k, preferred_element_type=f32) / np.sqrt(8)
        m = jnp.tril(jnp.ones((16, 16), bool)); s = jnp.where(m, s, -1e30)
        return jnp.einsum('bhqk,bkhe,hed->bqd', jax.nn.softmax(s).astype(bf16), v, wo)
    w = S((32, 4, 8), bf16)
    return jit(att, S((2, 16, 32), bf16), w, w, w, S((4, 8, 32), bf16), platform=platform)


@program('LSTM over time with scan, gradient through it')
def lstm_scan_grad(platform):
    def run(w, xs):
        def cell(c, x):
            h, s = c; z = jnp.concatenate([x, h]) @ w; i, f, g, o = jnp.split(z, 4)
            s = jax.nn.sigmoid(f) * s + jax.nn.sigmoid(i) * jnp.tanh(g); h = jax.nn.sigmoid(o) * jnp.tanh(s)
            return (h, s), h
        return lax.scan(cell, (jnp.zeros(8), jnp.zeros(8)), xs)[1].sum()
    return jit(jax.grad(run), S((12, 32)), S((5, 4)), platform=platform)

# ---------------------------------------------------------------- control flow
simple('while_collatz', 'while loop with integer carry and captured bound', lambda n, lim:
       lax.while_loop(lambda c: (c[0] != 1) & (c[1] < lim), lambda c: (jnp.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1), c[1] + 1), (n, 0)),
       S((), i32), S((), i32))
simple('cond_switch', 'cond and four-way switch with captured operands', lambda i, p, x:
       lax.cond(p, lambda a: jnp.sin(a) * x, lambda a: a - x, lax.switch(i, [lambda a: a + x, lambda a: a * 2, jnp.cos, lambda a: -a], x)),
       S((), i32), S((), bool), S((3,)))
simple('associative_scan', 'associative scan (slices, pads, concatenates)', lambda x: lax.associative_scan(jnp.multiply, x), S((16,)))

# ---------------------------------------------------------------- sort, random, fft, linalg
simple('sort_pairs', 'stable sort of two arrays by one key (f32 total order, bool payload)', lambda k, v: lax.sort((k, v), num_keys=1), S((8, 6)), S((8, 6), bool))
simple('top_k', 'top_k (composite chlo.top_k)', lambda x: lax.top_k(x, 3), S((4, 10)))
simple('threefry_bernoulli', 'threefry random bits, uniform, comparison', lambda k: random.bernoulli(k, 0.3, (5,)), S((2,), u32))
@program('rng_bit_generator through the rbg generator', name='rbg_uniform')
def _(platform):
    return jit(lambda s: random.uniform(random.wrap_key_data(s, impl='rbg'), (3, 5)), S((4,), u32), platform=platform)
simple('fft_all', 'FFT, inverse, real forward, real inverse, 2-d', lambda x, c: (jnp.fft.fft(c), jnp.fft.ifft(c), jnp.fft.rfft(x), jnp.fft.irfft(c), jnp.fft.fft2(c)), S((4, 8)), S((4, 8), jnp.complex64))
simple('cholesky_solve', 'cholesky and two triangular solves', lambda a, b: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a), True), b), S((2, 4, 4)), S((2, 4, 3)))
simple('qr_default', 'QR on the default path: custom calls Qr and ProductOfElementaryHouseholderReflectors', lambda a: jnp.linalg.qr(a), S((5, 3)))
simple('linalg_cpu', 'eigh, qr, lu, svd as lowered for the CPU platform (LAPACK custom calls with dictionary backend_config)', lambda a: (jnp.linalg.eigh(a), jnp.linalg.qr(a), jax.scipy.linalg.lu(a), jnp.linalg.svd(a)), S((4, 4)), platform='cpu')

# ---------------------------------------------------------------- indexing and windows
simple('gather_modes', 'gather with clip, fill and wrap modes, negative indices', lambda x, i: (x.at[i].get(mode='clip'), x.at[i].get(mode='fill', fill_value=7), jnp.take(x, i, axis=1, mode='wrap'), x[-2:, i]), S((6, 5)), S((3,), i32))
simple('gather_batched', 'take_along_axis and vmapped indexing (batching dimensions)', lambda x, i: (jnp.take_along_axis(x, i, 1), jax.vmap(lambda a, j: a[j])(x, i)), S((4, 6)), S((4, 2), i32))
simple('scatter_all', 'scatter: set, add, multiply, min, max, apply', lambda x, i, u: (x.at[i].set(u), x.at[i].add(u), x.at[i].mul(u), x.at[i].min(u), x.at[i].max(u, mode='drop', unique_indices=True), x.at[i].apply(jnp.sin)), S((6, 5)), S((3,), i32), S((3, 5)))
simple('windows', 'cumsum, cumprod, cummax, reduce_window with dilation and negative padding, variadic argmax', lambda x: (jnp.cumsum(x, 0), jnp.cumprod(x, 1), lax.cummax(x, 1, reverse=True), lax.reduce_window(x, 1., lax.mul, (2, 2), (1, 2), ((1, -1), (0, 2)), (2, 1), (1, 3)), jnp.argmax(x, 0)), S((6, 7)))
simple('conv_variants', 'transposed, depthwise, dilated, batch-grouped, 1-d and 3-d convolutions, integer convolution', lambda x, k, d, y, k1, v, k3, xi, ki: (
    lax.conv_transpose(x, k, (2, 2), 'SAME'), lax.conv_general_dilated(x, d, (1, 1), 'VALID', feature_group_count=4, dimension_numbers=('NHWC', 'HWIO', 'NHWC')),
    lax.conv_general_dilated(x, k, (1, 1), ((2, -1), (0, 3)), rhs_dilation=(2, 1), dimension_numbers=('NHWC', 'HWIO', 'NHWC'), precision='highest'),
    lax.conv_general_dilated(y, k1, (1,), 'SAME', batch_group_count=2), lax.conv(v, k3, (1, 1, 1), 'SAME'),
    lax.conv_general_dilated(xi, ki, (1, 1), 'VALID', preferred_element_type=i32)),
    S((2, 6, 6, 4)), S((3, 3, 4, 5)), S((3, 3, 1, 8)), S((4, 3, 9)), S((6, 3, 3)), S((1, 2, 4, 4, 4)), S((2, 2, 2, 2, 2)), S((1, 2, 5, 5), i8), S((3, 2, 3, 3), i8))
simple('dot_variants', 'dot_general: batch, mixed int8, precision, algorithm preset', lambda a, b, x, y: (
    lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,)))), lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=i32),
    jnp.matmul(a, b, precision='highest'), lax.dot(a[0], b[0], precision=lax.DotAlgorithmPreset.TF32_TF32_F32_X3), jnp.outer(a[0, 0], b[0, :, 0])),
    S((3, 4, 5)), S((3, 5, 6)), S((4, 5), i8), S((5, 2), i8))

# ---------------------------------------------------------------- element types
simple('complex_math', 'complex arithmetic and functions', lambda z: (jnp.exp(z), jnp.sqrt(z), jnp.tanh(z), jnp.abs(z), jnp.conj(z) * z / (1 + z), jnp.log1p(z), jnp.angle(z)), S((4,), jnp.complex64))
simple('float8', 'conversions and products in eight kinds of 8-bit floats', lambda x: [lax.dot(x.astype(t), x.astype(t), preferred_element_type=f32) for t in (jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.float8_e4m3fnuz, jnp.float8_e5m2fnuz, jnp.float8_e4m3b11fnuz, jnp.float8_e4m3, jnp.float8_e3m4, jnp.float8_e8m0fnu)], S((4, 4)))
simple('tiny_types', 'int4, uint4, int2, uint2, f4 values and constants', lambda x: (x.astype(jnp.int4) + jnp.int4(-3), x.astype(jnp.uint4), x.astype(jnp.int2), x.astype(jnp.uint2), x.astype(jnp.float4_e2m1fn).astype(f32), jnp.array([1, -2, 7], jnp.int4), jnp.array([.5, -6], jnp.float4_e2m1fn)), S((3,), i32))
simple('wide_types', '64-bit integers and floats, complex128', lambda x, n, z: (jnp.sin(x) + n, n // 3 - 2**40, z * (1 + 2j), n.astype(jnp.uint64) >> 7), S((3,), jnp.float64), S((3,), jnp.int64), S((3,), jnp.complex128), x64=True)
simple('bool_constants', 'boolean constants: splats, short, long, one element', lambda x: (x & jnp.array([True, False, True] * 7), jnp.ones((4, 9), bool), jnp.zeros((3,), bool), jnp.array([True]), jnp.array([[True, False], [False, False]])), S((21,), bool))
simple('special_functions', 'erf (composite), erf_inv, digamma (expanded)', lambda x: (lax.erf(x), lax.erf_inv(x), lax.digamma(x)), S((3,)))
simple('chlo_composites', 'functions that travel as composites', lambda x: (jnp.arccos(x), jnp.arcsin(x), jnp.arccosh(x), jnp.arcsinh(x), jnp.arctanh(x), jnp.cosh(x), jnp.sinh(x), jnp.arctan(x), jnp.tan(x), lax.erf(x), lax.square(x), lax.nextafter(x, x + 1)), S((3,)))
simple('reductions', 'sum, max, min, any, all, prod, argmin, logsumexp, variance over several axes', lambda x: (x.sum((0, 2)), x.max(1), x.min(), (x > 0).any(0), (x > 0).all(), x.prod(2), x.argmin(1), jax.nn.logsumexp(x, 0), x.var((1, 2))), S((3, 4, 5)))
simple('layout_ops', 'transpose, reverse, pad with negative and interior padding, tile, split, iota, expand', lambda x: (x.transpose(2, 0, 1), jnp.flip(x, (0, 2)), lax.pad(x, 0., ((1, -1, 0), (0, 2, 1), (-1, 0, 2))), jnp.tile(x, (2, 1, 1)), jnp.split(x, 2, 2), lax.broadcasted_iota(i32, (2, 3), 1), x[::2, 1:3, None]), S((3, 4, 6)))

# ---------------------------------------------------------------- constants, composites, custom calls, effects
simple('large_constants', 'closed-over arrays: f32 table, i32 table, bool table, splat', lambda x, A=np.random.RandomState(0).randn(16, 16).astype('f'), B=np.arange(300, dtype='i4').reshape(3, 100), C=np.random.RandomState(1).rand(77) < .5: (x @ A, x.sum() + B, jnp.where(C, 1., x.mean()), jnp.full((50, 50), 2.5)), S((16,)))
@program('user composite with attributes of several kinds')
def composite_user(platform):
    @partial(lax.composite, name='my.tanh_scaled', version=3)
    def g(x, *, scale, mode, dims, flag): return jnp.tanh(x) * scale
    return jit(lambda x: g(g(x, scale=np.float32(2.), mode='fast', dims=np.array([1, 2]), flag=True), scale=np.float32(-1), mode='', dims=np.array([0]), flag=False), S((4,)), platform=platform)
@program('typed FFI call with a dictionary backend_config, aliasing and layouts')
def ffi_call(platform):
    def f(x, n):
        a = jax.ffi.ffi_call('my_kernel', (jax.ShapeDtypeStruct((4, 3), f32), jax.ShapeDtypeStruct((), i32)), input_output_aliases={0: 0},
                             input_layouts=[(0, 1), ()], output_layouts=[(0, 1), ()])(x, n, alpha=np.float32(.5), name='q"\\x', n=np.int64(3), on=True, w=np.arange(4, dtype=np.int32))
        b = jax.ffi.ffi_call('old_kernel', jax.ShapeDtypeStruct((2,), bf16), custom_call_api_version=1, legacy_backend_config='opaque\x01\xff bytes', has_side_effect=True)(n)
        return a, b
    return jit(f, S((4, 3)), S((), i32), platform=platform)
simple('barrier', 'optimization_barrier and stop_gradient', lambda x, y: lax.optimization_barrier((x + 1, y)), S((3,)), S((2,), i32))
@program('io_callback ordered and unordered, pure_callback, debug print: CPU lowering (tokens)', platform='cpu')
def callbacks_cpu(platform):
    from jax.experimental import io_callback
    def f(x):
        y = io_callback(lambda a: a, S((3,)), x, ordered=True); z = io_callback(lambda a: a, S((3,)), y, ordered=False)
        jax.debug.print('x {}', x); w = jax.pure_callback(lambda a: a, S((3,)), z); jax.debug.print('w {}', w, ordered=True)
        return w
    return jit(f, S((3,)), platform=platform)
@program('name scopes, inlined functions, full call-site locations')
def locations(platform):
    def scaled(x):
        with jax.named_scope('inner scope'): return jnp.sin(x) * 2
    def f(x):
        with jax.named_scope('outer'): return jax.jit(scaled)(x) + scaled(x)
    jax.config.update('jax_include_full_tracebacks_in_locations', True)
    return jit(f, S((2,)), platform=platform)
@program('exported with symbolic shapes: dynamic ops and shape assertions', platform='cpu')
def symbolic_shapes(platform):
    a, b = jax.export.symbolic_shape('a, b', constraints=['a >= 2', 'b >= 3'])
    def f(x, y):
        z = jnp.concatenate([x, x[:1] * 2], 0) @ y; return z.reshape(-1), jnp.arange(x.shape[0]), jnp.pad(z, ((0, 2), (1, 0))), z[1:, ::2], lax.top_k(y, 2)[0], jnp.broadcast_to(y[0], (x.shape[0], y.shape[1]))
    return jax.export.export(jax.jit(f), platforms=[platform])(S((a, 4)), S((4, b))).mlir_module_serialized

# ---------------------------------------------------------------- several devices
def mesh(*ax, **kw): return jax.make_mesh(tuple(n for _, n in ax), tuple(a for a, _ in ax), **kw)
AUTO = lambda n: dict(axis_types=(AxisType.Auto,) * n)
@program('shard_map: psum, all_gather, psum_scatter, ppermute, all_to_all, axis_index, pmax', platform='cpu')
def shard_map_collectives(platform):
    m = mesh(('x', 4), ('y', 2), **AUTO(2))
    def f(x):
        return (lax.psum(x, 'x'), lax.all_gather(x, 'y', tiled=True), lax.psum_scatter(x, 'x', tiled=True), lax.ppermute(x, 'x', [(0, 1), (1, 2), (2, 3)]),
                lax.all_to_all(x, 'x', 0, 1, tiled=True), x + lax.axis_index('y'), lax.pmax(x, ('x', 'y')), lax.pmean(x, 'y'))
    g = jax.shard_map(f, mesh=m, in_specs=P('x', 'y'), out_specs=P('x', 'y'), check_vma=False)
    return jax.jit(g).trace(S((32, 16))).lower()
@program('jit over a mesh with sharding constraints and donated sharded arguments', platform='cpu')
def sharded_jit(platform):
    m = mesh(('data', 4), ('model', 2), **AUTO(2)); s = lambda *p: NamedSharding(m, P(*p))
    def f(x, w):
        y = lax.with_sharding_constraint(x @ w, s('data', 'model')); return jnp.tanh(y), y.sum()
    return jax.jit(f, in_shardings=(s('data', None), s(None, 'model')), out_shardings=(s('data'), s()), donate_argnums=0).trace(S((8, 16)), S((16, 8))).lower()
@program('nested manual regions: shard_map over one axis inside a sharded jit, scan inside', platform='cpu')
def shard_map_partial(platform):
    m = mesh(('x', 2), ('y', 4), **AUTO(2))
    def inner(x): return lax.scan(lambda c, r: (c + lax.psum(r, 'x'), r * 2), jnp.zeros(x.shape[1]), x)
    g = jax.shard_map(inner, mesh=m, in_specs=P('x', None), out_specs=(P(None), P('x', None)), axis_names={'x'}, check_vma=False)
    return jax.jit(lambda x: g(jnp.sin(x)), in_shardings=NamedSharding(m, P('x', 'y'))).trace(S((8, 12))).lower()
@program('sharded jit without Shardy: mhlo.sharding strings and Sharding custom calls', platform='cpu', jax_use_shardy_partitioner=False)
def sharded_jit_gspmd(platform): return PROGRAMS['sharded_jit'][1](platform)

# ---------------------------------------------------------------- written as text
TEXTS = {
'resource_constant': ('constant whose value is a dense resource: builtin attribute and resource sections in a VHLO artifact', """
module { func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { %0 = stablehlo.constant dense_resource<table> : tensor<4xf32> %1 = stablehlo.add %a, %0 : tensor<4xf32> return %1 : tensor<4xf32> } }
{-# dialect_resources: { builtin: { table: "0x040000000000803F000000400000404000008040" } } #-}"""),
'foreign_attributes': ('attributes without a VHLO counterpart stay builtin: unit, f32 array, nested symbol, affine map (assembly text)', """
func.func @main(%a: tensor<2xf32> {x.unit}) -> (tensor<2xf32> {x.arr = array<f32: 1.0, 2.0>}) { %0 = stablehlo.add %a, %a {x.flag, x.map = affine_map<(d0) -> (d0 + 1)>, x.sym = @a::@b, x.i64s = array<i64: 1, 2>, x.ref = @main} : tensor<2xf32> return %0 : tensor<2xf32> }"""),
'sdy_small_floats': ('builtin codes of small float types beside a manual computation; unit-free casts', """
sdy.mesh @m = <["x"=2]>
func.func @main(%a: tensor<8x8xf8E4M3FN>, %b: tensor<4xf4E2M1FN>) -> (tensor<8x8xf8E4M3FN>, tensor<4xf4E2M1FN>) {
  %0:2 = sdy.manual_computation(%a, %b) in_shardings=[<@m, [{"x"}, {}]>, <@m, [{}]>] out_shardings=[<@m, [{"x"}, {}]>, <@m, [{}]>] manual_axes={"x"} (%c: tensor<4x8xf8E4M3FN>, %d: tensor<4xf4E2M1FN>) {
    %1 = stablehlo.add %c, %c : tensor<4x8xf8E4M3FN> sdy.return %1, %d : tensor<4x8xf8E4M3FN>, tensor<4xf4E2M1FN> } : (tensor<8x8xf8E4M3FN>, tensor<4xf4E2M1FN>) -> (tensor<8x8xf8E4M3FN>, tensor<4xf4E2M1FN>)
  return %0#0, %0#1 : tensor<8x8xf8E4M3FN>, tensor<4xf4E2M1FN> }"""),
'rare_ops': ('batch norm, tuples, map, if, einsum, infeed and outfeed, send and recv, set_dimension_size with bounds', """
func.func @main(%x: tensor<2x3xf32>, %s: tensor<3xf32>, %p: tensor<i1>, %n: tensor<i32>, %t: !stablehlo.token) -> (tensor<2x3xf32>, tensor<2x2xf32>, tensor<?x3xf32, #stablehlo.bounds<2, ?>>, !stablehlo.token) {
  %0:3 = "stablehlo.batch_norm_training"(%x, %s, %s) {epsilon = 1.0e-3 : f32, feature_index = 1 : i64} : (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>)
  %1 = stablehlo.tuple %0#0, %s : tuple<tensor<2x3xf32>, tensor<3xf32>>
  %2 = stablehlo.get_tuple_element %1[0] : (tuple<tensor<2x3xf32>, tensor<3xf32>>) -> tensor<2x3xf32>
  %3 = "stablehlo.map"(%2) ({ ^bb0(%u: tensor<f32>): %v = stablehlo.abs %u : tensor<f32> stablehlo.return %v : tensor<f32> }) {dimensions = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %4 = "stablehlo.if"(%p) ({ stablehlo.return %3 : tensor<2x3xf32> }, { stablehlo.return %x : tensor<2x3xf32> }) : (tensor<i1>) -> tensor<2x3xf32>
  %5 = stablehlo.einsum %4, %x, config = "ab,cb->ac" : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x2xf32>
  %6 = "stablehlo.set_dimension_size"(%4, %n) {dimension = 0 : i64} : (tensor<2x3xf32>, tensor<i32>) -> tensor<?x3xf32, #stablehlo.bounds<2, ?>>
  %7:2 = "stablehlo.infeed"(%t) {infeed_config = "q", layout = [[0, 1]]} : (!stablehlo.token) -> (tensor<2x3xf32>, !stablehlo.token)
  %8 = "stablehlo.outfeed"(%7#0, %7#1) {outfeed_config = ""} : (tensor<2x3xf32>, !stablehlo.token) -> !stablehlo.token
  %9 = "stablehlo.send"(%x, %8) {channel_handle = #stablehlo.channel_handle<handle = 5, type = 2>, is_host_transfer = true} : (tensor<2x3xf32>, !stablehlo.token) -> !stablehlo.token
  %10:2 = "stablehlo.recv"(%9) {channel_handle = #stablehlo.channel_handle<handle = 6, type = 3>, is_host_transfer = true} : (!stablehlo.token) -> (tensor<2x3xf32>, !stablehlo.token)
  return %10#0, %5, %6, %10#1 : tensor<2x3xf32>, tensor<2x2xf32>, tensor<?x3xf32, #stablehlo.bounds<2, ?>>, !stablehlo.token }"""),
}
# The same programs for older targets: other container versions and _v1 ops.
OLD = {'sort_pairs': '0.9.0', 'while_collatz': '0.11.0', 'cond_switch': '0.12.0', 'conv_variants': '0.14.0', 'attention_bf16': '0.17.0',
       'scatter_all': '1.0.0', 'top_k': '1.0.0', 'rare_ops': '0.14.0', 'gather_batched': '1.4.0', 'complex_math': '1.8.0', 'mlp_train': '1.13.7', 'sharded_jit': '1.13.7'}

# ---------------------------------------------------------------- making
def text_of(mod): return mod.operation.get_asm(enable_debug_info=False)

def parse(text):
    ctx = jmlir.make_ir_context(); stablehlo.register_dialect(ctx)
    return ir.Module.parse(text, ctx)

def make(name, target=CURRENT, platform='vulkan'):
    """-> (note, artifact bytes, StableHLO text, platform)."""
    if name in TEXTS:
        note, t = TEXTS[name]
        return note, stablehlo.serialize_portable_artifact(parse(t), target, True), text_of(parse(t)), ''
    note, f, plat, x64, cfg = PROGRAMS[name]; plat = plat or platform
    old = {k: getattr(jax.config, k) for k in cfg}; full = jax.config.jax_include_full_tracebacks_in_locations
    jax.clear_caches()
    for k, v in cfg.items(): jax.config.update(k, v)
    try:
        with jax.enable_x64(x64):
            r = f(platform=plat)
            if isinstance(r, bytes):
                with jmlir.make_ir_context() as ctx:
                    return note, r, text_of(stablehlo.deserialize_portable_artifact(ctx, r)), plat
            mod = r.compiler_ir('stablehlo'); text = text_of(mod)
            return note, _jax.mlir.serialize_portable_artifact(mod, target, True), text, plat
    finally:
        for k, v in old.items(): jax.config.update(k, v)
        jax.config.update('jax_include_full_tracebacks_in_locations', full)

def make_all(out, truth=None, only=''):
    """truth: function(bytes, **facts) -> object written as NAME.json."""
    os.makedirs(out, exist_ok=True); rows = []
    for name, target in [(n, CURRENT) for n in list(PROGRAMS) + list(TEXTS)] + list(OLD.items()):
        if only not in name: continue
        file = name if target == CURRENT else f'{name}.v{target}'
        note, b, t, plat = make(name, target)
        open(os.path.join(out, file + '.mlirbc'), 'wb').write(b)
        if target == CURRENT: open(os.path.join(out, file + '.mlir'), 'w').write(t)
        if truth:
            json.dump(truth(b, artifact=file + '.mlirbc', note=note, platform=plat, made_with=f'jax {jax.__version__}'),
                      open(os.path.join(out, file + '.json'), 'w'), separators=(',', ':'))
        rows.append((file, len(b), target, plat, note))
    return rows

if __name__ == '__main__':
    ap = argparse.ArgumentParser(description=__doc__); ap.add_argument('out'); ap.add_argument('--only', default='')
    a = ap.parse_args()
    for r in make_all(a.out, only=a.only): print(*r)
