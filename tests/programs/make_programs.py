#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the programs of this folder with JAX and stores them with inputs and jaxlib's CPU results.

Each program becomes a folder NAME with program.mlirbc (the portable StableHLO artifact that jaxlib
hands to a PJRT plugin of a platform that JAX does not know), case.json (inputs, expected outputs,
tolerances; the README describes it) and .npy files. With --check nothing is written: every program
is made again and compared with what is stored, and what is stored is run from its files.
"""
import argparse
import json
import os
import pathlib
import sys
import time

os.environ.setdefault('JAX_PLATFORMS', 'cpu')

import jax
import numpy as np
from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib import _jax
from jax._src.public_test_util import default_tolerance
from jaxlib.mlir.dialects import stablehlo

import digits
import stored
from programs import HERE, all_programs
from rules import NAMES, Rule, load_array, save_array

PLATFORM = 'reference'     # any name JAX has no rules for gives the same program
SAMPLES = 32               # stored elements of an output that is too large to store whole
WHOLE_BYTES = 96 * 1024    # outputs up to here are stored whole ...
WHOLE_OUTPUTS = 40         # ... in programs with at most so many outputs
# Room over the distance between jaxlib's result and the f64 run. f32: jaxlib sums in blocks (about
# 16 partial sums); one running sum over n products has up to sqrt(16) times the random-walk error,
# and a factor of two covers the spread of a maximum over many elements. Narrower types: rounding
# after each operation dominates, jaxlib may skip some of it, and the other side errs as much.
ORDER_OF_SUMMATION = 8
BOTH_SIDES = 2
SOURCE = ('rtol: jax._src.public_test_util.default_tolerance() of the dtype. atol: the same times '
          'the root mean square of the output where that is below one. atol and sum_rtol are '
          f'raised to {ORDER_OF_SUMMATION} x (bf16: {BOTH_SIDES} x) the largest distance over '
          'the whole output between jaxlib on the CPU and the same program in f64, where '
          'that is larger')


def lower(program):
    """-> the program lowered for PLATFORM as an MLIR module."""
    if PLATFORM not in jax_mlir._platforms_with_donation:
        jax_mlir._platforms_with_donation.append(PLATFORM)
    # File names without folders, so that no machine's paths are stored.
    jax.config.update('jax_hlo_source_file_canonicalization_regex', '.*/')
    specs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), program.arrays())
    traced = jax.jit(program.function, donate_argnums=program.donate).trace(*specs)
    module = traced.lower(lowering_platforms=(PLATFORM,)).compiler_ir('stablehlo')
    count = len(module.body.operations[0].type.inputs)
    if count != len(program.leaves()):
        raise ValueError(f'{program.name}: {count} of {len(program.leaves())} inputs are used')
    return module


def serialize(module):
    return _jax.mlir.serialize_portable_artifact(module, stablehlo.get_current_version(), True)


def text_of(artifact):
    """StableHLO text without locations: equal for equal programs, wherever the lines stand."""
    with jax_mlir.make_ir_context() as context:
        module = stablehlo.deserialize_portable_artifact(context, artifact)
        return module.operation.get_asm(enable_debug_info=False)


def run(program, arrays, wide=False):
    """-> (flat results on jaxlib's CPU, seconds of the second run). wide: floats become f64."""
    with jax.enable_x64(wide):
        if wide:
            arrays = widen(arrays)
        function = jax.jit(program.function)
        jax.block_until_ready(function(*arrays))
        start = time.perf_counter()
        results = jax.block_until_ready(function(*arrays))
        seconds = time.perf_counter() - start
        return [np.asarray(r) for r in jax.tree.leaves(results)], seconds


def widen(arrays):
    is_float = lambda x: jax.numpy.issubdtype(x.dtype, np.floating)
    return jax.tree.map(lambda x: x.astype(np.float64) if is_float(x) else x, arrays)


def round_up(x):
    """To one significant digit, so that a remake on another machine mostly states the same."""
    if x == 0:
        return 0.0
    power = 10.0 ** np.floor(np.log10(x))
    return float(f'{np.ceil(x / power - 1e-9) * power:.1g}')


def tolerances(narrow, wide):
    """-> (rtol, atol, sum_rtol) for one output; raises if the tolerance would see no mistakes."""
    base = default_tolerance()[narrow.dtype]
    if not jax.numpy.issubdtype(narrow.dtype, np.inexact):
        if not (narrow == wide).all():
            raise ValueError('an integer output depends on rounding')
        return 0.0, 0.0, 0.0
    room = ORDER_OF_SUMMATION if narrow.dtype.itemsize >= 4 else BOTH_SIDES
    a, b = narrow.astype(np.float64), wide.astype(np.float64)
    size = np.sqrt(np.mean(b * b)) if b.size else 0.0
    # The dtype's atol is meant for values around one: for smaller ones it shrinks with them.
    atol = max(base * min(1.0, size), room * np.abs(a - b).max(initial=0))
    limit = 0.1 if base > 1e-3 else 1e-2
    if size > 0 and atol > limit * size:
        raise ValueError(f'tolerance {atol:.2g} for values of size {size:.2g}')
    total = np.abs(b).sum()
    spread = abs(a.sum() - b.sum()) / total if total else 0.0
    return base, round_up(atol), round_up(max(base, room * spread))


def number(x):
    """A JSON number that reads back to x in x's dtype."""
    if jax.numpy.issubdtype(x.dtype, np.floating):
        x = x.astype(np.float32) if x.dtype.itemsize < 4 else x
        return float(str(x))
    return int(x)


def describe_output(array, wide, whole, file):
    """-> (entry of case.json, array to store under file or None)."""
    rtol, atol, sum_rtol = tolerances(array, wide)
    dtype, shape = NAMES[array.dtype], list(array.shape)
    if whole and array.nbytes <= WHOLE_BYTES:
        return {'file': file, 'dtype': dtype, 'shape': shape, 'rtol': rtol, 'atol': atol}, array
    flat = array.reshape(-1)
    if flat.size <= SAMPLES:
        indices = np.arange(flat.size)
    else:
        # The first and last elements, and others at positions without a common stride.
        inner = (np.arange(1, SAMPLES - 1) * 0.6180339887498949 % 1.0 * flat.size).astype(np.int64)
        indices = np.unique(np.concatenate([[0, flat.size - 1], inner]))
    values = flat.astype(np.float64)
    return {'samples': {'dtype': dtype, 'shape': shape, 'indices': [int(i) for i in indices],
                        'values': [number(flat[i]) for i in indices]},
            'sum': float(values.sum()), 'abs_sum': float(np.abs(values).sum()),
            'rtol': rtol, 'atol': atol, 'sum_rtol': sum_rtol}, None


def make(program):
    """-> (artifact, case as a dictionary, {file name: array or JSON}, seconds of one run)."""
    arrays = program.arrays()
    artifact = serialize(lower(program))
    results, seconds = run(program, arrays)
    wide, _ = run(program, arrays, wide=True)
    with jax.enable_x64(True):
        program.check(arrays, widen(arrays))
    files, inputs, outputs = {}, [], []
    for i, leaf in enumerate(program.leaves()):
        if isinstance(leaf, Rule):
            inputs.append(leaf.to_json())
        else:
            files[f'input_{i}.npy'] = leaf
            inputs.append({'file': f'input_{i}.npy', 'dtype': NAMES[leaf.dtype],
                           'shape': list(leaf.shape)})
    whole = len(results) <= WHOLE_OUTPUTS
    for i, (array, reference) in enumerate(zip(results, wide)):
        try:
            entry, whole_array = describe_output(array, reference, whole, f'output_{i}.npy')
        except ValueError as error:
            raise ValueError(f'{program.name}, output {i}: {error}') from error
        outputs.append(entry)
        if whole_array is not None:
            files[f'output_{i}.npy'] = whole_array
    case = {'name': program.name, 'description': program.description, 'program': 'program.mlirbc',
            'made_with': {'jax': jax.__version__, 'jaxlib': jax.lib.__version__},
            'tolerance_source': SOURCE, 'donated': program.donated_inputs(),
            'inputs': inputs, 'outputs': outputs}
    if program.name == 'digits_classifier':
        labels = digits.load_data()[3]
        accuracy = float(np.mean(results[2] == labels))
        if accuracy < 0.98:
            raise ValueError(f'test accuracy {accuracy}')
        case['test_accuracy'] = round(accuracy, 4)
    if program.name == 'digits_train_step':
        training, arrays = digits.training()
        files |= arrays | {'training.json': training}
    return artifact, case, files, seconds


def case_text(case):
    """One line an input or output: readable, and a change shows as a small difference."""
    dump = lambda value: json.dumps(value, separators=(', ', ': '))
    parts = []
    for key, value in case.items():
        if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
            lines = ',\n'.join('    ' + dump(entry) for entry in value)
            parts.append(f'  "{key}": [\n{lines}\n  ]')
        else:
            parts.append(f'  "{key}": {dump(value)}')
    return '{\n' + ',\n'.join(parts) + '\n}\n'


def write(folder, artifact, case, files):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob('*.npy'):
        if old.name not in files:
            old.unlink()
    (folder / 'program.mlirbc').write_bytes(artifact)
    for name, content in files.items():
        if name.endswith('.json'):
            (folder / name).write_text(case_text(content))
        else:
            save_array(folder / name, content)
    (folder / 'case.json').write_text(case_text(case))


def compare(folder, artifact, case, files):
    """-> list of differences between what is stored and what was made now."""
    if not (folder / 'case.json').exists():
        return ['nothing is stored']
    before, problems = json.loads((folder / 'case.json').read_text()), []
    if text_of((folder / 'program.mlirbc').read_bytes()) != text_of(artifact):
        problems.append('the program differs')
    if before['inputs'] != json.loads(json.dumps(case['inputs'])):
        problems.append('the inputs differ')
    for name in ('description', 'donated', 'made_with', 'tolerance_source'):
        if before[name] != case[name]:
            problems.append(f'{name}: stored {before[name]!r}, now {case[name]!r}')
    if len(before['outputs']) != len(case['outputs']):
        return problems + ['the number of outputs differs']
    for entry in before['inputs']:
        if 'file' in entry:
            now = files[entry['file']]
            if load_array(folder / entry['file'], entry['dtype']).tobytes() != now.tobytes():
                problems.append(f'{entry["file"]} differs')
    for name in (n for n in files if n.startswith(('train', 'test_'))):
        if not (folder / name).exists():
            problems.append(f'{name} is missing')
        elif name.endswith('.json'):
            if (folder / name).read_text() != case_text(files[name]):
                problems.append(f'{name} differs')
        elif load_array(folder / name, 'ui8').tobytes() != files[name].tobytes():
            problems.append(f'{name} differs')
    for i, (old, new) in enumerate(zip(before['outputs'], case['outputs'])):
        if ('file' in old) != ('file' in new):
            problems.append(f'output {i} is stored in another form')
            continue
        if 'file' in old:
            was = load_array(folder / old['file'], old['dtype']).astype(np.float64)
            now = files[new['file']].astype(np.float64)
        else:
            was, now = (np.array(e['samples']['values'], np.float64) for e in (old, new))
            if old['samples']['indices'] != new['samples']['indices']:
                problems.append(f'output {i} has other samples')
                continue
            if abs(old['sum'] - new['sum']) > old['sum_rtol'] * old['abs_sum']:
                problems.append(f'output {i} has another sum')
        if was.shape != now.shape or not np.allclose(now, was, old['rtol'], old['atol'],
                                                     equal_nan=True):
            problems.append(f'output {i} differs')
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--only', metavar='NAME', help='make only the program of this name')
    parser.add_argument('--check', action='store_true', help='compare with what is stored')
    parser.add_argument('--retrain', action='store_true',
                        help='train the digits classifier again instead of keeping its weights')
    parser.add_argument('--out', type=pathlib.Path, default=HERE, help='where the folders go')
    options = parser.parse_args()
    programs = all_programs(options.retrain)
    if options.only:
        names = [p.name for p in programs]
        programs = [p for p in programs if p.name == options.only]
        if not programs:
            parser.error(f'no program {options.only}; there are: {", ".join(names)}')
    total, failed = 0, 0
    for count, program in enumerate(programs, 1):
        artifact, case, files, seconds = make(program)
        folder = options.out / program.name
        line = f'[{count}/{len(programs)}] {program.name}: '
        if options.check:
            problems = compare(folder, artifact, case, files)
            if (folder / 'case.json').exists():
                problems += stored.check(folder)
            failed += bool(problems)
            print(line + ('; '.join(problems) if problems else 'as stored'), flush=True)
            continue
        write(folder, artifact, case, files)
        size = sum(f.stat().st_size for f in folder.iterdir())
        total += size
        loosest = max((o['atol'] for o in case['outputs']), default=0)
        print(line + f'{len(artifact)} bytes of program, {size} bytes in all, '
              f'{len(case["inputs"])} inputs, {len(case["outputs"])} outputs, largest atol '
              f'{loosest:g}, jaxlib CPU {1000 * seconds:.1f} ms', flush=True)
    if not options.check:
        print(f'{total} bytes in {len(programs)} folders')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
