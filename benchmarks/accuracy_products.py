#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The greatest error of each form of a product of two matrices, by depth and device, beside jaxlib's CPU.

A form is a type with what JAX may ask for: a precision, or a dot_algorithm by its name. Errors are of elements,
in units of 2^-24 (f64 and c128: 2^-53) times the sum of the magnitudes of the element's products, which is what
bounds them (docs/numerics.md); exact results are of the operands as they are given, in f64 (of f64 in 80 bits,
where numpy has them). So an algorithm that rounds its operands shows that, and a type of the result its own
rounding. The operands are normal numbers, numbers from 0 to 1, and equal ones, whose roundings add up: the
greatest error of the three counts.

  .venv/jax-0.10.2/bin/python benchmarks/accuracy_products.py --write          # its part of docs/accuracy.md
  .venv/jax-0.10.2/bin/python benchmarks/accuracy_products.py --platform tbb --forms f32,bf16 --depths 4096

`vulkan:trees` is that platform with sums as GPUs have them (hekla_tree_reductions).
"""
import argparse
import json
import os
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / 'docs' / 'accuracy.md'
HEADING = '# Accuracy of products'
SIDE = 40  # rows and columns
# Name: type of the operands, type of the result, precision or name of an algorithm.
FORMS = {
    'f32': ('float32', 'float32', None),
    'f32, HIGH': ('float32', 'float32', 'HIGH'),
    'f32, HIGHEST': ('float32', 'float32', 'HIGHEST'),
    **{f'f32, {name}': ('float32', 'float32', name) for name in (
        'BF16_BF16_F32', 'BF16_BF16_F32_X3', 'BF16_BF16_F32_X6', 'BF16_BF16_F32_X9',
        'TF32_TF32_F32', 'TF32_TF32_F32_X3')},
    'bf16 to f32': ('bfloat16', 'float32', None),
    'bf16': ('bfloat16', 'bfloat16', None),
    'f16 to f32': ('float16', 'float32', None),
    'f16': ('float16', 'float16', None),
    'f64': ('float64', 'float64', None),
    'c64': ('complex64', 'complex64', None),
    'c128': ('complex128', 'complex128', None),
}


def operands(dtype, depth, seed):
    """The pairs of matrices."""
    import jax.numpy as jnp
    random = np.random.default_rng(seed)
    shapes = (SIDE, depth), (depth, SIDE)

    def pair(draw):
        if 'complex' in dtype:
            return [np.asarray(draw(s) + 1j * draw(s), dtype) for s in shapes]
        return [np.asarray(draw(s)).astype(jnp.dtype(dtype)) for s in shapes]
    return [pair(random.standard_normal), pair(random.random), pair(lambda s: np.full(s, 0.1))]


def exact(x, y):
    """The product and the sums of magnitudes, of longer numbers than the operands."""
    kind = {'float64': np.longdouble, 'complex64': np.complex128, 'complex128': np.clongdouble}.get(
        str(x.dtype), np.float64)
    x, y = x.astype(kind), y.astype(kind)
    return x @ y, np.abs(x) @ np.abs(y)


def measure(form, depth, sides, seed):
    """-> {side: greatest error}; None where JAX or the device has no such form."""
    import jax
    import jax.numpy as jnp
    dtype, result, how = FORMS[form]
    precision = None
    if how is not None:
        kinds = jax.lax.Precision if how in jax.lax.Precision.__members__ else jax.lax.DotAlgorithmPreset
        precision = kinds[how]
    unit = 2.0 ** (-53 if dtype in ('float64', 'complex128') else -24)

    def product(x, y):
        return jnp.matmul(x, y, precision=precision, preferred_element_type=jnp.dtype(result))
    row = {}
    truths = [(pair, exact(*pair)) for pair in operands(dtype, depth, seed)]
    for name, (device, options) in sides.items():
        call = jax.jit(product, compiler_options=options)
        worst = 0.0
        for pair, (truth, magnitudes) in truths:
            try:
                got = np.asarray(call(*jax.device_put(pair, device)))
            except Exception as error:  # pylint: disable=broad-exception-caught
                print(f'{form}, {name}: {str(error).splitlines()[0]}', file=sys.stderr)
                worst = None
                break
            worst = max(worst, float(np.max(np.abs(got.astype(truth.dtype) - truth) / magnitudes)) / unit)
        row[name] = worst
    return row


def cell(error):
    if error is None:
        return '–'
    return f'{error:.2f}' if error < 10 else f'{error:.0f}' if error < 1e6 else f'{error:.1e}'


def section(rows, depths, names):
    """The part of the page, as Markdown."""
    lines = [HEADING, '', 'The greatest error of an element of a product of two matrices, of '
             f'{" · ".join(names)} in this order: in units of 2^-24', '(f64 and c128: 2^-53) times the sum of the '
             'magnitudes of its products. Written by', '', '```',
             '.venv/jax-0.10.2/bin/python benchmarks/accuracy_products.py --write', '```', '',
             'which says what is counted. `vulkan:trees` has the sums of GPUs. Matrix units have their own '
             '([numerics](numerics.md)), not in this table.', '',
             '| form | ' + ' | '.join(f'depth {depth:,}' for depth in depths) + ' |',
             '|---' * (len(depths) + 1) + '|']
    for form in dict.fromkeys(form for form, _ in rows):
        lines.append(f'| {form} | ' + ' | '.join(
            ' · '.join(cell(rows[form, depth][name]) for name in names) for depth in depths) + ' |')
    return '\n'.join([*lines, ''])


def main():
    parser = argparse.ArgumentParser(description=__doc__, prog='benchmarks/accuracy_products.py',
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--platform', default='tbb,vulkan,vulkan:trees', help='JAX platforms of Hekla')
    parser.add_argument('--forms', default=';'.join(FORMS), help='names with semicolons between')
    parser.add_argument('--depths', default='64,1000,4096,100003')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--json', metavar='FILE', help='all rows')
    parser.add_argument('--write', action='store_true', help=f'write the end of {PAGE.relative_to(ROOT)}')
    options = parser.parse_args()
    wanted = options.platform.split(',')
    platforms = list(dict.fromkeys(name.partition(':')[0] for name in wanted))
    os.environ['JAX_PLATFORMS'] = ','.join([*platforms, 'cpu'])
    os.environ['JAX_ENABLE_X64'] = '1'
    build = pathlib.Path(os.environ.get('HEKLA_BUILD_DIR', ROOT / 'build'))
    sys.path.insert(0, str(build / 'python'))
    import jax
    sides = {name: (jax.devices(name.partition(':')[0])[0],
                    {'hekla_tree_reductions': 'true'} if name.endswith(':trees') else None)
             for name in wanted}
    sides['jaxlib'] = jax.devices('cpu')[0], None
    forms = options.forms.split(';')
    if unknown := set(forms) - set(FORMS):
        parser.error(f'no form {sorted(unknown)}; there are: {"; ".join(FORMS)}')
    depths = [int(depth) for depth in options.depths.split(',')]
    rows = {}
    for form in forms:
        for depth in depths:
            rows[form, depth] = measure(form, depth, sides, options.seed)
            print(f'{form:24}{depth:>8}  ' + '  '.join(
                f'{name} {cell(error)}' for name, error in rows[form, depth].items()), flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(
            [{'form': form, 'depth': depth, 'errors': row} for (form, depth), row in rows.items()],
            indent=1), encoding='utf-8')
    if options.write:
        before = PAGE.read_text(encoding='utf-8').partition(HEADING)[0].rstrip('\n')
        PAGE.write_text(before + '\n\n' + section(rows, depths, list(sides)), encoding='utf-8')


if __name__ == '__main__':
    main()
