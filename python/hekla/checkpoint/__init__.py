# SPDX-License-Identifier: Apache-2.0
"""Checkpoints for NumPy, JAX and torch: sharded, in the background, safe against crashes, in HDF5.

    manager = hekla.checkpoint.CheckpointManager('run', save_interval=100, max_to_keep=3)
    state = manager.restore(like=state) if manager.latest_step() is not None else state
    for step in range(...):
        state = train(state)
        if manager.reached_preemption(step):
            manager.exit_for_preemption(step, state)
        if manager.should_save(step):
            manager.save_async(step, state)
    manager.close()

A state is a tree of dicts, lists, tuples and pytree nodes whose leaves are arrays of NumPy, JAX
(sharded ones too) or torch, or bool, int, float, str and bytes. A step exists when it is complete:
whatever dies, the newest step that exists loads, bit for bit. The files open in h5py.

restore(like=...) takes jax.ShapeDtypeStruct too; restore(into=state) fills NumPy and torch arrays in
place, without a second copy of the state.

Parts of a step, without a manager: open_step('run')['model/w'][10:20].
"""
from ._arrays import Part
from ._manager import CheckpointManager, RestoreReport, SaveHandle
from ._native import CheckpointError, CorruptError
from ._step import LazyTensor, Step, open_step

__all__ = ['CheckpointError', 'CheckpointManager', 'CorruptError', 'LazyTensor', 'Part',
           'RestoreReport', 'SaveHandle', 'Step', 'open_step']
