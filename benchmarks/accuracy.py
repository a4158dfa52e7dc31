#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The greatest error of each elementwise function, by element type and device, beside jaxlib's CPU.

Errors are in units of the last place (ULP) of the exact result, which numpy and scipy in f64 give for
narrower types and mpmath for f64 and complex ones. Complex: the distance in ULP of the greater part. One
argument of 16 bits: all of them; else arguments of every magnitude, everyday ones, and some close to where
functions turn (accuracy_functions.py); complex ones have two parts other than zero, below 50. Results or
arguments below the normal numbers are left out of the greatest error where a device takes them for zero,
and marked with `s`; results that are infinite or NaN where the exact one is not, or the reverse, are
counted apart.

  .venv/jax-0.10.2/bin/pip install mpmath
  .venv/jax-0.10.2/bin/python benchmarks/accuracy.py --write          # docs/accuracy.md
  .venv/jax-0.10.2/bin/python benchmarks/accuracy.py --platform tbb --functions erf,power --dtypes f32

Exit status: 0, or 1 when a device gives NaN or infinity where jaxlib's CPU gives the exact result.
"""
import argparse
import json
import os
import pathlib
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
DTYPES = {'f32': 'float32', 'f64': 'float64', 'f16': 'float16', 'bf16': 'bfloat16',
          'c64': 'complex64', 'c128': 'complex128'}
PAGE = ROOT / 'docs' / 'accuracy.md'
# An error by which a device shows that it takes subnormal numbers for zero: bf16 loses 2^7 places at most.
FLUSHED = 4


def spacing(truth, info):
    """Distance of adjacent numbers of a type at an exact value's magnitude, in f64."""
    with np.errstate(divide='ignore', invalid='ignore'):
        exponent = np.floor(np.log2(np.abs(truth)))
    exponent = np.where(np.isfinite(exponent), exponent, -np.inf)
    return np.exp2(np.maximum(exponent, float(np.log2(float(info.tiny)))) - info.nmant)


def narrow_errors(got, truth, args, info):
    """Of a type below f64 -> (errors in ULP, is left out, is of another class), an array each."""
    got = got.astype(np.float64)
    most = float(info.max) * (1 + float(info.eps) / 4)
    over = np.abs(truth) > most
    other = (np.isnan(got) != np.isnan(truth)) | (np.isinf(got) != (np.isinf(truth) | over))
    # At the border of the greatest number either is within one place.
    border = over & np.isfinite(got) & (np.abs(truth) < float(info.max) * (1 + 4 * float(info.eps)))
    usable = np.isfinite(got) & np.isfinite(truth)
    with np.errstate(invalid='ignore', over='ignore'):
        error = np.where(usable, np.abs(got - truth) / spacing(truth, info), 0)
    tiny = float(info.tiny)
    small = (np.abs(truth) < tiny) & (got == 0) & (truth != 0)
    for arg in args:
        arg = arg.astype(np.float64)
        small |= (np.abs(arg) < tiny) & (arg != 0)
    return error, small, other & ~border


def wide_errors(got, function, args, info):
    """Of f64 and complex types, with mpmath, element by element."""
    import mpmath
    error, small, other = (np.zeros(len(got)), np.zeros(len(got), bool), np.zeros(len(got), bool))
    tiny, most = float(info.tiny), float(info.max)
    is_complex = np.iscomplexobj(args[0])
    number = (lambda x: mpmath.mpc(x.real, x.imag)) if is_complex else (lambda x: mpmath.mpf(float(x)))
    for i, value in enumerate(got):
        point = [number(complex(arg[i]) if is_complex else arg[i]) for arg in args]
        try:
            truth = function.of_mpmath(*point)
        except (ValueError, ZeroDivisionError, OverflowError, mpmath.libmp.NoConvergence):
            small[i] = True
            continue
        size = max(abs(mpmath.re(truth)), abs(mpmath.im(truth)))
        if not mpmath.isfinite(truth) or size > most:
            # A part of a complex result may well overflow alone: nothing is said of it.
            other[i] = not is_complex and np.isfinite(value) and size > most * (1 + 2 ** -50)
            continue
        if not np.isfinite(value):
            other[i] = True
            continue
        difference = abs(number(complex(value) if is_complex else value) - truth)
        exponent = max(mpmath.frexp(size)[1] - 1 if size else -10000, int(np.log2(tiny)))
        error[i] = float(difference / mpmath.ldexp(1, exponent - info.nmant))
        parts = [abs(part) for x in point for part in (mpmath.re(x), mpmath.im(x))]
        small[i] = (size < tiny and value == 0 and size > 0) or any(0 < part < tiny for part in parts)
    return error, small, other


def measure(function, dtype, devices, seed, points):
    """-> {device: {'ulp', 'at', 'small', 'other', 'count'}} of one function and type."""
    import jax
    import jax.numpy as jnp
    from accuracy_functions import arguments
    kind = jnp.dtype(dtype)
    is_wide = kind.kind == 'c' or kind == np.float64
    args = arguments(function, kind, seed, function.points if is_wide else points)
    info = jnp.finfo(kind)
    call = jax.jit(function.of_jax)
    if not is_wide:
        with np.errstate(all='ignore'):
            truth = np.asarray(function.of_numpy(*(arg.astype(np.float64) for arg in args)))
    rows = {}
    for name, device in devices.items():
        got = np.asarray(call(*(jax.device_put(arg, device) for arg in args)))
        error, small, other = (wide_errors(got, function, args, info) if is_wide
                               else narrow_errors(got, truth, args, info))
        # Where subnormal numbers are kept, they count like all others.
        kept = not (small & (error > FLUSHED)).any()
        counted = np.where(small & (not kept) | other, 0, error)
        worst = int(counted.argmax())
        rows[name] = {'ulp': float(counted[worst]), 'at': [str(arg[worst]) for arg in args],
                      'subnormals_as_zero': not kept, 'other': int(other.sum()),
                      'other_at': [str(arg[other][0]) for arg in args] if other.any() else None,
                      'count': len(got), 'is_other': other}
    return rows


def cell(row):
    ulp = row['ulp']
    text = f'{ulp:.2f}' if ulp < 100 else f'{ulp:.0f}' if ulp < 1e6 else '>1e6'
    return text + ('s' if row['subnormals_as_zero'] else '') + ('!' if row['other'] else '')


def table(rows, dtypes, names):
    """Markdown: a line per function; in each cell the devices in the order of `names`."""
    lines = ['| function | ' + ' | '.join(dtypes) + ' |', '|---' * (len(dtypes) + 1) + '|']
    for function in dict.fromkeys(function for function, _ in rows):
        cells = [' · '.join(cell(rows[function, dtype][name]) for name in names)
                 if (function, dtype) in rows else '' for dtype in dtypes]
        lines.append(f'| {function} | ' + ' | '.join(cells) + ' |')
    return lines


def page(rows, dtypes, names, points):
    others = [f'* {function} of {dtype}, {name}: {row[name]["other"]} of {row[name]["count"]}, as at '
              f'{", ".join(row[name]["other_at"])}' for (function, dtype), row in rows.items()
              for name in names if row[name]['other']]
    return '\n'.join([
        '# Accuracy of elementwise functions', '',
        'The greatest error found, in units of the last place of the exact result, of '
        f'{" · ".join(names)} in this order. Written by', '', '```',
        '.venv/jax-0.10.2/bin/python benchmarks/accuracy.py --write', '```', '',
        'which says what is counted. `s`: takes subnormal numbers for zero, which is left out. `!`: '
        'infinite or NaN where the exact result', 'is not, or the reverse; listed below. 16 bits and one '
        f'argument: all of them; f32: {points:,} arguments; f64 and complex:', 'some hundreds to 1,500. '
        'Above a million places (close to a zero of the function) it says so. Many functions arrive as '
        'formulas that JAX', 'wrote in basic operations, and have their errors on every device. '
        '[Numerics](numerics.md) has the bounds that tests hold our functions to, from millions of '
        'arguments.', '', *table(rows, dtypes, names), '',
        '## Infinite or NaN where the exact result is not, or the reverse', '',
        *(others or ['None.']), ''])


def main():
    parser = argparse.ArgumentParser(description=__doc__, prog='benchmarks/accuracy.py',
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--platform', default='tbb,vulkan', help='JAX platforms of Hekla')
    parser.add_argument('--dtypes', default=','.join(DTYPES))
    parser.add_argument('--functions', default='', help='names; unset: all')
    parser.add_argument('--points', type=int, default=100_000, help='arguments of f32 and 16-bit pairs')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--json', metavar='FILE', help='all rows, with the arguments of the worst results')
    parser.add_argument('--write', action='store_true',
                        help=f'write the beginning of {PAGE.relative_to(ROOT)}')
    options = parser.parse_args()
    os.environ['JAX_PLATFORMS'] = f'{options.platform},cpu'
    os.environ['JAX_ENABLE_X64'] = '1'
    build = pathlib.Path(os.environ.get('HEKLA_BUILD_DIR', ROOT / 'build'))
    sys.path.insert(0, str(build / 'python'))
    import jax
    from accuracy_functions import FUNCTIONS
    devices = {name: jax.devices(name)[0] for name in options.platform.split(',')}
    devices['jaxlib'] = jax.devices('cpu')[0]
    chosen = [name for name in options.functions.split(',') if name]
    unknown = set(chosen) - {function.name for function in FUNCTIONS}
    if unknown:
        parser.error(f'no function {sorted(unknown)}; there are: '
                     f'{", ".join(function.name for function in FUNCTIONS)}')
    rows, is_worse = {}, False
    dtypes = options.dtypes.split(',')
    for function in FUNCTIONS:
        if chosen and function.name not in chosen:
            continue
        start = time.monotonic()
        for short in dtypes:
            if short.startswith('c') and not function.has_complex:
                continue
            try:
                row = measure(function, DTYPES[short], devices, options.seed, options.points)
            except TypeError as error:   # JAX has no such function of that type
                print(f'{function.name} of {short}: {str(error).splitlines()[0]}', file=sys.stderr)
                continue
            alike = row['jaxlib'].pop('is_other')
            for name in options.platform.split(','):
                is_worse |= bool((row[name].pop('is_other') & ~alike).any())
            rows[function.name, short] = row
        print(f'{function.name:24}' + '  '.join(
            f'{short} ' + ' '.join(cell(row) for row in rows[function.name, short].values())
            for short in dtypes if (function.name, short) in rows) +
            f'  ({time.monotonic() - start:.1f} s)', flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(
            [{'function': function, 'dtype': dtype, **row} for (function, dtype), row in rows.items()],
            indent=1), encoding='utf-8')
    if options.write:
        # Products stand behind functions; benchmarks/accuracy_products.py writes them.
        _, heading, products = PAGE.read_text(encoding='utf-8').partition('\n# Accuracy of products')
        PAGE.write_text(page(rows, dtypes, list(devices), options.points) + heading + products,
                        encoding='utf-8')
    return int(is_worse)


if __name__ == '__main__':
    sys.exit(main())
