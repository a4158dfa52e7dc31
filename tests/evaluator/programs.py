# SPDX-License-Identifier: Apache-2.0
"""The programs of compare_with_jax.py: StableHLO text made for every op and dtype."""
import dataclasses
import itertools

import ml_dtypes
import numpy as np

DTYPES = {
    'i1': np.dtype(bool), 'i2': np.dtype(ml_dtypes.int2), 'i4': np.dtype(ml_dtypes.int4),
    'i8': np.dtype(np.int8), 'i16': np.dtype(np.int16), 'i32': np.dtype(np.int32),
    'i64': np.dtype(np.int64), 'ui2': np.dtype(ml_dtypes.uint2), 'ui4': np.dtype(ml_dtypes.uint4),
    'ui8': np.dtype(np.uint8), 'ui16': np.dtype(np.uint16), 'ui32': np.dtype(np.uint32),
    'ui64': np.dtype(np.uint64), 'f4E2M1FN': np.dtype(ml_dtypes.float4_e2m1fn),
    'f8E3M4': np.dtype(ml_dtypes.float8_e3m4), 'f8E4M3': np.dtype(ml_dtypes.float8_e4m3),
    'f8E4M3FN': np.dtype(ml_dtypes.float8_e4m3fn),
    'f8E4M3FNUZ': np.dtype(ml_dtypes.float8_e4m3fnuz),
    'f8E4M3B11FNUZ': np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    'f8E5M2': np.dtype(ml_dtypes.float8_e5m2), 'f8E5M2FNUZ': np.dtype(ml_dtypes.float8_e5m2fnuz),
    'f8E8M0FNU': np.dtype(ml_dtypes.float8_e8m0fnu), 'bf16': np.dtype(ml_dtypes.bfloat16),
    'f16': np.dtype(np.float16), 'f32': np.dtype(np.float32), 'f64': np.dtype(np.float64),
    'complex<f32>': np.dtype(np.complex64), 'complex<f64>': np.dtype(np.complex128),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
SMALL_FLOATS = {d for n, d in DTYPES.items() if n[0] == 'f' or n == 'bf16'}
FLUSHED = {DTYPES[n] for n in ('bf16', 'f32', 'f64')}

SIGNED = ['i2', 'i4', 'i8', 'i16', 'i32', 'i64']
UNSIGNED = ['ui2', 'ui4', 'ui8', 'ui16', 'ui32', 'ui64']
INTEGERS = SIGNED + UNSIGNED
FLOATS = ['f32', 'f64', 'f16', 'bf16', 'f8E4M3FN', 'f8E5M2', 'f8E4M3FNUZ', 'f8E3M4', 'f8E4M3']
COMPLEX = ['complex<f32>', 'complex<f64>']
MOVABLE = list(DTYPES)


@dataclasses.dataclass
class Case:
    name: str
    text: str
    inputs: list
    ulps: float = 0         # allowed distance in units in the last place
    zeros: bool = False     # signs of zeros must agree
    by_norm: bool = False   # units of the largest element of the row, as for sums
    expect: list | None = None


def tensor(dtype, shape):
    return f"tensor<{''.join(f'{d}x' for d in shape)}{dtype}>"


def type_of(array):
    return tensor(NAMES[array.dtype], array.shape)


def program(name, inputs, results, body, **options):
    """body: lines that read %a, %b ... and end with values named in `results` = {name: type}."""
    parameters = ', '.join(f'%{chr(97 + i)}: {type_of(x)}' for i, x in enumerate(inputs))
    types = ', '.join(results.values())
    names = ', '.join(results)
    text = (f'func.func @main({parameters}) -> ({types}) {{\n{body}\n'
            f'return {names} : {types}\n}}\n')
    return Case(name, text, list(inputs), **options)


def specials(dtype):
    """Corners of a dtype, and some values between."""
    d = DTYPES[dtype]
    if dtype == 'i1':
        return np.array([False, True])
    if dtype in INTEGERS:
        low, high = int(ml_dtypes.iinfo(d).min), int(ml_dtypes.iinfo(d).max)
        values = {low, low + 1, high, high - 1, 0, 1, 2, 3, high // 2, low // 2}
        values |= {v for v in (-1, -2, -3, 5, 7, -7, 8, 31, 32, 33, 63, 64, 100)
                   if low <= v <= high}
        return np.array(sorted(values), object).astype(d)
    if dtype in COMPLEX:
        real = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-3, -7.25, 20.0])
        return np.array([complex(x, y) for x in real for y in real], d)
    info = ml_dtypes.finfo(d)
    values = [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3.5, 0.25, 0.49999997, 7, -7, 10.3, 88.5,
              -88.5, 100, 127.5, 255.9, 300.7, 1e-3, -1e-3, 1e-6, 3e9, -3e9, 1e19, -1e19, 0.99, 1.01,
              np.pi, -np.pi, 1e4, float(info.max), -float(info.max), float(info.smallest_normal),
              np.inf, -np.inf, np.nan]
    with np.errstate(over='ignore', invalid='ignore'):
        return np.array(values, np.float64).astype(d)


def finite(dtype):
    x = specials(dtype)
    return x if dtype in COMPLEX or dtype in INTEGERS else x[np.isfinite(x.astype(np.float64))]


def ordinary(dtype, *shape, seed=0):
    """Values of moderate size."""
    rng = np.random.default_rng(seed)
    d = DTYPES[dtype]
    if dtype == 'i1':
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in INTEGERS:
        low, high = int(ml_dtypes.iinfo(d).min), int(ml_dtypes.iinfo(d).max)
        return rng.integers(max(low, -9), min(high, 9) + 1, shape).astype(np.int64).astype(d)
    if dtype in COMPLEX:
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(d)
    return np.asarray(rng.standard_normal(shape)).astype(np.float32).astype(d)


def pairs(values):
    a, b = zip(*itertools.product(values, values), strict=True)
    return np.array(a, values.dtype), np.array(b, values.dtype)


EXACT = ['abs', 'negate', 'ceil', 'floor', 'round_nearest_even', 'round_nearest_afz', 'sign']
TRANSCENDENTAL = ['cbrt', 'cosine', 'exponential', 'exponential_minus_one', 'log', 'log_plus_one',
                  'logistic', 'rsqrt', 'sine', 'sqrt', 'tan', 'tanh']
COMPLEX_UNARY = ['cbrt', 'cosine', 'exponential', 'exponential_minus_one', 'log', 'log_plus_one',
                 'logistic', 'negate', 'rsqrt', 'sign', 'sine', 'sqrt', 'tan', 'tanh']


def complex_of(op, x):
    """The function by numpy in c128, rounded to x's dtype."""
    z = x.astype(np.complex128)
    above = x.astype(np.clongdouble)  # 1 + x without a rounding
    above.real += 1
    with np.errstate(all='ignore'):
        functions = {
            'cbrt': lambda: np.where(z == 0, 0, z ** (1 / 3)), 'cosine': lambda: np.cos(z),
            'exponential': lambda: np.exp(z), 'exponential_minus_one': lambda: np.expm1(z),
            'log': lambda: np.log(z), 'log_plus_one': lambda: np.log(above),
            'logistic': lambda: 1 / (1 + np.exp(-z)), 'negate': lambda: -z,
            'rsqrt': lambda: 1 / np.sqrt(z), 'sign': lambda: np.sign(z), 'sine': lambda: np.sin(z),
            'sqrt': lambda: np.sqrt(z), 'tan': lambda: np.tan(z), 'tanh': lambda: np.tanh(z)}
        return functions[op]().astype(x.dtype)


def integer_power(a, b):
    """Exact, then wrapped; 1 / a**-b cut to an integer for negative exponents."""
    d, bits = a.dtype, ml_dtypes.iinfo(a.dtype).bits
    results = []
    for x, y in zip(a, b, strict=True):
        x, y = int(x), int(y)
        if y >= 0:
            r = pow(x, y, 1 << bits)
        else:
            r = {1: 1, -1: -1 if y % 2 else 1}.get(x, 0)
        r &= (1 << bits) - 1
        signed = NAMES[d] in SIGNED and r >> (bits - 1)
        results.append(r - (1 << bits) if signed else r)
    return np.array(results, object).astype(d)


def unary_program(op, dtype, x, result=None, **options):
    from_type = type_of(x)
    to_type = tensor(result or dtype, x.shape)
    types = from_type if from_type == to_type else f'({from_type}) -> {to_type}'
    return program(f'{op} {dtype}', [x], {'%r': to_type}, f'%r = stablehlo.{op} %a : {types}',
                   **options)


def unary_cases():
    for dtype in FLOATS:
        x = specials(dtype)
        for op in EXACT:
            yield unary_program(op, dtype, x, zeros=True)
        for op in TRANSCENDENTAL:
            # XLA's CPU uses polynomials of its own for f32: a handful of units.
            ulps = 1 if DTYPES[dtype].itemsize < 4 else 8
            trig = op in ('cosine', 'sine', 'tan')
            # Its reduction of huge angles is not exact.
            y = x[~(np.abs(x.astype(np.float64)) > 1e5)] if trig else x
            yield unary_program(op, dtype, y, ulps=ulps, zeros=True)
        yield unary_program('is_finite', dtype, x, 'i1')
        yield unary_program('real', dtype, x)
        yield unary_program('imag', dtype, x)
    for dtype in INTEGERS:
        x = specials(dtype)
        for op in ('not', 'count_leading_zeros', 'negate'):
            yield unary_program(op, dtype, x)
        # jaxlib counts the bits of i4 in a byte, its sign extension included.
        bits = (1 << ml_dtypes.iinfo(x.dtype).bits) - 1
        counts = np.array([(int(v) & bits).bit_count() for v in x], np.int64).astype(x.dtype)
        yield unary_program('popcnt', dtype, x, expect=[counts])
        if dtype in SIGNED:
            yield unary_program('abs', dtype, x)
            yield unary_program('sign', dtype, x)
    yield unary_program('not', 'i1', specials('i1'))
    for dtype in COMPLEX:
        x = specials(dtype)
        part = dtype[8:-1]
        for op in COMPLEX_UNARY:
            # numpy: jaxlib's sine cancels near 0, and its sqrt takes the other branch below the
            # negative real axis.
            yield unary_program(op, dtype, x, ulps=16, by_norm=True, expect=[complex_of(op, x)])
        for op in ('real', 'imag'):
            yield unary_program(op, dtype, x, part)
        yield unary_program('abs', dtype, x, part, ulps=4)


def binary_program(op, dtype, a, b, result=None, suffix='', title='', **options):
    to_type = tensor(result or dtype, a.shape)
    types = f'({type_of(a)}, {type_of(b)}) -> {to_type}'
    return program(f'{op}{title} {dtype}', [a, b], {'%r': to_type},
                   f'%r = stablehlo.{op} {suffix} %a, %b : {types}', **options)


def binary_cases():
    for dtype in FLOATS:
        a, b = pairs(specials(dtype))
        for op in ('add', 'subtract', 'multiply', 'divide', 'maximum', 'minimum'):
            yield binary_program(op, dtype, a, b, zeros=True)
        yield binary_program('remainder', dtype, a, b, zeros=True)
        for op in ('atan2', 'power'):
            yield binary_program(op, dtype, a, b, ulps=1 if DTYPES[dtype].itemsize < 4 else 16,
                                 zeros=True)
    for dtype in INTEGERS:
        a, b = pairs(specials(dtype))
        for op in ('add', 'subtract', 'multiply', 'divide', 'remainder', 'maximum', 'minimum',
                   'and', 'or', 'xor', 'shift_left', 'shift_right_logical',
                   'shift_right_arithmetic'):
            yield binary_program(op, dtype, a, b)
        # jaxlib reads six bits of the exponent.
        yield binary_program('power', dtype, a, b, expect=[integer_power(a, b)])
    a, b = pairs(specials('i1'))
    for op in ('add', 'multiply', 'maximum', 'minimum', 'and', 'or', 'xor'):
        yield binary_program(op, 'i1', a, b)
    for dtype in COMPLEX:
        a, b = pairs(specials(dtype)[::3])
        for op, ulps in (('add', 0), ('subtract', 0), ('multiply', 4), ('divide', 8)):
            yield binary_program(op, dtype, a, b, ulps=ulps, by_norm=True)
        # Away from branch cuts, where the side depends on the order of the steps.
        a, b = ordinary(dtype, 300), ordinary(dtype, 300, seed=1)
        yield binary_program('power', dtype, a, b, ulps=64, by_norm=True)
        yield binary_program('atan2', dtype, a, b, ulps=256, by_norm=True)
        b = np.array([0, 1, 2, 0.5, -1, 1j, 1 + 1j, -1 + 1j], DTYPES[dtype])
        yield binary_program('power', dtype, 0 * b, b, title=' of zero')
    for part in ('f32', 'f64'):
        a, b = pairs(specials(part))
        yield program(f'complex {part}', [a, b], {'%r': tensor(f'complex<{part}>', a.shape)},
                      f'%r = stablehlo.complex %a, %b : {tensor(f"complex<{part}>", a.shape)}')


def compare_cases():
    kinds = [(FLOATS, ['FLOAT', 'TOTALORDER']), (SIGNED, ['SIGNED']),
             (UNSIGNED + ['i1'], ['UNSIGNED']), (COMPLEX, ['FLOAT'])]
    for dtypes, types in kinds:
        for dtype, kind in itertools.product(dtypes, types):
            a, b = pairs(specials(dtype)[::1 if dtype not in COMPLEX else 7])
            directions = ['EQ', 'NE', 'LT', 'LE', 'GT', 'GE']
            for direction in directions[:2] if dtype in COMPLEX else directions:
                body = f'%r = stablehlo.compare {direction}, %a, %b, {kind} : ' \
                       f'({type_of(a)}, {type_of(b)}) -> {tensor("i1", a.shape)}'
                yield program(f'compare {direction} {kind} {dtype}', [a, b],
                              {'%r': tensor('i1', a.shape)}, body)


def convert_cases():
    for a, b in itertools.product(DTYPES, DTYPES):
        if a == b:
            continue
        x = specials(a)
        expect = None
        if (a, b) == ('f64', 'f8E8M0FNU'):
            # jaxlib goes through f32, where the smallest values are zero and so NaN in the result.
            x = x[~((np.abs(x) < 1e-100) & (x != 0))]
        # jaxlib saturates f4 to integers wrongly and takes the smallest f8E8M0FNU for zero.
        if a == 'f4E2M1FN' and b in INTEGERS:
            low, high = int(ml_dtypes.iinfo(DTYPES[b]).min), int(ml_dtypes.iinfo(DTYPES[b]).max)
            whole = np.trunc(x.astype(np.float64)).clip(low, high)
            expect = [whole.astype(np.int64).astype(DTYPES[b])]
        if (a, b) == ('f8E8M0FNU', 'i1'):
            expect = [np.ones(x.shape, bool)]
        yield dataclasses.replace(unary_program('convert', a, x, b, expect=expect),
                                  name=f'convert {a} to {b}')
        yield dataclasses.replace(unary_program('convert', a, x[:0], b),
                                  name=f'convert {a} to {b}, empty')


def ternary_cases():
    for dtype in FLOATS[:5] + INTEGERS:
        values = specials(dtype)
        values = values[::max(1, len(values) // 12)]
        low, x, high = (np.array(v, values.dtype)
                        for v in zip(*itertools.product(values, values, values), strict=True))
        t = type_of(x)
        yield program(f'clamp {dtype}', [low, x, high], {'%r': t},
                      f'%r = stablehlo.clamp %a, %b, %c : {t}', zeros=True)
        s = tensor(dtype, ())
        yield program(f'clamp scalars {dtype}', [values[1], x, values[-2]], {'%r': t},
                      f'%r = stablehlo.clamp %a, %b, %c : ({s}, {t}, {s}) -> {t}', zeros=True)
    for dtype in MOVABLE:
        x, y = specials(dtype), specials(dtype)[::-1].copy()
        p = np.arange(len(x)) % 2 == 0
        t = type_of(x)
        for name, predicate in (('each', p), ('scalar', p[0])):
            yield program(f'select {name} {dtype}', [predicate, x, y], {'%r': t},
                          f'%r = stablehlo.select %a, %b, %c : {type_of(predicate)}, {t}')
    for dtype in FLOATS[:4]:
        for e, m in ((5, 10), (8, 7), (4, 3), (8, 23), (11, 52), (2, 1), (5, 2), (1, 0)):
            x = np.concatenate([specials(dtype), ordinary(dtype, 200)])
            yield program(f'reduce_precision e{e}m{m} {dtype}', [x], {'%r': type_of(x)},
                          f'%r = stablehlo.reduce_precision %a, format = e{e}m{m} : {type_of(x)}',
                          zeros=True)


def bitcast_cases():
    width = {n: int(ml_dtypes.finfo(d).bits if n in FLOATS else ml_dtypes.iinfo(d).bits)
             for n, d in DTYPES.items() if n in FLOATS or n in INTEGERS}
    for a, b in itertools.product(width, width):
        ratio = max(width[a], width[b]) // min(width[a], width[b])
        if a == b:
            continue
        rng = np.random.default_rng(1)
        if width[a] >= width[b]:
            shape, result = (3, 4), (3, 4, ratio) if ratio > 1 else (3, 4)
        else:
            shape, result = (3, ratio), (3,)
        x = ordinary(a, *shape) if width[a] < 8 else \
            rng.integers(0, 256, (*shape, width[a] // 8), np.uint8).view(DTYPES[a])[..., 0]
        yield program(f'bitcast_convert {a} {b}', [x], {'%r': tensor(b, result)},
                      f'%r = stablehlo.bitcast_convert %a : ({type_of(x)}) -> {tensor(b, result)}')


def shape_cases():
    """Rank 0 and size 0 through the elementwise loops."""
    for shape in ((), (0,), (3, 0, 2), (1, 1, 1), (2, 3, 5, 7)):
        for dtype in ('f32', 'i32', 'bf16', 'complex<f64>', 'i4'):
            x, y = ordinary(dtype, *shape), ordinary(dtype, *shape, seed=1)
            yield dataclasses.replace(binary_program('add', dtype, x, y),
                                      name=f'add {dtype} {list(shape)}')
            yield dataclasses.replace(unary_program('negate', dtype, x),
                                      name=f'negate {dtype} {list(shape)}')


def control_cases():
    n = np.array(10, np.int32)
    x = ordinary('f32', 5)
    yield program('while', [n, x], {'%r#0': 'tensor<i32>', '%r#1': 'tensor<5xf32>'}, '''
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %v = %b) : tensor<i32>, tensor<5xf32>
  cond { %p = stablehlo.compare LT, %i, %a : (tensor<i32>, tensor<i32>) -> tensor<i1>
         stablehlo.return %p : tensor<i1> }
  do { %j = stablehlo.add %i, %one : tensor<i32>
       %w = stablehlo.add %v, %b : tensor<5xf32>
       stablehlo.return %j, %w : tensor<i32>, tensor<5xf32> }''')
    for index in (-1, 0, 1, 2, 3, 7):
        yield program(f'case {index}', [np.array(index, np.int32), x], {'%r': 'tensor<5xf32>'}, '''
  %r = "stablehlo.case"(%a) ({ %0 = stablehlo.add %b, %b : tensor<5xf32>
    stablehlo.return %0 : tensor<5xf32> }, { stablehlo.return %b : tensor<5xf32> }, {
    %0 = stablehlo.negate %b : tensor<5xf32>
    stablehlo.return %0 : tensor<5xf32> }) : (tensor<i32>) -> tensor<5xf32>''')
    for flag in (True, False):
        yield program(f'if {flag}', [np.array(flag), x], {'%r': 'tensor<5xf32>'}, '''
  %r = "stablehlo.if"(%a) ({ %0 = stablehlo.add %b, %b : tensor<5xf32>
    stablehlo.return %0 : tensor<5xf32> }, { stablehlo.return %b : tensor<5xf32> })
    : (tensor<i1>) -> tensor<5xf32>''')
    # The body of a reduce with control flow and a value from outside.
    yield program('reduce with a branch', [x, np.array(0.25, np.float32)], {'%r': 'tensor<f32>'}, '''
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%a init: %zero) across dimensions = [0] :
    (tensor<5xf32>, tensor<f32>) -> tensor<f32>
  reducer(%x: tensor<f32>, %y: tensor<f32>) {
    %p = stablehlo.compare GT, %x, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %s = "stablehlo.if"(%p) ({ %0 = stablehlo.maximum %x, %y : tensor<f32>
      stablehlo.return %0 : tensor<f32> }, { %0 = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %0 : tensor<f32> }) : (tensor<i1>) -> tensor<f32>
    stablehlo.return %s : tensor<f32> }''', ulps=2)
    yield program('map', [x, x], {'%r': 'tensor<5xf32>'}, '''
  %r = "stablehlo.map"(%a, %b) <{dimensions = array<i64: 0>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %0 = stablehlo.multiply %x, %y : tensor<f32>
    stablehlo.return %0 : tensor<f32> }) : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>''')
    yield program('tuple', [x, n], {'%r': 'tensor<i32>'}, '''
  %t = stablehlo.tuple %a, %b : tuple<tensor<5xf32>, tensor<i32>>
  %r = stablehlo.get_tuple_element %t[1] : (tuple<tensor<5xf32>, tensor<i32>>) -> tensor<i32>''')
    yield program('optimization_barrier', [x, n], {'%r#0': 'tensor<5xf32>', '%r#1': 'tensor<i32>'},
                  '%r:2 = stablehlo.optimization_barrier %a, %b : tensor<5xf32>, tensor<i32>')


def interpreter_agrees(case):
    """False where StableHLO's interpreter is known to have rules of its own."""
    # It compares by value whatever the type, makes an infinity of NaN where no mantissa bit is
    # left, and likewise of f8E8M0FNU's.
    own = ('TOTALORDER', 'e1m0', 'convert f8E8M0FNU')
    return not any(text in case.name for text in own)


def all_cases():
    for family in (unary_cases, binary_cases, compare_cases, convert_cases, ternary_cases,
                   bitcast_cases, shape_cases, control_cases):
        yield from family()
