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

  .venv/jax-0.10.2/bin/python benchmarks/accuracy_products.py --units --write  # matrix units, a part of its own

`--units` measures products on matrix units: those of llvmpipe in the root of Debian sid (tools/install.sh --sid), of
f16 and i8, planned as for a GPU. Programs and operands go there as files, through `hekla run`. Forms of f32 go by pieces
of f16 (hekla_matrix_pieces=f16), since it has no bf16.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / 'docs' / 'accuracy.md'
HEADING = '# Accuracy of products'
UNITS_HEADING = '# Accuracy of products on matrix units'
SIDE = 40  # rows and columns
UNITS_SIDE = 64  # those of which the least depth is enough for matrix units
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
UNIT_FORMS = {**{name: FORMS[name] for name in (
    'f16 to f32', 'f16', 'f32, HIGH', 'f32, BF16_BF16_F32_X3', 'f32, BF16_BF16_F32_X6', 'f32, BF16_BF16_F32_X9',
    'f32, TF32_TF32_F32', 'f32, TF32_TF32_F32_X3')}, 'i8 to i32': ('int8', 'int32', None)}


def operands(dtype, depth, seed, side=SIDE):
    """The pairs of matrices."""
    import jax.numpy as jnp
    random = np.random.default_rng(seed)
    shapes = (side, depth), (depth, side)

    def pair(draw):
        if dtype == 'int8':
            return [np.clip(np.round(50 * draw(s)), -128, 127).astype(dtype) for s in shapes]
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


def product_of(form):
    """The function of two matrices."""
    import jax
    import jax.numpy as jnp
    _, result, how = form
    precision = None
    if how is not None:
        kinds = jax.lax.Precision if how in jax.lax.Precision.__members__ else jax.lax.DotAlgorithmPreset
        precision = kinds[how]
    return lambda x, y: jnp.matmul(x, y, precision=precision, preferred_element_type=jnp.dtype(result))


def measure_units(forms, depths, seed):
    """-> {(form, depth): {'units': greatest error}} on the matrix units of SID's llvmpipe."""
    import jax
    sys.path.insert(0, str(ROOT / 'tools'))
    import drivers
    from jaxlib import _jax
    from jaxlib.mlir.dialects import stablehlo
    build = pathlib.Path(os.environ.get('HEKLA_BUILD_DIR', ROOT / 'build'))
    folder = build / 'accuracy'
    shutil.rmtree(folder, ignore_errors=True)
    cases = [(form, depth) for form in forms for depth in depths]
    for number, (form, depth) in enumerate(cases):
        case = folder / str(number)
        case.mkdir(parents=True)
        product = product_of(UNIT_FORMS[form])
        pairs = operands(UNIT_FORMS[form][0], depth, seed, UNITS_SIDE)
        flat = [x for pair in pairs for x in pair]

        def products(*xs, product=product):
            return [product(*xs[i:i + 2]) for i in range(0, len(xs), 2)]
        module = jax.jit(products).trace(*flat).lower(lowering_platforms=('vulkan',)).compiler_ir('stablehlo')
        (case / 'program.mlirbc').write_bytes(
            _jax.mlir.serialize_portable_artifact(module, stablehlo.get_current_version(), True))
        for i, x in enumerate(flat):
            np.save(case / f'{i}.npy', x)
    drivers.copy_into_sid([build / 'bin' / 'hekla', build / 'lib' / 'hekla' / 'pjrt_vulkan.so'], [folder])
    rows = {}
    for number, (form, depth) in enumerate(cases):
        case, out = folder / str(number), f'/tmp/hekla-accuracy-{number}'
        inputs = [word for i in range(6) for word in ('--input', case / f'{i}.npy')]
        subprocess.run(drivers.in_sid(
            [build / 'bin' / 'hekla', 'run', case / 'program.mlirbc', '--device', 'vulkan', '--client-option',
             'vulkan_device_type=discrete', '--option', 'hekla_matrix_pieces=f16', '--output', out, *inputs],
            drivers.mesa26()), check=True, stdout=subprocess.DEVNULL)
        worst = 0.0
        for i in range(3):
            x, y = (np.load(case / f'{2 * i + side}.npy') for side in range(2))
            truth, magnitudes = exact(x, y)
            got = np.load(drivers.SID / out.lstrip('/') / f'output_{i}.npy')
            error = np.abs(got.astype(truth.dtype) - truth) / np.maximum(magnitudes, 1e-300)
            worst = max(worst, float(np.max(error)) * 2.0 ** 24)
        rows[form, depth] = {'units': worst}
        print(f'{form:24}{depth:>8}  units {cell(worst)}', flush=True)
    return rows


def measure(form, depth, sides, seed):
    """-> {side: greatest error}; None where JAX or the device has no such form."""
    import jax
    dtype = FORMS[form][0]
    unit = 2.0 ** (-53 if dtype in ('float64', 'complex128') else -24)
    product = product_of(FORMS[form])
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


def table(rows, depths, names):
    lines = ['| form | ' + ' | '.join(f'depth {depth:,}' for depth in depths) + ' |',
             '|---' * (len(depths) + 1) + '|']
    for form in dict.fromkeys(form for form, _ in rows):
        lines.append(f'| {form} | ' + ' | '.join(
            ' · '.join(cell(rows[form, depth][name]) for name in names) for depth in depths) + ' |')
    return lines


def units_section(rows, depths):
    lines = [UNITS_HEADING, '', f'The same for {UNITS_SIDE} rows and columns on the matrix units of llvmpipe (Mesa 26, 8 x 8 x 8, f16 and i8), '
             'f32 by pieces', 'of f16 in place of bf16: a piece has 11 digits, not 8, so forms of three products are off by less than on a GPU, which '
             'may leave out', '3 x 2^-16, 768 of these units ([numerics](numerics.md)). Three to nine products differ by less than what '
             'sums in f32 lose. No GPU was measured. Written by', '', '```',
             '.venv/jax-0.10.2/bin/python benchmarks/accuracy_products.py --units --write', '```', '']
    return '\n'.join([*lines, *table(rows, depths, ['units']), ''])


def section(rows, depths, names):
    """The part of the page, as Markdown."""
    lines = [HEADING, '', 'The greatest error of an element of a product of two matrices, of '
             f'{" · ".join(names)} in this order: in units of 2^-24', '(f64 and c128: 2^-53) times the sum of the '
             'magnitudes of its products. Written by', '', '```',
             '.venv/jax-0.10.2/bin/python benchmarks/accuracy_products.py --write', '```', '',
             'which says what is counted. `vulkan:trees` has the sums of GPUs. Matrix units have their own '
             '([numerics](numerics.md)), below.', '']
    return '\n'.join([*lines, *table(rows, depths, names), ''])


def write_page(products=None, units=None):
    """Replaces the parts that are given."""
    before, _, rest = PAGE.read_text(encoding='utf-8').partition(HEADING + '\n')
    old_products, has_units, old_units = rest.partition(UNITS_HEADING + '\n')
    parts = [before, products or HEADING + '\n' + old_products, units or (UNITS_HEADING + '\n' + old_units if has_units else '')]
    PAGE.write_text('\n\n'.join(part.strip('\n') for part in parts if part) + '\n', encoding='utf-8')


def main():
    parser = argparse.ArgumentParser(description=__doc__, prog='benchmarks/accuracy_products.py',
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--platform', default='tbb,vulkan,vulkan:trees', help='JAX platforms of Hekla')
    parser.add_argument('--units', action='store_true', help='matrix units of llvmpipe in the root of Debian sid')
    parser.add_argument('--forms', help='names with semicolons between; all')
    parser.add_argument('--depths', default='64,1000,4096,100003')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--json', metavar='FILE', help='all rows')
    parser.add_argument('--write', action='store_true', help=f'write the end of {PAGE.relative_to(ROOT)}')
    options = parser.parse_args()
    known = UNIT_FORMS if options.units else FORMS
    forms = options.forms.split(';') if options.forms else list(known)
    if unknown := set(forms) - set(known):
        parser.error(f'no form {sorted(unknown)}; there are: {"; ".join(known)}')
    depths = [int(depth) for depth in options.depths.split(',')]
    if options.units:
        os.environ['JAX_PLATFORMS'] = 'cpu'
        rows = measure_units(forms, depths, options.seed)
        if options.write:
            write_page(units=units_section(rows, depths))
        return
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
        write_page(products=section(rows, depths, list(sides)))


if __name__ == '__main__':
    main()
