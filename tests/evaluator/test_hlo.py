# SPDX-License-Identifier: Apache-2.0
"""The same program as HLO and as StableHLO: the evaluator must give the same bits.

XLA itself, which jaxlib carries, writes the HloModuleProto of each program: of the programs of
programs.py, of tests/artifacts, and of JAX's harness of primitives. Run is every HLO_SHARE'th one
(48 unless set), chosen by its name; 1 runs all:

    HLO_SHARE=1 pytest tests/evaluator/test_hlo.py

What only HLO can say is in test_hlo_opcodes.py.
"""
import json
import os
import pathlib
import re
import subprocess
import zlib

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
os.environ.setdefault('JAX_ENABLE_X64', '1')

import jax
import numpy as np
import pytest
from jaxlib import _jax
from jax._src.interpreters import mlir

import programs
from compare_with_jax import to_bytes

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get('HEKLA_BUILD_DIR', ROOT / 'build'))
SHARE = int(os.environ.get('HLO_SHARE', '48'))


# XLA writes these by formulas of real numbers where HLO has no complex operation, so results are
# equal within rounding only; the test fails for one of them that has become equal.
EXPANDED = re.compile(r'(exponential|log|log_plus_one|sqrt) complex<f(32|64)>|'
                      r'(exp|log|log1p|sqrt)_shape_complex(64|128)_20_20_')


def is_chosen(name, share=None):
    return zlib.crc32(name.encode()) % (share or SHARE) == 0


def hlo_of(stablehlo):
    """XLA's own conversion, of text or bytecode. Raises where HLO has no such operation."""
    computation = _jax.mlir.mlir_module_to_xla_computation(stablehlo, False, False)
    return computation.as_serialized_hlo_module_proto()


def evaluate(cases, folder):
    """Runs (program bytes, [(array, dtype name)]); for each the outputs as (dtype, dims, bytes), or an error."""
    entries = []
    for i, (program, inputs) in enumerate(cases):
        (folder / f'{i}.program').write_bytes(program)
        arrays = []
        for k, (array, dtype) in enumerate(inputs):
            (folder / f'{i}.in{k}').write_bytes(to_bytes(array, dtype))
            arrays.append({'dtype': dtype, 'dims': list(array.shape), 'file': f'{i}.in{k}'})
        entries.append({'program': f'{i}.program', 'inputs': arrays})
    (folder / 'cases.json').write_text(json.dumps(entries))
    subprocess.run([BUILD / 'tests' / 'evaluate_batch', folder], check=True)
    results = []
    for result in json.loads((folder / 'results.json').read_text()):
        results.append(result.get('error') or [
            (out['dtype'], out['dims'], (folder / out['file']).read_bytes())
            for out in result['outputs']])
    return results


def check_pairs(pairs, folder):
    """Of (name, StableHLO, HLO, inputs): both forms give the same bits; what fails in both may."""
    assert pairs
    results = evaluate([(program, inputs) for _, *forms, inputs in pairs for program in forms],
                       folder)
    problems = []
    compared = 0
    for i, (name, *_) in enumerate(pairs):
        ours, hlo = results[2 * i], results[2 * i + 1]
        if isinstance(ours, str):
            continue
        compared += 1
        if (ours == hlo) if EXPANDED.fullmatch(name) else (ours != hlo):
            what = hlo if isinstance(hlo, str) else 'equal or other results'
            problems.append(f'{name}: {what}')
    assert not problems, f'{len(problems)} of {compared}:\n' + '\n'.join(problems[:40])
    return compared


def test_operations(tmp_path):
    pairs = []
    for case in programs.all_cases():
        if is_chosen(case.name):
            inputs = [(x, programs.NAMES[x.dtype]) for x in case.inputs]
            try:
                hlo = hlo_of(case.text)
            except jax.errors.JaxRuntimeError as error:
                assert re.search("Expected element type|can't be translated", str(error)), case.name
                continue
            pairs.append((case.name, case.text.encode(), hlo, inputs))
    check_pairs(pairs, tmp_path)


def test_jax_harness(tmp_path):
    harnesses = pytest.importorskip('jax._src.internal_test_util.test_harnesses').all_harnesses
    pairs = []
    for harness in harnesses:
        if not is_chosen(harness.fullname) or not harness.filter('cpu'):
            continue
        lowered = jax.jit(harness.dyn_fun).lower(*harness.dyn_args_maker(np.random.RandomState(0)))
        arguments = jax.tree.leaves(harness.dyn_args_maker(np.random.RandomState(0)))
        kept = sorted(lowered._lowering.compile_args['kept_var_idx'])
        arrays = [np.asarray(jax.numpy.asarray(arguments[i])) for i in kept]
        if not all(array.dtype in programs.NAMES for array in arrays):
            continue
        text = mlir.module_to_bytecode(lowered.compiler_ir('stablehlo'))
        hlo = lowered.compiler_ir('hlo').as_serialized_hlo_module_proto()
        inputs = [(array, programs.NAMES[array.dtype]) for array in arrays]
        pairs.append((harness.fullname, text, hlo, inputs))
    check_pairs(pairs, tmp_path)
