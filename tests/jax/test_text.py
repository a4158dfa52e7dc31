# SPDX-License-Identifier: Apache-2.0
"""`hekla compile --emit stablehlo` against jaxlib's own MLIR.

jaxlib must read what we print, and serialize it to the very bytes that the original gives; what
jaxlib prints of it, pretty and generic, must mean the same to us. Programs: tests/programs, and
tests/artifacts with those of $HEKLA_ARTIFACTS.
"""
import importlib.metadata
import subprocess
import sys

import pytest
from jax.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, sdy, stablehlo

from conftest import ROOT, build_dir

sys.path.insert(0, str(ROOT / 'tests' / 'artifacts'))
from artifacts import artifact_files  # noqa: E402

pytestmark = pytest.mark.any_platform
PROGRAMS = sorted((ROOT / 'tests' / 'programs').glob('*/program.mlirbc'))
FILES = PROGRAMS + artifact_files('*.mlir') + artifact_files('*.mlirbc')
# The same program in other words: a list of numbers as a dense array where the sender wrote a
# tensor, elements in place where it wrote a resource.
OTHER_WORDS = ('callbacks_cpu', 'resource_constant')


def emitted(path):
    run = subprocess.run([build_dir() / 'bin' / 'hekla', 'compile', path, '--emit', 'stablehlo'],
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture
def context():
    with mlir.make_ir_context() as context:
        for dialect in (stablehlo, sdy, chlo):
            dialect.register_dialect(context)
        context.allow_unregistered_dialects = False
        yield context


def original(path, context):
    data = path.read_bytes()
    try:
        if path.suffix == '.mlir':
            return ir.Module.parse(data)
        return stablehlo.deserialize_portable_artifact(context, data)
    except Exception as error:  # older releases do not know newer programs
        version = importlib.metadata.version('jaxlib').split('.')
        if [int(number) for number in version[:3]] >= [0, 10, 2]:  # which made them
            raise
        pytest.skip(f'jaxlib does not read the original: {str(error)[:200]}')


def without_locations(module, generic=False):
    return module.operation.get_asm(enable_debug_info=False, print_generic_op_form=generic)


def artifact(module):
    """The module's portable form, where every default is written out."""
    module = ir.Module.parse(without_locations(module))
    return stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version(), True)


def name(path):
    return path.parent.name if path.name == 'program.mlirbc' else path.name


@pytest.mark.parametrize('path', [
    pytest.param(path, marks=pytest.mark.quick, id=name(path)) if path in PROGRAMS
    else pytest.param(path, id=name(path)) for path in FILES])
def test_jaxlib_reads_the_same_program(path, context, tmp_path):
    reference = original(path, context)
    text = emitted(path)
    module = ir.Module.parse(text)
    assert module.operation.verify()
    if path.stem not in OTHER_WORDS:
        assert artifact(module) == artifact(reference)
    back = tmp_path / 'back.mlir'
    for generic in (False, True):
        back.write_text(without_locations(module, generic))
        assert emitted(back) == text, f'jaxlib printed it {"generic" if generic else "pretty"}'
