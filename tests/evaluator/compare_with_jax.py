#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the reference evaluator with jaxlib's CPU, op by op, on generated StableHLO programs.

    compare_with_jax.py [--filter TEXT] [--verbose] [--oracle jaxlib|interpreter]

Needs jax 0.10.2 and build/tests/evaluate_batch (HEKLA_BUILD_DIR names another build tree). Each
case is a StableHLO text with inputs: jaxlib compiles it for its CPU, and its portable artifact goes
to the evaluator. Integers, booleans and moved data must be equal to the bit; floats agree within
`tolerance`: a few units in the last place of the result's dtype, or of what CPU's own algorithm
gives away. NaN must be NaN, infinities and (where the case says so) signs of zeros equal.

Where jaxlib's CPU and the specification differ, `Case.expect` holds the specified result instead,
with the reason beside it.
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
os.environ.setdefault('JAX_ENABLE_X64', '1')

import jax
import ml_dtypes
import numpy as np
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]


def to_bytes(array, dtype):
    """The bytes of dtype.h: types below eight bits take a byte each, integers extended."""
    if dtype in ('i2', 'i4', 'ui2', 'ui4'):
        array = array.astype(np.int8)
    return np.ascontiguousarray(array).tobytes()


def from_bytes(raw, dtype, dims):
    return np.frombuffer(raw, programs.DTYPES[dtype]).reshape(dims)


def run_on_cpu(case):
    """The results, or the reason why there are none."""
    client = jax.devices('cpu')[0].client
    devices = xla_client.DeviceList(tuple(client.devices()[:1]))
    try:
        executable = client.compile_and_load(case.text, devices, xla_client.CompileOptions())
    except Exception as error:
        return str(error).split('\n')[0]
    buffers = [jax.device_put(x, jax.devices('cpu')[0]) for x in case.inputs]
    results = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
    return [np.asarray(r[0]) for r in results]


def attribute_of(array):
    element = mlir.dtype_to_ir_type(array.dtype)
    return ir.DenseElementsAttr.get(np.ascontiguousarray(array), type=element, shape=array.shape)


def interpret(case):
    """StableHLO's own interpreter. It may end the process."""
    with mlir.make_ir_context() as context, ir.Location.unknown():
        stablehlo.register_dialect(context)
        module = ir.Module.parse(case.text)
        results = stablehlo.eval_module(module, [attribute_of(x) for x in case.inputs])
        arrays = [np.array(r) for r in results]
        for attribute, array in zip(results, arrays, strict=True):
            element = str(ir.RankedTensorType(attribute.type).element_type)
            if programs.DTYPES[element] != array.dtype:
                raise TypeError(f'the bindings give {element} as {array.dtype}')
        return arrays


def run_on_interpreter(cases):
    """-> per case its results or the reason why there are none. Runs in child processes: one that
    dies costs the case that killed it."""
    answers = []
    while len(answers) < len(cases):
        reader, writer = multiprocessing.Pipe(duplex=False)

        def work(rest=cases[len(answers):], writer=writer):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            for case in rest:
                try:
                    writer.send(interpret(case))
                except Exception as error:
                    writer.send(str(error).split('\n')[0] or type(error).__name__)

        child = multiprocessing.get_context('fork').Process(target=work)
        child.start()
        writer.close()
        try:
            while len(answers) < len(cases):
                answers.append(reader.recv())
        except EOFError:
            answers.append('the interpreter ended its process')
        child.join()
    return answers


def run_on_evaluator(cases, folder, binary):
    """-> per case a list of arrays, or the error's text."""
    version = stablehlo.get_current_version()
    entries = []
    for n, case in enumerate(cases):
        (folder / f'{n}.mlirbc').write_bytes(
            stablehlo.serialize_portable_artifact_str(case.text, version))
        inputs = []
        for k, x in enumerate(case.inputs):
            name = programs.NAMES[x.dtype]
            (folder / f'{n}.in{k}').write_bytes(to_bytes(x, name))
            inputs.append({'dtype': name, 'dims': list(x.shape), 'file': f'{n}.in{k}'})
        entries.append({'program': f'{n}.mlirbc', 'inputs': inputs})
    (folder / 'cases.json').write_text(json.dumps(entries))
    subprocess.run([binary, folder], check=True)
    results = []
    for entry in json.loads((folder / 'results.json').read_text()):
        if 'error' in entry:
            results.append(entry['error'])
            continue
        results.append([from_bytes((folder / o['file']).read_bytes(), o['dtype'], o['dims'])
                        for o in entry['outputs']])
    return results


def parts(x):
    """Complex numbers as pairs of floats, everything else as it is."""
    if not np.issubdtype(x.dtype, np.complexfloating):
        return x
    return np.stack([x.real, x.imag], -1)


def is_float(dtype):
    return dtype.kind == 'f' or dtype in programs.SMALL_FLOATS


def difference(case, got, want):
    """None, or where and how the two differ."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f'{got.dtype}{got.shape} instead of {want.dtype}{want.shape}'
    got, want = parts(got), parts(want)
    if not is_float(got.dtype):
        bad = got != want
    else:
        x, y = got.astype(np.float64), want.astype(np.float64)
        eps = float(ml_dtypes.finfo(got.dtype).eps)
        tiny = float(ml_dtypes.finfo(got.dtype).smallest_subnormal)
        scale = np.abs(y)
        if case.by_norm and want.size:
            scale = np.where(np.isfinite(y), np.abs(y), 0)
            scale = np.broadcast_to(scale.max(-1, keepdims=True), y.shape)
        with np.errstate(invalid='ignore', over='ignore'):
            close = (x == y) | (np.abs(x - y) <= case.ulps * (eps * scale + tiny))
            # Neighbours at the end of the range: one rounds to infinity, the other does not.
            largest = float(ml_dtypes.finfo(got.dtype).max)
            edge = case.ulps > 0
            near = edge & (np.abs(np.clip(x, -largest, largest) - np.clip(y, -largest, largest))
                           <= case.ulps * eps * largest) & (np.abs(x) > largest / 2)
        # jaxlib's CPU flushes subnormal results of these types; the evaluator keeps them.
        if got.dtype in programs.FLUSHED and case.expect is None:
            close |= (y == 0) & (np.abs(x) < float(ml_dtypes.finfo(got.dtype).smallest_normal))
        bad = ~(close | near | (np.isnan(x) & np.isnan(y)))
        if case.zeros:
            bad |= (x == 0) & (y == 0) & (np.signbit(x) != np.signbit(y))
    if not bad.any():
        return None
    lines = []
    for at in np.argwhere(bad)[:6]:
        at = tuple(int(i) for i in at)
        element = at[:want.ndim] if case.by_norm is False else at
        sources = ', '.join(str(i[element[:i.ndim]]) for i in case.inputs
                            if i.ndim and i.shape == want.shape[:i.ndim])
        lines.append(f'{at}: {got[at]!r} instead of {want[at]!r}  ({sources})')
    return f'{int(bad.sum())} of {bad.size} differ\n      ' + '\n      '.join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--filter', default='', help='only cases whose name holds this text')
    parser.add_argument('--verbose', action='store_true')
    parser.add_argument('--oracle', choices=('jaxlib', 'interpreter'), default='jaxlib',
                        help="jaxlib's CPU, or StableHLO's interpreter")
    args = parser.parse_args()
    build = pathlib.Path(os.environ.get('HEKLA_BUILD_DIR', ROOT / 'build'))
    chosen = [c for c in programs.all_cases() if args.filter in c.name]
    if args.oracle == 'interpreter':
        chosen = [c for c in chosen if programs.interpreter_agrees(c)]
        answers = run_on_interpreter(chosen)
    else:
        answers = [run_on_cpu(c) if c.expect is None else c.expect for c in chosen]
    cases, wanted, unsupported = [], [], []
    for case, answer in zip(chosen, answers, strict=True):
        if isinstance(answer, str):  # the oracle refuses or lacks the combination
            unsupported.append((case.name, answer))
        else:
            cases.append(case)
            wanted.append(answer)
    with tempfile.TemporaryDirectory() as folder:
        results = run_on_evaluator(cases, pathlib.Path(folder), build / 'tests/evaluate_batch')
    failed = 0
    for case, want, got in zip(cases, wanted, results, strict=True):
        if isinstance(got, str):
            problems = [got]
        else:
            problems = [p for g, w in zip(got, want, strict=True)
                        if (p := difference(case, g, w)) is not None]
        failed += bool(problems)
        for problem in problems:
            print(f'FAILED {case.name}: {problem}')
        if args.verbose and not problems:
            print(f'ok {case.name}')
    if args.verbose:
        for name, reason in unsupported:
            print(f'no oracle {name}: {reason}')
    print(f'{len(unsupported)} cases without an oracle')
    print(f'{len(cases) - failed} passed, {failed} failed')
    return 1 if failed or not cases else 0


if __name__ == '__main__':
    sys.exit(main())
