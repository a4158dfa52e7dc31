# SPDX-License-Identifier: Apache-2.0
"""Every collective on up to eight devices in lock-step, against numpy.

Needs build/tests/evaluate_batch (HEKLA_BUILD_DIR names another build tree). Results are equal to
the bit: elements are moved, and reductions go from the left in the order of the group, each step
rounded to the element type as numpy and ml_dtypes do it.
"""
import dataclasses
import itertools
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

import programs
from programs import DTYPES, MOVABLE, NAMES, tensor

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCH = pathlib.Path(os.environ.get('HEKLA_BUILD_DIR', ROOT / 'build')) / 'tests' / 'evaluate_batch'
# Replicas x partitions: 1, 2, 3, 4 and 8 devices in every factoring.
GRIDS = [(r, n // r) for n in (1, 2, 3, 4, 8) for r in range(1, n + 1) if n % r == 0]
# Reducers by kind of dtype; f8E8M0FNU has neither zero nor sign and f4 saturates, so both take the
# larger one.
ADDS = [name for name in MOVABLE if name not in ('i1', 'f4E2M1FN', 'f8E8M0FNU')]


@dataclasses.dataclass
class Case:
    grid: tuple
    text: str
    inputs: list     # by device, then by parameter
    expected: list   # by device, then by result


def values(random, dtype, shape):
    dtype = DTYPES[dtype]
    name = NAMES[dtype]
    if name == 'i1':
        return random.integers(0, 2, shape).astype(bool)
    if name == 'f8E8M0FNU':
        return np.exp2(random.integers(-3, 4, shape)).astype(dtype)
    if dtype.kind in 'iu' or name in ('i2', 'i4', 'ui2', 'ui4'):
        bits = {'i2': 2, 'i4': 4, 'ui2': 2, 'ui4': 4}.get(name, 8 * dtype.itemsize)
        low, high = (0, 1 << bits) if name[0] == 'u' else (-(1 << bits - 1), 1 << bits - 1)
        wide = np.uint64 if name == 'ui64' else np.int64
        return random.integers(low, high, shape, dtype=wide).astype(dtype)
    if dtype.kind == 'c':
        return (random.normal(size=shape) + 1j * random.normal(size=shape)).astype(dtype)
    result = random.normal(size=shape).astype(dtype)
    result[result == 0] = 0  # numpy's maximum gives either zero
    return result


def device_groups(mode, ids, grid):
    """Groups of device numbers from groups of ids."""
    replicas, partitions = grid
    if mode == 'replica':
        return [[r * partitions + p for r in group] for group in ids for p in range(partitions)]
    if mode == 'partition':
        return [[r * partitions + p for p in group] for group in ids for r in range(replicas)]
    if mode == 'both':
        return [[r * partitions + p for p in range(partitions) for r in group] for group in ids]
    return ids


def id_count(mode, grid):
    return {'replica': grid[0], 'both': grid[0], 'partition': grid[1]}.get(mode, grid[0] * grid[1])


def groupings(random, count):
    """Ways to cut `count` ids into groups of one size."""
    result = []
    for size in range(1, count + 1):
        if count % size == 0:
            order = list(random.permutation(count)) if size > 1 else list(range(count))
            result.append([[int(x) for x in order[i:i + size]] for i in range(0, count, size)])
    return result


def ragged_groupings(random, count):
    """And of different sizes."""
    order = [int(x) for x in random.permutation(count)]
    return groupings(random, count) + ([[order[:1], order[1:]]] if count > 2 else [])


def matrix(rows):
    columns = max(len(row) for row in rows)
    text = ', '.join(f"[{', '.join(map(str, row + [-1] * (columns - len(row))))}]" for row in rows)
    return f'dense<[{text}]> : tensor<{len(rows)}x{columns}xi64>'


CHANNEL = {'replica': '', 'partition': ', channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>',
           'both': ', channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>',
           'flat': ', channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, '
                   'use_global_device_ids'}


def region(dtype, reducer):
    scalar = tensor(dtype, [])
    return (f' ({{\n^bb0(%p: {scalar}, %q: {scalar}):\n  %s = stablehlo.{reducer} %p, %q : {scalar}\n'
            f'  stablehlo.return %s : {scalar}\n}})')


def fold(reducer, arrays):
    """From the left, in the element type; ml_dtypes' maximum and numpy's agree on what is given."""
    step = {'add': np.add, 'maximum': np.maximum, 'minimum': np.minimum, 'multiply': np.multiply,
            'or': np.bitwise_or, 'and': np.bitwise_and, 'xor': np.bitwise_xor,
            # No commutative reducer: the order of the group is seen.
            'subtract': np.subtract}[reducer]
    total = arrays[0]
    for array in arrays[1:]:
        with np.errstate(all='ignore'):
            total = step(total, array).astype(array.dtype)
    return total


def program(name, attributes, inputs, results, body=''):
    parameters = ', '.join(f'%a{i}: {programs.type_of(x)}' for i, x in enumerate(inputs))
    operands = ', '.join(f'%a{i}' for i in range(len(inputs)))
    types_in = ', '.join(programs.type_of(x) for x in inputs)
    types_out = ', '.join(programs.type_of(x) for x in results)
    count = len(results)
    names = ', '.join(f'%r#{i}' for i in range(count)) if count > 1 else '%r'
    return (f'func.func @main({parameters}) -> ({types_out}) {{\n'
            f"%r{f':{count}' if count > 1 else ''} = \"stablehlo.{name}\"({operands}) <{{{attributes}}}>"
            f'{body} : ({types_in}) -> {types_out if count == 1 else f"({types_out})"}\n'
            f'return {names} : {types_out}\n}}')


def launch(random, grid, dtype, shapes):
    """Operands by device."""
    return [[values(random, dtype, shape) for shape in shapes] for _ in range(grid[0] * grid[1])]


def all_gather(random, grid, dtype, shapes):
    for mode in ('replica', 'both', 'flat'):
        for ids in groupings(random, id_count(mode, grid)):
            for dim in range(len(shapes[0])):
                inputs = launch(random, grid, dtype, shapes)
                expected = [None] * len(inputs)
                for group in device_groups(mode, ids, grid):
                    for device in group:
                        expected[device] = [
                            np.concatenate([inputs[d][i] for d in group], axis=dim)
                            for i in range(len(shapes))]
                attributes = f'all_gather_dim = {dim} : i64, replica_groups = {matrix(ids)}{CHANNEL[mode]}'
                yield Case(grid, program('all_gather', attributes, inputs[0], expected[0]), inputs,
                           expected)


def reducers(dtype):
    if dtype == 'i1':
        return ['or', 'and', 'xor']
    if dtype not in ADDS:
        return ['maximum']
    if DTYPES[dtype].kind == 'c':
        return ['add', 'subtract']
    return ['add', 'subtract', 'maximum'] + (['xor'] if dtype in programs.INTEGERS else [])


def reductions(random, grid, dtype, name):
    counter = itertools.count()
    for mode in ('replica', 'both', 'flat'):
        count = id_count(mode, grid)
        for ids in groupings(random, count) if name == 'reduce_scatter' else ragged_groupings(random, count):
            names = reducers(dtype)
            yield mode, ids, names[next(counter) % len(names)]


def all_reduce(random, grid, dtype, shapes):
    for mode, ids, reducer in reductions(random, grid, dtype, 'all_reduce'):
        inputs = launch(random, grid, dtype, shapes)
        expected = [None] * len(inputs)
        for group in device_groups(mode, ids, grid):
            for device in group:
                expected[device] = [fold(reducer, [inputs[d][i] for d in group])
                                    for i in range(len(shapes))]
        attributes = f'replica_groups = {matrix(ids)}{CHANNEL[mode]}'
        yield Case(grid, program('all_reduce', attributes, inputs[0], expected[0],
                                 region(dtype, reducer)), inputs, expected)


def collective_reduce(random, grid, dtype, shapes):
    for mode, ids, reducer in reductions(random, grid, dtype, 'collective_reduce'):
        ids = ids[:max(1, len(ids) - 1)]  # devices in no group
        inputs = launch(random, grid, dtype, shapes)
        expected = [[np.zeros_like(x) for x in device] for device in inputs]
        for group in device_groups(mode, ids, grid):
            expected[group[0]] = [fold(reducer, [inputs[d][i] for d in group])
                                  for i in range(len(shapes))]
        attributes = f'replica_groups = {matrix(ids)}{CHANNEL[mode]}'
        yield Case(grid, program('collective_reduce', attributes, inputs[0], expected[0],
                                 region(dtype, reducer)), inputs, expected)


def reduce_scatter(random, grid, dtype, shapes):
    for mode, ids, reducer in reductions(random, grid, dtype, 'reduce_scatter'):
        groups = device_groups(mode, ids, grid)
        size = len(groups[0])
        for dim in range(len(shapes[0])):
            shape = list(shapes[0])
            shape[dim] *= size
            inputs = launch(random, grid, dtype, [shape])
            expected = [None] * len(inputs)
            for group in groups:
                total = fold(reducer, [inputs[d][0] for d in group])
                for part, device in zip(np.split(total, size, axis=dim), group):
                    expected[device] = [part]
            attributes = (f'scatter_dimension = {dim} : i64, replica_groups = {matrix(ids)}'
                          f'{CHANNEL[mode]}')
            yield Case(grid, program('reduce_scatter', attributes, inputs[0], expected[0],
                                     region(dtype, reducer)), inputs, expected)


def cross_replica_sum(random, grid, dtype, shapes):
    if dtype not in ADDS:
        return
    for ids in ragged_groupings(random, grid[0]):
        inputs = launch(random, grid, dtype, shapes[:1])
        expected = [None] * len(inputs)
        for group in device_groups('replica', ids, grid):
            for device in group:
                expected[device] = [fold('add', [inputs[d][0] for d in group])]
        yield Case(grid, program('cross-replica-sum', f'replica_groups = {matrix(ids)}', inputs[0],
                                 expected[0]), inputs, expected)


def all_to_all(random, grid, dtype, shapes):
    for mode in ('replica', 'partition'):
        for ids in groupings(random, id_count(mode, grid)):
            size = len(ids[0])
            rank = len(shapes[0])
            for split, concat in itertools.product(range(rank), repeat=2):
                full = []
                for shape in shapes:
                    shape = list(shape)
                    shape[split] *= size
                    full.append(shape)
                inputs = launch(random, grid, dtype, full)
                expected = [None] * len(inputs)
                for group in device_groups(mode, ids, grid):
                    for position, device in enumerate(group):
                        expected[device] = [
                            np.concatenate([np.split(inputs[d][i], size, axis=split)[position]
                                            for d in group], axis=concat)
                            for i in range(len(shapes))]
                attributes = (f'split_dimension = {split} : i64, concat_dimension = {concat} : i64, '
                              f'split_count = {size} : i64, replica_groups = {matrix(ids)}{CHANNEL[mode]}')
                yield Case(grid, program('all_to_all', attributes, inputs[0], expected[0]), inputs,
                           expected)


def collective_broadcast(random, grid, dtype, shapes):
    for mode in ('replica', 'partition'):
        for ids in ragged_groupings(random, id_count(mode, grid)):
            ids = ids[:max(1, len(ids) - 1)]  # devices in no group
            for is_dynamic in (False, True):
                inputs = launch(random, grid, dtype, shapes)
                expected = [[np.zeros_like(x) for x in device] for device in inputs]
                root = random.integers(0, min(map(len, ids))) if is_dynamic else 0
                for group in device_groups(mode, ids, grid):
                    for device in group:
                        expected[device] = inputs[group[root]]
                attributes = f'replica_groups = {matrix(ids)}{CHANNEL[mode]}'
                if is_dynamic:
                    attributes += ', has_dynamic_root'
                    inputs = [device + [np.array([root], np.int32)] for device in inputs]
                yield Case(grid, program('collective_broadcast', attributes, inputs[0], expected[0]),
                           inputs, expected)


def collective_permute(random, grid, dtype, shapes):
    for mode in ('replica', 'partition'):
        count = id_count(mode, grid)
        ring = [[i, (i + 1) % count] for i in range(count)]
        order = [int(x) for x in random.permutation(count)]
        some = [[i, order[i]] for i in range(0, count, 2)]
        for pairs in (ring, some, ring[:-1] or ring, []):
            inputs = launch(random, grid, dtype, shapes[:1])
            expected = [[np.zeros_like(device[0])] for device in inputs]
            for source, target in device_groups(mode, pairs, grid):
                expected[target] = inputs[source]
            text = matrix(pairs) if pairs else 'dense<> : tensor<0x2xi64>'
            yield Case(grid, program('collective_permute', f'source_target_pairs = {text}{CHANNEL[mode]}',
                                     inputs[0], expected[0]), inputs, expected)


def send_and_recv(random, grid, dtype, shapes):
    for mode in ('replica', 'partition'):
        count = id_count(mode, grid)
        pairs = [[i, (i + 1) % count] for i in range(0, count, 2)]
        inputs = launch(random, grid, dtype, shapes)
        expected = [[np.zeros_like(x) for x in device] for device in inputs]
        for source, target in device_groups(mode, pairs, grid):
            expected[target] = inputs[source]
        handle = 3 if mode == 'partition' else 0
        attributes = (f'channel_handle = #stablehlo.channel_handle<handle = {handle}, type = 1>, '
                      f'source_target_pairs = {matrix(pairs)}')
        types = ', '.join(programs.type_of(x) for x in inputs[0])
        names = [f'%a{i}' for i in range(len(shapes))]
        parameters = ', '.join(f'{n}: {programs.type_of(x)}' for n, x in zip(names, inputs[0]))
        results = ', '.join(f'%r#{i}' for i in range(len(shapes)))
        text = (f'func.func @main({parameters}) -> ({types}) {{\n'
                f'%t = stablehlo.create_token : !stablehlo.token\n'
                f'%s = "stablehlo.send"({", ".join(names)}, %t) <{{{attributes}}}> : '
                f'({types}, !stablehlo.token) -> !stablehlo.token\n'
                f'%r:{len(shapes) + 1} = "stablehlo.recv"(%s) <{{{attributes}}}> : '
                f'(!stablehlo.token) -> ({types}, !stablehlo.token)\n'
                f'return {results} : {types}\n}}')
        yield Case(grid, text, inputs, expected)


COLLECTIVES = [all_gather, all_reduce, all_to_all, collective_broadcast, collective_permute,
               collective_reduce, cross_replica_sum, reduce_scatter, send_and_recv]
VARIADIC = {all_gather, all_reduce, all_to_all, collective_broadcast, collective_reduce, send_and_recv}


def to_bytes(array):
    if NAMES[array.dtype] in ('i2', 'i4', 'ui2', 'ui4'):
        array = array.astype(np.int8)
    return np.ascontiguousarray(array).tobytes()


def run(folder, cases):
    """Runs all cases; the outputs by case and device, as bytes, or the error."""
    entries = []
    for n, case in enumerate(cases):
        (folder / f'{n}.mlir').write_text(case.text)
        devices = []
        for d, arrays in enumerate(case.inputs):
            devices.append([])
            for k, array in enumerate(arrays):
                (folder / f'{n}.{d}.in{k}').write_bytes(to_bytes(array))
                devices[-1].append({'dtype': NAMES[array.dtype], 'dims': list(array.shape),
                                    'file': f'{n}.{d}.in{k}'})
        entries.append({'program': f'{n}.mlir', 'replicas': case.grid[0], 'partitions': case.grid[1],
                        'inputs': devices})
    (folder / 'cases.json').write_text(json.dumps(entries))
    subprocess.run([BATCH, folder], check=True, timeout=300)
    return json.loads((folder / 'results.json').read_text())


def check(folder, cases):
    assert cases
    results = run(folder, cases)
    assert len(results) == len(cases)
    for case, result in zip(cases, results):
        assert 'error' not in result, f"{result['error']}\n{case.text}"
        for device, (outputs, expected) in enumerate(zip(result['outputs'], case.expected)):
            assert len(outputs) == len(expected)
            for output, array in zip(outputs, expected):
                where = f'device {device} of {case.grid}\n{case.text}'
                assert output['dtype'] == NAMES[array.dtype], where
                assert output['dims'] == list(array.shape), where
                got = np.frombuffer((folder / output['file']).read_bytes(), array.dtype)
                assert to_bytes(got) == to_bytes(array), \
                    f'{got} is not\n{array.reshape(-1)}\n{where}'


@pytest.mark.parametrize('grid', GRIDS, ids=lambda grid: f'{grid[0]}x{grid[1]}')
@pytest.mark.parametrize('collective', COLLECTIVES, ids=lambda f: f.__name__)
def test_groupings(tmp_path, collective, grid):
    """Every way of grouping, on f32 and i32, one operand and two, zero sizes."""
    random = np.random.default_rng(1)
    shapes = [[[2, 3]], [[0, 3]]] + ([[[1, 2], [3, 2]]] if collective in VARIADIC else [])
    check(tmp_path, [case for dtype in ('f32', 'i32') for shape in shapes
                     for case in collective(random, grid, dtype, shape)])


@pytest.mark.parametrize('collective', COLLECTIVES, ids=lambda f: f.__name__)
@pytest.mark.parametrize('grid', [(4, 1), (1, 4), (2, 2)], ids=lambda grid: f'{grid[0]}x{grid[1]}')
def test_dtypes(tmp_path, collective, grid):
    """Every dtype, on four devices."""
    random = np.random.default_rng(2)
    check(tmp_path, [case for dtype in MOVABLE for case in collective(random, grid, dtype, [[3, 2]])])
