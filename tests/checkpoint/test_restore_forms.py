# SPDX-License-Identifier: Apache-2.0
"""Restoring what jax.ShapeDtypeStruct describes, and into arrays that are there."""
import textwrap

import ml_dtypes
import numpy as np
import pytest
from processes import run_python

import hekla.checkpoint as checkpoint


def test_arrays_are_filled_in_place(tmp_path):
    rng = np.random.default_rng(1)
    state = {'w': rng.normal(size=(300, 500)), 'half': rng.normal(size=40).astype(ml_dtypes.bfloat16),
             'list': [np.arange(6, dtype=np.int32).reshape(2, 3), 7], 'zero': np.zeros((0, 3))}
    with checkpoint.CheckpointManager(tmp_path) as manager:
        manager.save(1, state)
        strided = np.full((3, 2), -1, np.int32).T
        into = {'w': np.zeros((300, 500)), 'half': np.zeros(40, ml_dtypes.bfloat16),
                'list': [strided, 0], 'zero': np.zeros((0, 3))}
        made, report = manager.restore(into=into, with_report=True)
        assert made['w'] is into['w'] and made['list'][0] is strided and made['list'][1] == 7
        np.testing.assert_array_equal(into['w'], state['w'])
        assert into['half'].tobytes() == state['half'].tobytes()
        np.testing.assert_array_equal(strided, state['list'][0])
        assert report.step == 1 and report.bytes_read >= state['w'].nbytes
        # A box of it.
        rows = np.zeros((10, 500))
        manager.restore(into={'w': checkpoint.Part(rows, (20, 0), (300, 500))}, strict=False)
        np.testing.assert_array_equal(rows, state['w'][20:30])

        def fails(tree, kind, *words):
            with pytest.raises(kind) as error:
                manager.restore(into=tree)
            for word in words:
                assert word in str(error.value), error.value
        before = np.ones((300, 500), np.float32)
        fails({**into, 'w': before}, checkpoint.CheckpointError, '"w"', 'f32', 'f64')
        assert (before == 1).all()
        fails({**into, 'w': np.zeros((300, 5))}, checkpoint.CheckpointError, '300,5', '300,500')
        fails({**into, 'x': np.zeros(3)}, checkpoint.CheckpointError, 'x')
        frozen = np.zeros((300, 500))
        frozen.flags.writeable = False
        fails({**into, 'w': frozen}, ValueError, 'read-only')
        fails({**into, 'w': np.float64(3)}, TypeError, 'float64')
        with pytest.raises(ValueError, match='without'):
            manager.restore(into=into, like=into)


def test_torch_tensors_are_filled_in_place(tmp_path):
    torch = pytest.importorskip('torch')
    state = {'w': torch.arange(200_000, dtype=torch.bfloat16).reshape(400, 500), 'b': torch.ones(3)}
    with checkpoint.CheckpointManager(tmp_path) as manager:
        manager.save(1, state)
        parameter = torch.nn.Parameter(torch.zeros(400, 500, dtype=torch.bfloat16))
        into = {'w': parameter, 'b': torch.zeros(3, 2)[:, 0]}
        made = manager.restore(into=into)
        assert made['w'] is parameter and torch.equal(parameter.detach(), state['w'])
        assert torch.equal(into['b'], state['b'])


def test_described_arrays_of_jax(build, tmp_path):
    text = """
    import numpy as np, jax, jax.numpy as jnp, hekla.checkpoint as checkpoint
    from jax.sharding import NamedSharding, PartitionSpec as P
    mesh = jax.make_mesh((4,), ('x',))
    w = np.arange(48 * 40, dtype=np.float32).reshape(48, 40)
    state = {'w': jax.device_put(w, NamedSharding(mesh, P('x'))), 'b': jnp.arange(5),
             'key': jax.random.key(7), 'n': 3}
    columns = NamedSharding(mesh, P(None, 'x'))
    with checkpoint.CheckpointManager(FOLDER) as manager:
        manager.save(1, state)
        like = jax.eval_shape(lambda: {'w': jnp.zeros((48, 40)), 'b': jnp.zeros(5, int),
                                       'key': jax.random.key(0)})
        like = {**like, 'n': 0, 'w': jax.ShapeDtypeStruct((48, 40), jnp.bfloat16, sharding=columns)}
        made = manager.restore(like=like)
        assert made['w'].sharding == columns and made['w'].dtype == jnp.bfloat16
        np.testing.assert_array_equal(np.asarray(made['w']), w.astype(jnp.bfloat16))
        assert isinstance(made['b'], jax.Array) and made['b'].dtype == jnp.int32 and made['n'] == 3
        np.testing.assert_array_equal(np.asarray(made['b']), np.arange(5))
        assert (jax.random.key_data(made['key']) == jax.random.key_data(state['key'])).all()
        copies = jax.ShapeDtypeStruct((48, 40), jnp.float32, sharding=NamedSharding(mesh, P()))
        made = manager.restore(like={'w': copies}, strict=False)
        assert made['w'].sharding == copies.sharding
        np.testing.assert_array_equal(np.asarray(made['w']), w)
        for bad, words in ((jax.ShapeDtypeStruct((48, 4), jnp.float32), ('48,4', '48,40')),
                           (jax.ShapeDtypeStruct((48, 40), jnp.int4), ('i4', 'f32'))):
            try:
                manager.restore(like={**like, 'w': bad})
            except checkpoint.CheckpointError as error:
                assert all(word in str(error) for word in words), error
            else:
                raise AssertionError('not refused')
        try:
            manager.restore(like={**like, 'b': jax.ShapeDtypeStruct((5,), np.int64)})
        except TypeError as error:
            assert 'int64' in str(error) and 'int32' in str(error)
        else:
            raise AssertionError('not refused')
    """
    text = textwrap.dedent(text).replace('FOLDER', repr(str(tmp_path / 'run')))
    ((code, out),) = run_python(
        build, text, environment={'XLA_FLAGS': '--xla_force_host_platform_device_count=4'})
    assert code == 0, out
