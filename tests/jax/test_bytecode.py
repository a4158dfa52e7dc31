# SPDX-License-Identifier: Apache-2.0
"""`hekla compile --emit bytecode` against jaxlib's own MLIR.

jaxlib must read the artifact that we write of each program, at its own version of VHLO and at older
ones, and serialize it to the very bytes that the original gives.
"""
import subprocess

import pytest
from jaxlib.mlir.dialects import stablehlo

from conftest import build_dir
from test_text import (FILES, OTHER_WORDS, PROGRAMS, artifact, context, name,  # noqa: F401
                       original)

pytestmark = pytest.mark.any_platform
# What jaxlib itself cannot read: an operation of a version before 1.10 in the region of one before
# 1.1. It writes the operation's newer version there, which a reader of 1.0 does not know.
NOT_READ_BY_JAXLIB = {'scatter_all': '1.0.0', 'scatter_all.v1.0.0': '1.0.0'}


def has_chlo(path):
    """Operations of CHLO, which no sender leaves in a program, have no form in VHLO."""
    return path.suffix == '.mlir' and 'chlo.' in path.read_text()


def written(path, version, folder):
    file = folder / 'program.mlirbc'
    run = subprocess.run([build_dir() / 'bin' / 'hekla', 'compile', path, '--emit', 'bytecode',
                          '--vhlo', version, '--output', file],
                         capture_output=True, text=True, check=False)
    if run.returncode != 0 and ('needs VHLO 1.' in run.stderr or has_chlo(path)):
        return None
    assert run.returncode == 0, run.stderr
    return file.read_bytes()


@pytest.mark.parametrize('path', [
    pytest.param(path, marks=pytest.mark.quick, id=name(path)) if path in PROGRAMS
    else pytest.param(path, id=name(path)) for path in FILES])
def test_jaxlib_reads_the_same_program(path, context, tmp_path):  # noqa: F811
    reference = artifact(original(path, context))
    current = stablehlo.get_current_version()
    for version in (current, '1.9.0', '1.0.0'):
        data = written(path, version, tmp_path)
        if data is None:
            assert version != current or has_chlo(path)
            continue
        if NOT_READ_BY_JAXLIB.get(path.stem) == version:
            with pytest.raises(ValueError):
                stablehlo.deserialize_portable_artifact(context, data)
            continue
        module = stablehlo.deserialize_portable_artifact(context, data)
        assert module.operation.verify()
        if path.stem not in OTHER_WORDS:
            assert artifact(module) == reference, version
