# SPDX-License-Identifier: Apache-2.0
"""Every opcode that XLA's schema has, as HLO text with the result that it must give.

The oracle is numpy, and for forms that say the same twice (a fusion and its body, an asynchronous
start and its end) the plain one. Each of jaxlib's opcodes is in one of these programs, in one of
test_hlo.py's families, or in REFUSED with what is said of it.
"""
import re

import ml_dtypes
import numpy as np
import pytest
from jaxlib import _hlo

import programs
from test_hlo import evaluate

ADD = 'add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }\n'
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
F32 = X.ravel()
I32 = np.array([7, -3, 2**31 - 1, -2**31], np.int32)


def module(text):
    return _hlo.hlo_module_from_text('HloModule m\n' + text).as_serialized_hlo_module_proto()


def entry(body, more=''):
    return module(f'{more}ENTRY e {{\n{body}\n}}\n')


def unary(opcode, result='f32[6]', operand='f32[6]'):
    return entry(f'x = {operand} parameter(0)\nROOT r = {result} {opcode}(x)')


U64 = np.array([2**63 + 5, 3, 2**64 - 1, 12345678901234567], np.uint64)
WIDE = [int(a) * int(b) for a, b in zip(U64, U64[::-1])]
HALVES = np.array([0.25, 1.75, -1.25, -0.75, 300, -300], np.float32)
RANDOM = np.array([2**14, 2**14, 2**13, 2**15 + 2**15 - 1, 0, 0], np.uint16)
LEFT = np.arange(24, dtype=np.float32).reshape(6, 4) - 11
RIGHT = np.arange(60, dtype=np.float32).reshape(3, 4, 5) - 31
GROUPS = np.array([1, 3, 1], np.int32)


def grouped(mode):
    """ragged-dot by its definition: rows, contracted elements or batches of group g."""
    ends = np.cumsum(GROUPS)
    ranges = [range(end - n, end) for n, end in zip(GROUPS, ends)]
    if mode == 'rows':
        out = np.zeros((6, 5), np.float32)
        for g, rows in enumerate(ranges):
            out[rows] = LEFT[rows] @ RIGHT[g]
        return out
    a, b = LEFT, LEFT[:, ::-1]
    return np.stack([a[rows].T @ b[rows] for rows in ranges])


# name: (module, inputs, results)
PROGRAMS = {
    'tuples are flattened, nested and at both ends': (
        entry('p = (f32[6], (f32[2,3], s32[4])) parameter(0)\n'
              'i = (f32[2,3], s32[4]) get-tuple-element(p), index=1\n'
              's = s32[4] get-tuple-element(i), index=1\n'
              'e = () tuple()\n'
              'q = f32[6] parameter(1)\n'
              'u = (f32[6], (f32[2,3], s32[4])) tuple(q, i)\n'
              'ROOT t = (s32[4], (), (f32[6], (f32[2,3], s32[4]))) tuple(s, e, u)'),
        [F32, X, I32, F32 + 1], [I32, F32 + 1, X, I32]),
    'fusion': (entry('x = f32[6] parameter(0)\n'
                     'ROOT f = (f32[6], f32[6]) fusion(x), kind=kLoop, calls=body',
                     'body { p = f32[6] parameter(0) n = f32[6] negate(p) '
                     'ROOT t = (f32[6], f32[6]) tuple(n, p) }\n'),
               [F32], [-F32, F32]),
    'call, twice': (entry('x = f32[6] parameter(0)\na = f32[6] call(x), to_apply=body\n'
                          'ROOT b = f32[6] call(a), to_apply=body',
                          'body { p = f32[6] parameter(0) ROOT n = f32[6] add(p, p) }\n'),
                    [F32], [4 * F32]),
    'while over a tuple': (
        entry('z = s32[] constant(0)\nx = f32[6] parameter(0)\n'
              't = (s32[], f32[6]) tuple(z, x)\n'
              'w = (s32[], f32[6]) while(t), condition=cond, body=body\n'
              'ROOT r = f32[6] get-tuple-element(w), index=1',
              'body { p = (s32[], f32[6]) parameter(0) i = s32[] get-tuple-element(p), index=0 '
              'o = s32[] constant(1) n = s32[] add(i, o) x = f32[6] get-tuple-element(p), index=1 '
              'd = f32[6] add(x, x) ROOT t = (s32[], f32[6]) tuple(n, d) }\n'
              'cond { p = (s32[], f32[6]) parameter(0) i = s32[] get-tuple-element(p), index=0 '
              'o = s32[] constant(3) ROOT c = pred[] compare(i, o), direction=LT }\n'),
        [F32], [8 * F32]),
    'while over an array, its body called twice': (
        entry('x = s32[] parameter(0)\nw = s32[] while(x), condition=cond, body=body\n'
              'ROOT v = s32[] while(w), condition=cond, body=body',
              'body { p = s32[] parameter(0) ROOT d = s32[] add(p, p) }\n'
              'cond { p = s32[] parameter(0) o = s32[] constant(50) '
              'ROOT c = pred[] compare(p, o), direction=LT }\n'),
        [np.int32(3)], [np.int32(96)]),
    'conditional by a truth': (
        entry('p = pred[] parameter(0)\nx = f32[6] parameter(1)\ny = f32[2,3] parameter(2)\n'
              'ROOT c = f32[] conditional(p, x, y), true_computation=one, false_computation=two',
              ADD + 'one { x = f32[6] parameter(0) z = f32[] constant(0) '
              'ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add }\n'
              'two { x = f32[2,3] parameter(0) z = f32[] constant(1) '
              'ROOT r = f32[] reduce(x, z), dimensions={0,1}, to_apply=add }\n'),
        [np.bool_(False), F32, X], [np.float32(1 + X.sum())]),
    'conditional by a number, one computation for two branches': (
        entry('p = s32[] parameter(0)\nx = f32[6] parameter(1)\n'
              'ROOT c = f32[6] conditional(p, x, x, x), branch_computations={a, b, a}',
              'a { x = f32[6] parameter(0) ROOT r = f32[6] negate(x) }\n'
              'b { x = f32[6] parameter(0) ROOT r = f32[6] add(x, x) }\n'),
        [np.int32(7), F32], [-F32]),
    'map': (entry('x = f32[6] parameter(0)\nROOT m = f32[6] map(x, x), dimensions={0}, to_apply=add',
                  ADD), [F32], [2 * F32]),
    'a literal in another layout': (
        entry('ROOT c = f32[2,3]{0,1} constant({{1,2,3},{4,5,6}})'), [],
        [np.array([[1, 2, 3], [4, 5, 6]], np.float32)]),
    'a literal in another layout of three dimensions': (
        entry('ROOT c = s32[2,1,3]{0,2,1} constant({{{1,2,3}},{{4,5,6}}})'), [],
        [np.array([[[1, 2, 3]], [[4, 5, 6]]], np.int32)]),
    'copy, domain, opt-barrier, add-dependency': (
        entry('x = f32[2,3] parameter(0)\nc = f32[2,3]{0,1} copy(x)\n'
              'd = f32[2,3] domain(c), domain={kind="sharding", entry={replicated}, '
              'exit={replicated}}\nt = token[] after-all()\nu = token[] after-all(t)\n'
              'a = f32[2,3] add-dependency(d, u)\nROOT b = f32[2,3] opt-barrier(a)'),
        [X], [X]),
    'bitcast by layouts': (
        entry('x = f32[2,3]{0,1} parameter(0)\nROOT b = f32[6]{0} bitcast(x)'), [X], [X.T.ravel()]),
    'bitcast to a layout and a type': (
        entry('x = f32[6]{0} parameter(0)\nROOT b = s32[2,3]{0,1} bitcast(x)'), [F32],
        [F32.view(np.int32).reshape(3, 2).T]),
    'dynamic-slice by a vector': (
        entry('x = f32[6] parameter(0)\ni = s32[1] parameter(1)\n'
              'ROOT r = f32[2] dynamic-slice(x, i), dynamic_slice_sizes={2}'),
        [F32, np.array([3], np.int32)], [F32[3:5]]),
    'reduce of two': (
        entry('x = f32[6] parameter(0)\ni = s32[6] iota(), iota_dimension=0\n'
              'z = f32[] constant(0)\nj = s32[] constant(0)\n'
              'ROOT r = (f32[], s32[]) reduce(x, i, z, j), dimensions={0}, to_apply=both',
              'both { a = f32[] parameter(0) i = s32[] parameter(1) b = f32[] parameter(2) '
              'j = s32[] parameter(3) s = f32[] add(a, b) k = s32[] add(i, j) '
              'ROOT t = (f32[], s32[]) tuple(s, k) }\n'),
        [F32], [F32.sum(), np.int32(15)]),
    'sort of a key and a value': (
        entry('x = f32[6] parameter(0)\ni = s32[6] iota(), iota_dimension=0\n'
              'ROOT s = (f32[6], s32[6]) sort(x, i), dimensions={0}, is_stable=true, to_apply=gt',
              'gt { a = f32[] parameter(0) b = f32[] parameter(1) i = s32[] parameter(2) '
              'j = s32[] parameter(3) ROOT c = pred[] compare(a, b), direction=GT }\n'),
        [F32], [F32[::-1], np.arange(6, dtype=np.int32)[::-1]]),
    'topk': (entry('x = f32[6] parameter(0)\nROOT t = (f32[2], s32[2]) topk(x), k=2, largest=true'),
             [F32], [np.array([3, 2], np.float32), np.array([5, 4], np.int32)]),
    'topk of the least': (
        entry('x = f32[6] parameter(0)\nROOT t = (f32[2], s32[2]) topk(x), k=2, largest=false'),
        [F32], [np.array([-2, -1], np.float32), np.array([0, 1], np.int32)]),
    'convolution that reverses its window': (
        entry('x = f32[1,1,6] parameter(0)\nw = f32[1,1,2] parameter(1)\n'
              'ROOT c = f32[1,1,5] convolution(x, w), window={size=2 rhs_reversal=1}, '
              'dim_labels=bf0_oi0->bf0'),
        [F32.reshape(1, 1, 6), np.array([[[1, 10]]], np.float32)],
        [np.convolve(F32, [1, 10], 'valid').astype(np.float32).reshape(1, 1, 5)]),
    'mulhi s32': (entry('x = s32[4] parameter(0)\nr = s32[4] reverse(x), dimensions={0}\n'
                        'ROOT m = s32[4] mulhi(x, r)'),
                  [I32], [((I32.astype(np.int64) * I32[::-1].astype(np.int64)) >> 32).astype(np.int32)]),
    'mulhi u64': (entry('x = u64[4] parameter(0)\nr = u64[4] reverse(x), dimensions={0}\n'
                        'ROOT m = u64[4] mulhi(x, r)'),
                  [U64], [np.array([w >> 64 for w in WIDE], np.uint64)]),
    'mulhi s64': (entry('x = s64[4] parameter(0)\nr = s64[4] reverse(x), dimensions={0}\n'
                        'ROOT m = s64[4] mulhi(x, r)'),
                  [U64.view(np.int64)],
                  [np.array([(int(a) * int(b)) >> 64 for a, b in
                             zip(U64.view(np.int64), U64.view(np.int64)[::-1])], np.int64)]),
    'stochastic-convert': (
        entry('x = f32[6] parameter(0)\nr = u16[6] parameter(1)\n'
              'ROOT c = s8[6] stochastic-convert(x, r)'),
        [HALVES, RANDOM], [np.array([0, 2, -2, 0, 127, -128], np.int8)]),
    'ragged-dot by rows': (
        entry('a = f32[6,4] parameter(0)\nb = f32[3,4,5] parameter(1)\ng = s32[3] parameter(2)\n'
              'ROOT d = f32[6,5] ragged-dot(a, b, g), lhs_contracting_dims={1}, '
              'rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}'),
        [LEFT, RIGHT, GROUPS], [grouped('rows')]),
    'ragged-dot by contracted elements': (
        entry('a = f32[6,4] parameter(0)\nb = f32[6,4] parameter(1)\ng = s32[3] parameter(2)\n'
              'ROOT d = f32[3,4,4] ragged-dot(a, b, g), lhs_contracting_dims={0}, '
              'rhs_contracting_dims={0}, lhs_ragged_dims={0}'),
        [LEFT, LEFT[:, ::-1].copy(), GROUPS], [grouped('contracted')]),
    'async-start of a computation': (
        entry('x = f32[6] parameter(0)\n'
              's = ((f32[6]), f32[6], s32[]) async-start(x), calls=body\n'
              'u = ((f32[6]), f32[6], s32[]) async-update(s)\n'
              'ROOT d = f32[6] async-done(u)',
              'body { p = f32[6] parameter(0) ROOT n = f32[6] negate(p) }\n'),
        [F32], [-F32]),
    'copy-start': (entry('x = f32[6] parameter(0)\ns = (f32[6], f32[6], u32[]) copy-start(x)\n'
                         'ROOT d = f32[6] copy-done(s)'), [F32], [F32]),
    'collectives of one device': (
        entry('x = f32[2,3] parameter(0)\n'
              'a = f32[2,3] all-gather(x), replica_groups={{0}}, dimensions={0}\n'
              'gs = (f32[2,3], f32[2,3]) all-gather-start(a), replica_groups={{0}}, dimensions={0}\n'
              'g = f32[2,3] all-gather-done(gs)\n'
              'r = f32[2,3] all-reduce(g), replica_groups={}, to_apply=add\n'
              'rs = f32[2,3] all-reduce-start(r), replica_groups={{0}}, to_apply=add\n'
              'rd = f32[2,3] all-reduce-done(rs)\n'
              'sc = f32[2,3] reduce-scatter(rd), replica_groups={{0}}, dimensions={0}, to_apply=add\n'
              'aa = f32[2,3] all-to-all(sc), replica_groups={{0}}, dimensions={1}\n'
              'at = (f32[2,3]) all-to-all(aa), replica_groups={{0}}\n'
              'ag = f32[2,3] get-tuple-element(at), index=0\n'
              'cb = f32[2,3] collective-broadcast(ag), replica_groups={{0}}\n'
              'cp = f32[2,3] collective-permute(cb), source_target_pairs={{0,0}}\n'
              'ps = (f32[2,3], f32[2,3]) collective-permute-start(cp), source_target_pairs={{0,0}}\n'
              'pd = f32[2,3] collective-permute-done(ps)\n'
              'id = u32[] replica-id()\nip = u32[] partition-id()\n'
              'ROOT t = (f32[2,3], u32[], u32[]) tuple(pd, id, ip)', ADD),
        [X], [X, np.uint32(0), np.uint32(0)]),
    'an iota of replica groups': (
        entry('x = f32[6] parameter(0)\n'
              'ROOT r = f32[6] all-reduce(x), replica_groups=[1,1]<=[1], to_apply=add', ADD),
        [F32], [F32]),
    'sizes of dimensions': (
        entry('x = f32[2,3] parameter(0)\nROOT n = s32[] get-dimension-size(x), dimensions={1}'),
        [X], [np.int32(3)]),
    'set-dimension-size makes a bounded dimension': (
        entry('x = f32[2,3] parameter(0)\nn = s32[] parameter(1)\n'
              's = f32[2,<=3] set-dimension-size(x, n), dimensions={1}\n'
              'ROOT g = s32[] get-dimension-size(s), dimensions={1}'), [X, np.int32(2)], [np.int32(2)]),
    'pad': (entry('x = f32[6] parameter(0)\nz = f32[] constant(9)\n'
                  'ROOT p = f32[12] pad(x, z), padding=2_-1_1'),
            [F32], [np.array([9, 9, -2, 9, -1, 9, 0, 9, 1, 9, 2, 9], np.float32)]),
    'cholesky': (entry('x = f32[2,2] parameter(0)\nl = f32[2,2] cholesky(x), lower=true\n'
                       'm = pred[2,2] constant({{1,0},{1,1}})\nz = f32[2,2] constant({{0,0},{0,0}})\n'
                       'ROOT r = f32[2,2] select(m, l, z)'),
                 [np.array([[4, 2], [2, 5]], np.float32)], [np.array([[2, 0], [1, 2]], np.float32)]),
    'batch-norm-inference': (
        entry('x = f32[6,1] parameter(0)\no = f32[1] constant({1})\nv = f32[1] constant({3})\n'
              'ROOT r = f32[6,1] batch-norm-inference(x, o, v, o, v), epsilon=1, feature_index=1'),
        [F32.reshape(6, 1)], [(F32.reshape(6, 1) - 1) / 2 + 3]),
    'batch-norm-training': (
        entry('x = f32[4,1] parameter(0)\no = f32[1] constant({1})\nv = f32[1] constant({5})\n'
              'ROOT r = (f32[4,1], f32[1], f32[1]) batch-norm-training(x, o, v), epsilon=3, '
              'feature_index=1'),
        [np.array([[-1], [1], [1], [-1]], np.float32)],
        [np.array([[4.5], [5.5], [5.5], [4.5]], np.float32), np.zeros(1, np.float32),
         np.ones(1, np.float32)]),
    'Sharding is an annotation': (
        entry('x = f32[6] parameter(0)\nROOT c = f32[6] custom-call(x), '
              'custom_call_target="Sharding", sharding={replicated}'), [F32], [F32]),
    'rng of one value': (
        entry('a = f32[] parameter(0)\nr = f32[3] rng(a, a), distribution=rng_uniform\n'
              'z = f32[3] subtract(r, r)\nROOT s = f32[3] add(z, z)'),
        [np.float32(2)], [np.zeros(3, np.float32)]),
    'rng-bit-generator': (
        entry('s = u64[2] parameter(0)\n'
              'b = (u64[2], u32[4]) rng-bit-generator(s), algorithm=rng_three_fry\n'
              'n = u64[2] get-tuple-element(b), index=0\n'
              'ROOT d = u64[2] subtract(n, s)'),
        [np.array([1, 2], np.uint64)], [np.array([0, 2], np.uint64)]),
}

# Literals of every element type: (HLO's name, text, values).
LITERALS = [
    ('pred', '{1, 0, 1}', np.array([1, 0, 1], bool)),
    ('s2', '{1, -2, 0}', np.array([1, -2, 0], ml_dtypes.int2)),
    ('u2', '{1, 3, 0}', np.array([1, 3, 0], ml_dtypes.uint2)),
    ('s4', '{1, -8, 7}', np.array([1, -8, 7], ml_dtypes.int4)),
    ('u4', '{1, 15, 7}', np.array([1, 15, 7], ml_dtypes.uint4)),
    *((f's{n}', f'{{1, -3, {2**(n - 1) - 1}}}', np.array([1, -3, 2**(n - 1) - 1], f'i{n // 8}'))
      for n in (8, 16, 32, 64)),
    *((f'u{n}', f'{{1, 3, {2**n - 1}}}', np.array([1, 3, 2**n - 1], f'u{n // 8}'))
      for n in (8, 16, 32, 64)),
    *((name, '{0.5, -1, 2}', np.array([0.5, -1, 2], dtype)) for name, dtype in (
        ('f16', np.float16), ('bf16', ml_dtypes.bfloat16), ('f32', np.float32), ('f64', np.float64),
        ('f4e2m1fn', ml_dtypes.float4_e2m1fn), ('f8e3m4', ml_dtypes.float8_e3m4),
        ('f8e4m3', ml_dtypes.float8_e4m3), ('f8e4m3fn', ml_dtypes.float8_e4m3fn),
        ('f8e4m3fnuz', ml_dtypes.float8_e4m3fnuz),
        ('f8e4m3b11fnuz', ml_dtypes.float8_e4m3b11fnuz), ('f8e5m2', ml_dtypes.float8_e5m2),
        ('f8e5m2fnuz', ml_dtypes.float8_e5m2fnuz))),
    ('f8e8m0fnu', '{0.5, 1, 2}', np.array([0.5, 1, 2], ml_dtypes.float8_e8m0fnu)),
    ('c64', '{(1, -2), (0, 3), (4, 0)}', np.array([1 - 2j, 3j, 4], np.complex64)),
    ('c128', '{(1, -2), (0, 3), (4, 0)}', np.array([1 - 2j, 3j, 4], np.complex128)),
]
for name, text, values in LITERALS:
    PROGRAMS[f'a literal of {name}'] = (
        entry(f'ROOT c = {name}[3] constant({text})'), [], [values])

# Functions of one number that StableHLO has no operation for: (opcode, numpy's, what they are given).
UNIT = np.array([-0.9, -0.5, 0, 0.25, 0.5, 0.99], np.float32)
FUNCTIONS = [('acos', np.arccos, UNIT), ('asin', np.arcsin, UNIT), ('atanh', np.arctanh, UNIT),
             ('acosh', np.arccosh, UNIT + 2), ('asinh', np.arcsinh, UNIT), ('cosh', np.cosh, UNIT),
             ('sinh', np.sinh, UNIT)]

# Opcodes that no device here can run, or none without a host to talk to, and what is said of them.
REFUSED = {
    'infeed': (entry('t = token[] after-all()\nROOT i = (f32[6], token[]) infeed(t)'), 'infeed'),
    'outfeed': (entry('x = f32[6] parameter(0)\nt = token[] after-all()\n'
                      'ROOT o = token[] outfeed(x, t), outfeed_shape=f32[6]'), 'outfeed'),
    'send': (entry('x = f32[6] parameter(0)\nt = token[] after-all()\n'
                   's = (f32[6], u32[], token[]) send(x, t), channel_id=1, is_host_transfer=true\n'
                   'ROOT d = token[] send-done(s), channel_id=1, is_host_transfer=true'), 'send'),
    'recv': (entry('t = token[] after-all()\n'
                   'r = (f32[6], u32[], token[]) recv(t), channel_id=1, is_host_transfer=true\n'
                   'ROOT d = (f32[6], token[]) recv-done(r), channel_id=1, is_host_transfer=true'),
             'recv'),
    'rng-get-and-update-state': (
        entry('ROOT r = u64[2] rng-get-and-update-state(), delta=1'), 'rng-get-and-update-state'),
}
# Opcodes that jaxlib's parser or verifier does not let through in a program of a line or two.
NOT_WRITTEN = {'dynamic-reshape', 'ragged-all-to-all', 'scaled-dot', 'scan'}
# Printed as what they start: "negate-start".
ASYNCHRONOUS = {'async-start', 'async-update', 'async-done'}
# Of tests/torch_xla.
RECORDED = {'batch-norm-grad'}
# Families of test_hlo.py: JAX writes them, and so do programs.py.
IN_JAX = set('''abs add and atan2 bitcast-convert broadcast cbrt ceil clamp compare complex concatenate conditional constant
convert convolution cosine count-leading-zeros divide dot dynamic-slice dynamic-update-slice
exponential exponential-minus-one fft floor gather imag iota is-finite log log-plus-one logistic
maximum minimum multiply negate not or popcnt power real reduce reduce-precision reduce-window
remainder reshape reverse round-nearest-afz round-nearest-even rsqrt scatter select
select-and-scatter shift-left shift-right-arithmetic shift-right-logical sign sine slice sort sqrt
subtract tan tanh transpose triangular-solve while xor erf custom-call
parameter'''.split())


def inputs_of(arrays):
    arrays = [np.asarray(array) for array in arrays]
    return [(array, programs.NAMES[array.dtype]) for array in arrays]


def test_results(tmp_path):
    names = list(PROGRAMS)
    results = evaluate([(PROGRAMS[name][0], inputs_of(PROGRAMS[name][1])) for name in names],
                       tmp_path)
    problems = []
    for name, result in zip(names, results, strict=True):
        if isinstance(result, str):
            problems.append(f'{name}: {result}')
            continue
        wanted = []
        for array in map(np.asarray, PROGRAMS[name][2]):
            dtype = programs.NAMES[array.dtype]
            stored = array.astype(np.int8) if dtype in ('i2', 'i4', 'ui2', 'ui4') else array
            wanted.append((dtype, list(array.shape), np.ascontiguousarray(stored).tobytes()))
        if result != wanted:
            got = [(d, s, np.frombuffer(b, programs.DTYPES[d])) for d, s, b in result]
            problems.append(f'{name}: {got}')
    assert not problems, '\n'.join(problems)


def test_functions(tmp_path):
    results = evaluate([(unary(name), inputs_of([x])) for name, _, x in FUNCTIONS], tmp_path)
    for (name, function, x), result in zip(FUNCTIONS, results, strict=True):
        assert not isinstance(result, str), f'{name}: {result}'
        got = np.frombuffer(result[0][2], np.float32)
        np.testing.assert_allclose(got, function(x.astype(np.float64)), rtol=1e-6, atol=1e-7)


def test_what_is_refused_is_named(tmp_path):
    names = list(REFUSED)
    cases = []
    for name in names:
        takes = b'parameter' in REFUSED[name][0]
        cases.append((REFUSED[name][0], inputs_of([F32] if takes else [])))
    for name, result in zip(names, evaluate(cases, tmp_path), strict=True):
        assert isinstance(result, str), f'{name} runs: take it out of the list'
        assert result.startswith(('UNIMPLEMENTED', 'FAILED_PRECONDITION')) and REFUSED[name][1] in result, result


def opcodes_in(program):
    text = _hlo.HloModule.from_serialized_hlo_module_proto(program).to_string()
    return set(re.findall(r' = .*? ([a-z][a-z0-9-]*)\(', text))


def test_every_opcode_has_its_program():
    named = set()
    for program, *_ in [*PROGRAMS.values(), *REFUSED.values(),
                        *((unary(name),) for name, *_ in FUNCTIONS)]:
        named |= opcodes_in(program)
    words = {'kClz': 'count-leading-zeros', 'kCos': 'cosine', 'kExp': 'exponential',
             'kExpm1': 'exponential-minus-one', 'kLog1p': 'log-plus-one',
             'kOptimizationBarrier': 'opt-barrier', 'kPopulationCount': 'popcnt', 'kSin': 'sine',
             'kTopK': 'topk'}
    opcodes = {words.get(name) or re.sub(r'(?<!^)([A-Z])', r'-\1', name[1:]).lower()
               for name in _hlo.HloOpcode.__members__}
    assert opcodes - named - IN_JAX - ASYNCHRONOUS - RECORDED == NOT_WRITTEN
