# SPDX-License-Identifier: Apache-2.0
"""Data parallelism: one model on all ranks of a process group, each with its part of the batch.

    from hekla import data_parallel, process_group
    group = process_group.init()
    buckets = data_parallel.GradientBuckets(group, parameters)
    gradients = buckets.all_reduce(gradients)          # averages over the ranks

Parameters and gradients are trees (dicts, lists, tuples, what JAX knows as such) of NumPy or JAX
arrays. Their bits depend on the ranks' gradients alone, not on buckets and times
(runtime/process_group/data_parallel/). A rank that fails in between ends the others' calls at once.
"""
import contextlib
import ctypes
import operator

import numpy as np

from hekla import _process_group as native
from hekla.checkpoint import _arrays, _tree
from hekla.process_group import (GroupError, array_of, as_given, dtype_number, milliseconds, op_number,
                                 raise_as_python, view_of)


# Of this package's plugins, which copy what they are given (backends/pjrt/transfer_slots.cc).
_PLATFORMS = ('vulkan', 'tbb', 'reference')


def _is_array(node):
    return hasattr(node, 'shape') and hasattr(node, 'dtype')


def _call(name, *arguments):
    try:
        native.call('buckets_' + name, *arguments)
    except GroupError as error:
        raise_as_python(error)


@contextlib.contextmanager
def _refusing(group, call):
    """Around what this rank checks before a call that all make: when it fails the others hear of it."""
    try:
        yield
    except Exception as error:
        group.refuse(call, str(error))
        raise


def _copies(likes_and_views):
    """Arrays as given of views that the next step writes: copied once where the platform reads what it is given and
    does not keep it, as Hekla's own do, and jaxlib's CPU, which keeps what is aligned."""
    made, awaited = [], []
    for like, view in likes_and_views:
        platform = next(iter(like.devices())).platform if hasattr(like, 'devices') else None
        if platform in _PLATFORMS:
            made.append(as_given(like, view))
            awaited.append(made[-1])
        else:
            made.append(as_given(like, _aligned_copy(view)))
    if awaited:
        import jax
        jax.block_until_ready(awaited)
    return made


def _aligned_copy(view, alignment=64):
    memory = np.empty(view.nbytes + alignment, np.uint8)
    first = -memory.ctypes.data % alignment
    copy = memory[first:first + view.nbytes].view(view.dtype).reshape(view.shape)
    copy[...] = view
    return copy


class _Handle:
    """Ends with the last view of its memory."""

    def __init__(self, pointer):
        self.pointer = pointer

    def __del__(self):
        native.library().hekla_group_buckets_destroy(self.pointer)


class _Buckets:
    """What both have: arrays by the names of their leaves."""

    def __init__(self, group, parameters, op, factor, bucket_bytes, first_bucket_bytes, missing_is_zero, timeout,
                 states=None):
        with _refusing(group, 'buckets of parameters'):
            leaves, _ = _tree.flatten(parameters, _is_array, 'the parameters')
            numbers = [dtype_number(np.dtype(leaf.dtype)) for leaf in leaves.values()]
            operation = op_number(op)
            state_numbers = (ctypes.c_int32 * len(states or ()))(
                *(0 if dtype is None else dtype_number(np.dtype(dtype)) for dtype in states or ()))
            given = (native.Parameter * len(leaves))(
                *((name.encode(), int(np.prod(leaf.shape, dtype=np.int64)), number)
                  for (name, leaf), number in zip(leaves.items(), numbers)))
            options = native.BucketOptions(first_bucket_bytes, bucket_bytes, factor, milliseconds(timeout), operation,
                                           missing_is_zero, states is not None, len(state_numbers), state_numbers)
        self.group, self._like = group, parameters
        self._names = {name: i for i, name in enumerate(leaves)}
        made = ctypes.c_void_p()
        _call('create', group.handle, given, len(leaves), ctypes.byref(options), ctypes.byref(made))
        self._handle = _Handle(made)
        self._gradients = self._views('gradient', leaves)
        self._has_watched = False

    @property
    def bucket_count(self):
        return native.library().hekla_group_buckets_count(self._handle.pointer)

    def _views(self, what, leaves):
        views = {}
        for name, leaf in leaves.items():
            array = native.Array()
            _call(what, self._handle.pointer, self._names[name], ctypes.byref(array))
            views[name] = view_of(array, leaf.dtype, leaf.shape, self._handle)
        return views

    def ready(self, name, gradient):
        """The gradient of the leaf of that name ("layer/weight") of this step has come."""
        given = np.asarray(gradient)
        self._check(name, given)
        # Its memory may be on its way to the others already.
        _call('claim', self._handle.pointer, self._names[name])
        self._gradients[name][...] = given
        _call('ready', self._handle.pointer, self._names[name])

    def _check(self, name, gradient):
        if name not in self._names:
            raise ValueError(f'there is no parameter {name!r}: ' + ', '.join(self._names))
        own = self._gradients[name]
        if gradient.shape != own.shape or gradient.dtype != own.dtype:
            raise ValueError(f'the gradient of {name} is {gradient.dtype}{gradient.shape}, not {own.dtype}{own.shape}')

    @contextlib.contextmanager
    def _abandoning(self):
        """What fails here ends the step on all ranks, which may begin another one."""
        try:
            yield
        except Exception as error:
            _call('abandon', self._handle.pointer, str(error).encode())
            raise

    def _all_ready(self, gradients):
        """In the order in which they are first used backwards. What is wrong is said to the others too."""
        with self._abandoning():
            leaves, _ = _tree.flatten(gradients, _is_array, 'the gradients')
            for name, leaf in leaves.items():
                self._check(name, leaf)
            for name in reversed(self._names):
                if name in leaves:
                    self.ready(name, leaves[name])

    def watch(self, parameters):
        """The parameters, for the function that jax.grad differentiates: each gradient comes here while the
        backward pass goes on, also inside of jax.jit. What jax.grad returns is this rank's own."""
        import jax
        from jax.experimental import io_callback
        self._has_watched = True

        def watched(name, leaf):
            def arrive(gradient):
                self.ready(name, gradient)
                return np.int32(0)

            @jax.custom_vjp
            def identity(x):
                return x

            def forward(x):
                return x, None

            def backward(_, gradient):
                io_callback(arrive, jax.ShapeDtypeStruct((), np.int32), gradient)
                return (gradient,)
            identity.defvjp(forward, backward)
            return identity(leaf)
        return _tree.rebuild(parameters, _is_array, watched)

    def _wait_for_watched(self):
        if self._has_watched:
            import jax
            with self._abandoning():
                jax.effects_barrier()


class GradientBuckets(_Buckets):
    """Reduces the gradients of parameters like `parameters`, in buckets, as they come."""

    def __init__(self, group, parameters, op='avg', factor=1.0, bucket_bytes=25 << 20, first_bucket_bytes=1 << 20,
                 missing_is_zero=False, timeout=None):
        super().__init__(group, parameters, op, factor, bucket_bytes, first_bucket_bytes, missing_is_zero, timeout)

    def all_reduce(self, gradients):
        """The tree of reduced gradients: NumPy's are memory of the buckets, which the next step
        writes, JAX's are arrays of their own. Leaves may be missing where missing_is_zero."""
        self._all_ready(gradients)
        return self.finish(gradients)

    def finish(self, like=None):
        """Waits for what `ready` and `watch` have brought; the same tree, of the leaves of `like`."""
        self._wait_for_watched()
        _call('finish', self._handle.pointer)

        like = self._like if like is None else like
        leaves, _ = _tree.flatten(like, _is_array, 'the gradients')
        given = {name: leaf for name, leaf in leaves.items() if not isinstance(leaf, np.ndarray)}
        copies = dict(zip(given, _copies((leaf, self._gradients[name]) for name, leaf in given.items())))
        return _tree.rebuild(like, _is_array, lambda name, leaf: copies.get(name, self._gradients[name]))


class ShardedOptimizer(_Buckets):
    """An optimizer whose state is divided among the ranks: ZeRO, its first stage.

    `update(step, parameters, gradients, *states)` gets flat NumPy arrays, the same part of each, and
    treats each element by itself. It writes parameters and states in place, or returns new ones, of NumPy or
    JAX: `parameters, *states`. `states` are their dtypes, None that of the parameter; they are zeros at first.
    All ranks begin with the parameters of rank 0.
    """

    def __init__(self, group, parameters, update, states=(None,), op='avg', factor=1.0, bucket_bytes=25 << 20,
                 first_bucket_bytes=1 << 20, missing_is_zero=False, timeout=None):
        super().__init__(group, parameters, op, factor, bucket_bytes, first_bucket_bytes, missing_is_zero, timeout,
                         states)
        self._update, self._states = update, list(states)
        leaves, _ = _tree.flatten(parameters, _is_array, 'the parameters')
        self._parameters = self._views('parameter', leaves)
        self.set_parameters(parameters)
        self._numbers = {dtype_number(leaf.dtype): leaf.dtype for leaf in self._parameters.values()}
        for dtype in self._states:
            if dtype is not None:
                self._numbers[dtype_number(np.dtype(dtype))] = np.dtype(dtype)

    def set_parameters(self, parameters, root=0):
        """Of the root's, on all ranks."""
        with _refusing(self.group, 'broadcast of parameters'):
            root = operator.index(root)
            leaves = self._leaves_of_all(parameters, 'the parameters')
            for name, own in self._parameters.items():
                own[...] = np.asarray(leaves[name])
        _call('broadcast_parameters', self._handle.pointer, root)

    def _leaves_of_all(self, tree, what):
        leaves, _ = _tree.flatten(tree, _is_array, what)
        for name, own in self._parameters.items():
            if name not in leaves:
                raise ValueError(f'{what} have no {name}')
            if leaves[name].shape != own.shape:
                raise ValueError(f'{name} of {what} has shape {leaves[name].shape}, not {own.shape}')
        return leaves

    def parameters(self):
        """The tree: copies, on the devices of the parameters that it was made with."""
        leaves, _ = _tree.flatten(self._like, _is_array, 'the parameters')
        copies = dict(zip(leaves, _copies((leaf, self._parameters[name]) for name, leaf in leaves.items())))
        return _tree.rebuild(self._like, _is_array, lambda name, _: copies[name])

    def step(self, gradients=None):
        """The new parameters, from gradients as given or as `ready` and `watch` have brought them."""
        if gradients is not None:
            self._all_ready(gradients)
        self._wait_for_watched()
        raised = []

        @native.UPDATE
        def update(context, shard):
            del context
            try:
                self._update_shard(shard.contents)
                return 0
            except BaseException as error:  # pylint: disable=broad-except  # crosses C
                raised.append(error)
                native.library().hekla_group_set_error(f'{type(error).__name__}: {error}'.encode())
                return native.UNKNOWN
        try:
            _call('step', self._handle.pointer, update, None)
        except GroupError:
            if raised:
                raise raised[0] from None
            raise
        return self.parameters()

    def _update_shard(self, shard):
        count = shard.parameters.count
        if count == 0:
            return
        arrays = [shard.parameters, shard.gradients, *shard.states[:shard.state_count]]
        views = [view_of(x, self._numbers[x.dtype], (count,), self._handle) for x in arrays]
        made = self._update(shard.step, *views)
        if made is None:
            return
        if len(made) != 1 + len(self._states):
            raise ValueError(f'the update returned {len(made)} arrays, not the parameters and {len(self._states)} '
                             'of state')
        for own, new in zip([views[0], *views[2:]], made):
            own[...] = np.asarray(new)

    @property
    def steps(self):
        return native.library().hekla_group_buckets_steps(self._handle.pointer)

    @property
    def state_bytes(self):
        """Of this rank."""
        return native.library().hekla_group_buckets_state_bytes(self._handle.pointer)

    def state(self):
        """{'step': ..., 'parameters': tree, 'states': [tree, ...]}, whole, on all ranks: for checkpoints,
        from which any number of ranks may go on. All ranks call."""
        states = []
        for which, dtype in enumerate(self._states):
            with _refusing(self.group, 'all_gather of state'):
                arrays = {name: np.empty(own.shape, own.dtype if dtype is None else dtype)
                          for name, own in self._parameters.items()}
            _call('gather_state', self._handle.pointer, which,
                  (native.Array * len(arrays))(*map(array_of, arrays.values())))
            states.append(_tree.rebuild(self._like, _is_array, lambda name, _, arrays=arrays: arrays[name]))
        parameters = _tree.rebuild(self._like, _is_array, lambda name, _: self._parameters[name].copy())
        return {'step': self.steps, 'parameters': parameters, 'states': states}

    def set_state(self, state):
        """What `state` gave, on all ranks."""
        with _refusing(self.group, 'broadcast of parameters'):
            for which, tree in enumerate(state['states']):
                leaves = self._leaves_of_all(tree, 'the arrays of state')
                arrays = [np.ascontiguousarray(np.asarray(leaves[name])) for name in self._names]
                _call('set_state', self._handle.pointer, which, (native.Array * len(arrays))(*map(array_of, arrays)))
            native.library().hekla_group_buckets_set_steps(self._handle.pointer, int(state['step']))
            parameters = state['parameters']
        self.set_parameters(parameters)
