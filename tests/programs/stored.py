# SPDX-License-Identifier: Apache-2.0
"""Runs a stored case by its files alone, through jaxlib, as `hekla run --case` does by Hekla."""
import json

import jax
import numpy as np
from jax._src.interpreters import mlir as jax_mlir
from jaxlib import xla_client
from jaxlib.mlir.dialects import stablehlo

from rules import DTYPES, load_array, load_inputs


def execute(artifact, inputs):
    """-> flat results of the portable artifact on jaxlib's CPU."""
    device = jax.devices('cpu')[0]
    with jax_mlir.make_ir_context() as context:
        module = stablehlo.deserialize_portable_artifact(context, artifact)
        text = jax_mlir.module_to_bytecode(module)
    devices = xla_client.DeviceList((device,))
    options = xla_client.CompileOptions()
    executable = device.client.compile_and_load(text, devices, options)
    return [np.asarray(x) for x in executable.execute([jax.device_put(x, device) for x in inputs])]


def differences(entry, got, folder):
    """What is wrong with one output by the rules of case.json: list of texts, empty if nothing."""
    facts = entry.get('samples', entry)
    if got.dtype != DTYPES[facts['dtype']] or list(got.shape) != facts['shape']:
        return [f'{got.dtype}{got.shape} instead of {facts["dtype"]}{facts["shape"]}']
    problems, flat = [], got.reshape(-1).astype(np.float64)
    if 'file' in entry:
        want = load_array(folder / entry['file'], entry['dtype']).reshape(-1).astype(np.float64)
    else:
        want = np.array(facts['values'], np.float64)
        if abs(flat.sum() - entry['sum']) > entry['sum_rtol'] * entry['abs_sum']:
            problems.append(f'sum {flat.sum()} instead of {entry["sum"]}')
        flat = flat[facts['indices']]
    wrong = ~np.isclose(flat, want, entry['rtol'], entry['atol'], equal_nan=True)
    if wrong.any():
        k = int(np.argmax(wrong))
        problems.append(f'{wrong.sum()} elements, first {flat[k]} instead of {want[k]}')
    return problems


def check(folder):
    """-> list of differences between what is stored and what jaxlib makes of the stored program."""
    case = json.loads((folder / 'case.json').read_text())
    results = execute((folder / case['program']).read_bytes(), load_inputs(folder))
    if len(results) != len(case['outputs']):
        return [f'{len(results)} outputs instead of {len(case["outputs"])}']
    return [f'run from its files: output {i}: {problem}'
            for i, (entry, got) in enumerate(zip(case['outputs'], results))
            for problem in differences(entry, got, folder)]
