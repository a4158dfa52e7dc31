#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the operations that torch lists for its own tests (OpInfo) on a device and on torch's CPU.

    PJRT_DEVICE=HEKLA_CPU PYTHONPATH=build/python .venv/torch-2.9.0/bin/python tests/torch/sweep.py
        [--share N] [--seed S] [--ops REGEX] [--all]

Takes one of N of all samples (of one of sqrt(N) of the pairs of operation and form one of sqrt(N)), forward in f32, i64, bool, bf16 and c64 where the operation has them and
backward in f32, and prints a line per operation with a failure (--all: each operation), then the
counts. A sample that fails runs on torch_xla's own CPU device too: what fails there as well is
torch_xla's, what does not is ours. Samples run in a process of their own, which a new one continues
when an operation ends it or takes over LIMIT seconds. Status 1: an operation fails as ours that
known_gaps.txt does not name, or, with --share 1, one that is named there does not.
"""
import argparse
import collections
import json
import os
import pathlib
import queue
import re
import subprocess
import sys
import tempfile
import threading
import zlib

HERE = pathlib.Path(__file__).resolve().parent
KNOWN_GAPS = HERE / 'known_gaps.txt'
LIMIT = 120
START_LIMIT = 600  # until all is imported
ROOM = 8  # as in tests/jax/compare.py

# ours: samples that fail here and not on upstream's CPU device; shared: that fail on both.
Row = collections.namedtuple('Row', 'passed skipped ours shared')


def known_gaps():
    """{operation: reason}"""
    lines = KNOWN_GAPS.read_text(encoding='utf-8').splitlines()
    return dict(line.split(': ', 1) for line in lines if line and not line.startswith('#'))


def is_taken(key, share, seed):
    """Of the names of all pairs of operation and form, or of all samples of one, one of sqrt(share)."""
    every = max(round(share ** 0.5), 1)
    return zlib.crc32(key.encode()) % every == seed % every


# -- in the process that runs samples ------------------------------------------------------------


def moved(value, change):
    """value with each tensor in it changed."""
    import torch
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        items = [moved(item, change) for item in value]
        return type(value)(*items) if hasattr(value, '_fields') else type(value)(items)
    if isinstance(value, dict):
        return {key: moved(item, change) for key, item in value.items()}
    return value


def tensors(value):
    import torch
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in tensors(item)]
    return []


def evaluate(op, sample, change, has_gradient):
    """Results, and the gradients of their sums by the inputs where asked."""
    import torch
    inputs = moved([sample.input, list(sample.args), sample.kwargs], lambda t: change(t.detach()))
    leaves = []
    if has_gradient:
        def leaf(t, original):
            if original.requires_grad:
                t = t.detach().requires_grad_()
                leaves.append(t)
            return t
        originals = iter(tensors([sample.input, list(sample.args), sample.kwargs]))
        inputs = moved(inputs, lambda t: leaf(t, next(originals)))
    results = tensors(op(inputs[0], *inputs[1], **inputs[2]))
    if not has_gradient:
        return [r.detach().cpu() for r in results]
    total = sum((r.abs() if r.is_complex() else r).sum() for r in results if r.requires_grad)
    gradients = torch.autograd.grad(total, leaves, allow_unused=True)
    return [torch.zeros(()) if g is None else g.detach().cpu() for g in gradients]


def difference(got, want, truth):
    """'' where got is as good as want, else words."""
    import torch
    if len(got) != len(want):
        return f'{len(got)} results instead of {len(want)}'
    for i, (g, w) in enumerate(zip(got, want)):
        if g.shape != w.shape or g.dtype != w.dtype:
            return f'result {i} is {g.dtype}{list(g.shape)} instead of {w.dtype}{list(w.shape)}'
        try:
            torch.testing.assert_close(g, w, equal_nan=True)
        except AssertionError as error:
            reference = truth()
            if i < len(reference) and reference[i].shape == w.shape and (
                    w.dtype.is_floating_point or w.dtype.is_complex):
                t = reference[i]
                own = (w.to(t.dtype) - t).abs()
                own = float(own[own.isfinite()].max()) if own.isfinite().any() else 0.0
                size = t.abs()
                size = float(size[size.isfinite()].max()) if size.isfinite().any() else 0.0
                epsilon = torch.finfo(w.dtype).eps
                if torch.allclose(g.to(t.dtype), t, rtol=8 * epsilon, equal_nan=True,
                                  atol=ROOM * (own + epsilon * size)):
                    continue
            return ' '.join(str(error).split())[:160]
    return ''


def worker(arguments):
    os.environ.setdefault('PYTORCH_TESTING_DEVICE_ONLY_FOR', 'cpu')
    import torch
    import torch_xla
    from torch.testing._internal import common_methods_invocations as database
    device = torch_xla.device()
    wide = {torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.complex64: torch.complex128}
    forms = [('f32', torch.float32, False), ('grad', torch.float32, True), ('i64', torch.int64, False),
             ('bool', torch.bool, False), ('bf16', torch.bfloat16, False), ('c64', torch.complex64, False)]
    pattern = re.compile(arguments.ops)
    chosen = set(arguments.keys.read_text(encoding='utf-8').splitlines()) if arguments.keys else None

    def say(**message):
        print(json.dumps(message), file=sys.__stdout__, flush=True)
    number = arguments.number
    for op in sorted(database.op_db, key=lambda o: (o.name, o.variant_test_name)):
        name = op.name + (f'/{op.variant_test_name}' if op.variant_test_name else '')
        if not pattern.fullmatch(name) or (arguments.at and name != arguments.at):
            continue
        arguments.at = None
        say(at=name, number=number)
        for form, dtype, has_gradient in forms:
            if dtype not in op.supported_dtypes('cpu') or (has_gradient and not op.supports_autograd):
                continue
            if not (is_taken(f'{name} {form}', arguments.share, arguments.seed) if chosen is None else
                    any(key.startswith(f'{name} {form} ') for key in chosen)):
                continue
            torch.manual_seed(3)
            samples = iter(op.sample_inputs('cpu', dtype, requires_grad=has_gradient))
            for index in range(1000):
                number += 1
                key = f'{name} {form} {index}'
                try:
                    sample = next(samples)
                except StopIteration:
                    break
                if number < arguments.start or (not is_taken(key, arguments.share, arguments.seed)
                                                if chosen is None else key not in chosen):
                    continue
                say(start=number, name=name, key=key)
                try:
                    torch.manual_seed(5)
                    want = evaluate(op, sample, lambda t: t.clone(), has_gradient)
                    torch.manual_seed(5)
                    again = evaluate(op, sample, lambda t: t.clone(), has_gradient)
                    torch.manual_seed(6)
                    other = evaluate(op, sample, lambda t: t.clone(), has_gradient)
                except Exception as error:  # the CPU has no such sample
                    say(end=number, name=name, key=key, skipped=f'{type(error).__name__}: {error}'[:100])
                    continue
                is_random = any(not torch.equal(a.nan_to_num(), b.nan_to_num()) if a.is_floating_point() else
                                not torch.equal(a, b) for a, b in zip(again, other) if a.shape == b.shape)

                def truth():
                    try:
                        return evaluate(op, sample, lambda t: t.to(wide.get(t.dtype, t.dtype)),
                                        has_gradient)
                    except Exception:
                        return []
                try:
                    got = evaluate(op, sample, lambda t: t.to(device), has_gradient)
                    if is_random or op.name.startswith(('empty', 'new_empty')):
                        got = [torch.zeros_like(g) for g in got]
                        want = [torch.zeros_like(w) for w in want]
                    failure = difference(got, want, truth)
                except Exception as error:
                    failure = f'{type(error).__name__}: ' + ' '.join(str(error).split())[:300]
                say(end=number, name=name, key=key, failure=failure)
    say(done=True)


# -- in the process that was called --------------------------------------------------------------


def progress(words, is_kept=False):
    """On a terminal the operation that runs; anywhere what ended a process."""
    if is_kept or sys.stderr.isatty():
        print(f'\x1b[2K\r{words}' if sys.stderr.isatty() else words, end='\n' if is_kept else '',
              file=sys.stderr, flush=True)


def run_samples(choice, environment):
    """{operation: [passed, skipped, {sample: failure}]} of the samples that the arguments choose."""
    rows = collections.defaultdict(lambda: [0, 0, {}])
    start, at = 0, []
    while True:
        process = subprocess.Popen([sys.executable, __file__, '--worker', *choice, '--start', str(start), *at],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   env={**os.environ, **environment})
        running, is_done, is_late, has_begun = None, False, False, False
        lines = queue.Queue()
        reader = threading.Thread(target=lambda: [lines.put(line) for line in (*process.stdout, None)])
        reader.start()
        while not is_done:
            try:
                line = lines.get(timeout=LIMIT if has_begun else START_LIMIT)
            except queue.Empty:
                is_late = True
                break
            if line is None:
                break
            try:
                message = json.loads(line)
            except ValueError:  # what the operation prints
                continue
            is_done, has_begun = 'done' in message, True
            if 'at' in message:
                at = ['--at', message['at'], '--number', str(message['number'])]
                progress(f'{message["at"]}, sample {message["number"] + 1}')
            elif 'start' in message:
                running = message
            elif 'end' in message:
                row, running, start = rows[message['name']], None, message['end'] + 1
                if 'skipped' in message:
                    row[1] += 1
                elif message['failure']:
                    row[2][message['key']] = message['failure']
                else:
                    row[0] += 1
        process.kill()
        status = process.wait()
        reader.join()
        process.stdout.close()
        if is_done:
            return rows
        if running is None:
            raise RuntimeError(f'the process of the sweep ended with status {status} before sample {start}')
        words = f'took more than {LIMIT} s' if is_late else f'ended the process with status {status}'
        progress(f'{running["key"]}: {words}', is_kept=True)
        rows[running['name']][2][running['key']] = words
        start = running['start'] + 1


def run(share, seed=0, ops='.*'):
    """As run_samples; failures are split into ours and those that upstream's CPU device shares."""
    rows = run_samples(['--share', str(share), '--seed', str(seed), '--ops', ops], {})
    gaps = known_gaps()
    keys = [key for name, row in rows.items() if name not in gaps or share == 1 for key in row[2]]
    theirs = {}
    if keys:
        with tempfile.NamedTemporaryFile('w', suffix='.txt') as file:
            file.write('\n'.join(keys) + '\n')
            file.flush()
            for row in run_samples(['--keys', file.name], {'PJRT_DEVICE': 'CPU'}).values():
                theirs.update(row[2])
    return {name: Row(passed, skipped, {k: f for k, f in failures.items() if k not in theirs},
                      {k: f for k, f in failures.items() if k in theirs})
            for name, (passed, skipped, failures) in rows.items()}


def judge(rows, is_whole):
    """({operation: failures that are new}, gaps that have closed)"""
    gaps = known_gaps()
    new = {name: row.ours for name, row in rows.items() if row.ours and name not in gaps}
    closed = [name for name in gaps if is_whole and not (name in rows and rows[name].ours)]
    return new, closed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--share', type=int, default=1)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--ops', default='.*')
    parser.add_argument('--all', action='store_true')
    parser.add_argument('--worker', action='store_true', help=argparse.SUPPRESS)
    parser.add_argument('--keys', type=pathlib.Path, help=argparse.SUPPRESS)
    # Where a worker goes on: at this operation, whose first sample follows this number, with sample --start.
    parser.add_argument('--at', help=argparse.SUPPRESS)
    parser.add_argument('--number', type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument('--start', type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments)
    rows = run(arguments.share, arguments.seed, arguments.ops)
    gaps = known_gaps()
    for name, row in sorted(rows.items()):
        if row.ours or row.shared or arguments.all:
            known = f' (known: {gaps[name]})' if name in gaps else ''
            print(f'{name}: {row.passed} passed, {row.skipped} skipped, {len(row.ours)} failed{known}, '
                  f'{len(row.shared)} fail upstream too')
            for key, failure in list(row.ours.items())[:3]:
                print(f'    {key}: {failure}')
    count = {field: sum(getattr(row, field) if isinstance(getattr(row, field), int) else
                        len(getattr(row, field)) for row in rows.values()) for field in Row._fields}
    print(f'{len(rows)} operations; samples: {count["passed"]} passed, {count["ours"]} failed, '
          f'{count["shared"]} fail on upstream\'s CPU too, {count["skipped"]} without a result on torch\'s')
    new, closed = judge(rows, arguments.share == 1 and arguments.ops == '.*')
    print(f'{len(new)} operations fail that are not known to: {", ".join(sorted(new)) or "-"}')
    print(f'{len(closed)} known gaps have closed: {", ".join(closed) or "-"}')
    return 1 if new or closed else 0


if __name__ == '__main__':
    sys.exit(main())
