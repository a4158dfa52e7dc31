# SPDX-License-Identifier: Apache-2.0
"""`hekla compile --emit bytecode` against jaxlib's own MLIR.

jaxlib must read the artifact that we write of each program, at its own version of VHLO and at older
ones, and serialize it to the very bytes that the original gives.
"""
import subprocess

import pytest
from jaxlib.mlir import ir
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


# Groups by the axes of a mesh, and the lists that they are before VHLO 1.16, which jaxlib refuses
# to write them for.
def groups_of(mesh, axis):
    return f'#stablehlo.replica_group_mesh_axes<mesh = {mesh}, axes = [#stablehlo.axis_ref<{axis}>]>'


MESH = ('#stablehlo.mesh<axes = [#stablehlo.mesh_axis<name = "x", size = 2>, '
        '#stablehlo.mesh_axis<name = "y", size = 2>]')
MESH_GROUPS = {
    'named': (groups_of('@mesh', 'name = "y"'), '[[0, 1], [2, 3]]'),
    'own': (groups_of(MESH + '>', 'name = "x"'), '[[0, 2], [1, 3]]'),
    'ids': (groups_of(MESH + ', device_ids = dense<[3, 2, 1, 0]> : tensor<4xi64>>', 'name = "x"'),
            '[[3, 1], [2, 0]]'),
    'part': (groups_of('#stablehlo.mesh<axes = [#stablehlo.mesh_axis<name = "x", size = 4>]>',
                       'name = "x", sub_axis_info = (1)2'), '[[0, 2], [1, 3]]'),
}


def sum_over(groups):
    return f'''module @g {{
  sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
    %r = "stablehlo.all_reduce"(%a) <{{replica_groups = {groups}}}> ({{
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }}) : (tensor<4xf32>) -> tensor<4xf32>
    return %r : tensor<4xf32>
  }}
}}'''


@pytest.mark.parametrize('name', MESH_GROUPS)
def test_groups_by_the_axes_of_a_mesh(name, context, tmp_path):  # noqa: F811
    by_axes, lists = MESH_GROUPS[name]
    file = tmp_path / 'groups.mlir'
    file.write_text(sum_over(by_axes))
    reference = artifact(original(file, context))
    as_lists = artifact(ir.Module.parse(sum_over(f'dense<{lists}> : tensor<2x2xi64>'),
                                        context=context))
    for version, expected in ((stablehlo.get_current_version(), reference), ('1.16.0', reference),
                              ('1.15.0', as_lists), ('1.11.0', as_lists)):
        data = written(file, version, tmp_path)
        module = stablehlo.deserialize_portable_artifact(context, data)
        assert module.operation.verify()
        assert artifact(module) == expected, version
