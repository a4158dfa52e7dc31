# SPDX-License-Identifier: Apache-2.0
"""CheckpointManager and what it returns; see the package's own words."""
import atexit
import ctypes
import itertools
import json
import os
import signal
import sys
import threading
import weakref

import numpy as np

from . import _arrays, _native, _tree

_STRUCTURE = '__structure__'  # items of ours; names of a state have no level of this form
_KINDS = '__kinds__'

# What the native side reads from or keeps alive: token -> (fetch, arrays).
_sources = {}
_tokens = itertools.count(1)
_lock = threading.Lock()


@_native.READ
def _read(token, offset, into, size):
    """Bytes of an array that is fetched when they are wanted, and kept until it is let go."""
    try:
        source = _sources[token]
        if source[1] is None:
            array = source[0]()
            source[1] = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        ctypes.memmove(into, source[1].ctypes.data + offset, size)
        return 0
    except BaseException as error:  # nothing may pass through C
        _native.library().hekla_checkpoint_set_error(f'{type(error).__name__}: {error}'.encode())
        return 1


@_native.RELEASE
def _release(token):
    with _lock:
        _sources.pop(token, None)


def _keep(fetch, array):
    with _lock:
        token = next(_tokens)
        _sources[token] = [fetch, array]
    return token


class _State:
    """A tree on its way to the native side."""

    def __init__(self, tree, world_size, exchange):
        """`exchange(text)` gives the texts of all ranks."""
        self.handle = _native.handle_of('state_create')
        self.world_size, self.exchange = world_size, exchange
        try:
            self._fill(tree)
        except BaseException:
            self.close()
            raise

    def close(self):
        if self.handle:
            _native.library().hekla_checkpoint_state_destroy(self.handle)
            self.handle = None

    def _fill(self, tree):
        leaves, structure = _tree.flatten(tree, _arrays.is_leaf)
        kinds, tensors = {}, {}
        for name, leaf in leaves.items():
            if _arrays.is_value(leaf):
                self._add_value(name, leaf)
                continue
            tensors[name] = _arrays.describe(leaf, f'"{name}"')
            kind = _arrays.kind_of(leaf)
            if kind != 'numpy':
                kinds[name] = kind
        self._ask_for_parts(tensors)
        self._add_value(_STRUCTURE, structure)
        self._add_value(_KINDS, json.dumps(kinds))
        for name in sorted(tensors, key=lambda text: text.encode()):
            self._add_tensor(name, tensors[name])

    def _ask_for_parts(self, tensors):
        """Fills in the holdings of tensors of which each rank knows its own boxes alone."""
        mine = {name: [(box.start, box.size) for box in tensor.boxes]
                for name, tensor in tensors.items() if tensor.holdings == _arrays.ASK}
        if not mine:
            return
        for name in mine:
            tensors[name].holdings = []
        for rank, text in enumerate(self.exchange(json.dumps(mine))):
            for name, boxes in json.loads(text).items():
                if name in mine:  # what only others have is the saver's to refuse
                    tensors[name].holdings += [(rank, *box) for box in boxes]

    def _add_value(self, name, value):
        key = name.encode()
        if isinstance(value, bool):
            _native.call('state_add_bool', self.handle, key, value)
        elif isinstance(value, int):
            if not -2**63 <= value < 2**63:
                raise OverflowError(f'"{name}" is {value}; whole numbers of 64 bits are kept')
            _native.call('state_add_int', self.handle, key, value)
        elif isinstance(value, float):
            _native.call('state_add_double', self.handle, key, value)
        else:
            data = value.encode() if isinstance(value, str) else bytes(value)
            call = 'state_add_text' if isinstance(value, str) else 'state_add_bytes'
            _native.call(call, self.handle, key, data, len(data))

    def _add_tensor(self, name, tensor):
        rows = []
        for holder, start, size in tensor.holdings or ():
            rows += [holder, *start, *size]
        count = len(tensor.holdings or ())
        _native.call('state_add_tensor', self.handle, name.encode(), tensor.dtype.encode(),
                     len(tensor.shape), _native.int64s(tensor.shape), tensor.spec.encode(),
                     self.world_size, count, _native.int64s(rows))
        for box in tensor.boxes:
            if self._add_held(tensor, box):
                continue
            now = box.fetch() if box.is_mutable or box.is_here else None
            if now is not None:
                token, address = _keep(None, now), now.ctypes.data
                bytes_ = now.nbytes
            else:
                token, address = _keep(box.fetch, None), None
                bytes_ = _bytes_of(tensor, box)
            _native.call('state_add_box', self.handle, _native.int64s(box.start),
                         _native.int64s(box.size), address, bytes_, box.is_mutable, _read,
                         _release, token)


    def _add_held(self, tensor, box):
        """Whether the box is an array on a device of Hekla's, which now keeps its values for us."""
        # Arrays of elements below a byte may lie there in another way than in NumPy.
        if box.address is None or box.is_here or _arrays.is_below_a_byte(tensor.dtype):
            return False
        pointer = _native.hold(box.address)
        if pointer is None:
            return False
        is_hold = ctypes.c_int32()
        _native.call('state_add_held_box', self.handle, _native.int64s(box.start),
                     _native.int64s(box.size), pointer, _bytes_of(tensor, box),
                     ctypes.byref(is_hold))
        return bool(is_hold)


def _bytes_of(tensor, box):
    return int(np.prod(box.size, dtype=np.int64)) * _arrays.numpy_dtype(tensor.dtype).itemsize


class SaveHandle:
    """A save under way. `stage` is queued, staging, writing, waiting-peers, committing, committed,
    failed or skipped."""

    def __init__(self, handle, step):
        self._handle = handle
        self._finalizer = weakref.finalize(
            self, _native.library().hekla_checkpoint_save_destroy, handle)
        self.step = step

    @property
    def stage(self):
        return _native.library().hekla_checkpoint_save_stage(self._handle).decode()

    def progress(self):
        """(bytes that are written, bytes of this rank)."""
        return self._numbers()[:2]

    def times(self):
        """(seconds that the caller stood still, seconds from the call to the end so far known)."""
        return self._numbers()[2:]

    def _numbers(self):
        done, total = ctypes.c_int64(), ctypes.c_int64()
        blocked, all_ = ctypes.c_double(), ctypes.c_double()
        _native.library().hekla_checkpoint_save_progress(
            self._handle, *map(ctypes.byref, (done, total, blocked, all_)))
        return done.value, total.value, blocked.value, all_.value

    def wait(self, timeout=None):
        """Until it is committed (or skipped); raises what went wrong, TimeoutError when it is not
        done in time."""
        _native.call('save_wait', self._handle, -1.0 if timeout is None else timeout, 0)

    def wait_staged(self, timeout=None):
        """Until the arrays of the state may change."""
        _native.call('save_wait', self._handle, -1.0 if timeout is None else timeout, 1)

    def error(self):
        """The exception of a save that failed, else None."""
        try:
            _native.call('save_error', self._handle)
        except Exception as error:
            return error
        return None


class _Memory:
    """Keeps restored memory alive for the arrays over it."""

    def __init__(self, handle):
        self.handle = handle
        weakref.finalize(self, _native.library().hekla_checkpoint_restored_destroy, handle)

    def array(self, tensor, box, dtype, dims):
        data, size = ctypes.c_void_p(), ctypes.c_int64()
        _native.call('restored_data', self.handle, tensor, box, ctypes.byref(data),
                     ctypes.byref(size))
        if size.value == 0:
            return np.empty(dims, dtype)
        memory = (ctypes.c_byte * size.value).from_address(data.value)
        memory._owner = self  # the array's base is this object
        return np.frombuffer(memory, dtype).reshape(dims)


def _target(name, leaf):
    """What is asked for to make a leaf like this one."""
    if _arrays.is_described(leaf):
        where = f'"{name}" of like'
        boxes = {box for box, _ in _arrays.described_boxes(leaf, where)}
        if _arrays._is_key(leaf):
            leaf = _key_data_of(leaf)
            boxes = {((0,) * leaf.ndim, tuple(leaf.shape))}
        target = {'name': name, 'dtype': _arrays.dtype_name(leaf.dtype, where),
                  'shape': list(leaf.shape)}
        if boxes != {((0,) * leaf.ndim, tuple(leaf.shape))}:
            target['boxes'] = [[list(start), list(size)] for start, size in sorted(boxes)]
        return target
    tensor = _arrays.describe(leaf, f'"{name}" of like')
    target = {'name': name, 'dtype': tensor.dtype, 'shape': list(tensor.shape)}
    whole = len(tensor.boxes) == 1 and tensor.boxes[0].size == tensor.shape
    if not whole:
        target['boxes'] = [[list(box.start), list(box.size)] for box in tensor.boxes]
    return target


def _key_data_of(leaf):
    jax = sys.modules['jax']
    return jax.eval_shape(jax.random.key_data, leaf)


def _made_as_described(leaf, arrays):
    """The jax.Array that a jax.ShapeDtypeStruct describes."""
    jax = sys.modules['jax']
    if _arrays._is_key(leaf):
        (array,) = arrays.values()
        impls = []  # only a traced key tells it
        jax.eval_shape(lambda key: impls.append(jax.random.key_impl(key)), leaf)
        return jax.random.wrap_key_data(array, impl=impls[0])
    parts = []
    for box, device in _arrays.described_boxes(leaf, '`like`'):
        parts.append(jax.device_put(arrays[box], device))
        if parts[-1].dtype != leaf.dtype:
            raise TypeError(f'`like` wants {leaf.dtype}, JAX makes {parts[-1].dtype} of it; see '
                            'jax_enable_x64')
    if leaf.sharding is None:
        return parts[0]
    return jax.make_array_from_single_device_arrays(tuple(leaf.shape), leaf.sharding, parts)


def _made_like(leaf, arrays):
    """A leaf of the kind of `leaf` from its boxes: {(start, size): array}."""
    if _arrays.is_described(leaf):
        return _made_as_described(leaf, arrays)
    if isinstance(leaf, _arrays.Part):
        (array,) = arrays.values()
        return _arrays.Part(_made_like(leaf.array, {None: array}), leaf.start, leaf.shape)
    kind = _arrays.kind_of(leaf)
    if kind == 'torch':
        (array,) = arrays.values()
        tensor = _arrays.torch_tensor(array)
        return tensor if leaf.is_meta else tensor.to(leaf.device)
    if kind == 'numpy':
        (array,) = arrays.values()
        return array[()] if isinstance(leaf, np.generic) else array
    jax = sys.modules['jax']
    inner = jax.random.key_data(leaf) if kind != 'jax' else leaf
    shape = tuple(inner.shape)
    parts = []
    for shard in inner.addressable_shards:
        box = _arrays._index_box(shard.index, shape)
        parts.append(jax.device_put(arrays[box], shard.device))
    made = jax.make_array_from_single_device_arrays(shape, inner.sharding, parts)
    return made if kind == 'jax' else jax.random.wrap_key_data(made, impl=kind[4:])


def _made_of_kind(kind, array):
    """A leaf as it was saved, without a model of it."""
    if kind == 'torch':
        import torch  # noqa: F401  it was a tensor of torch
        return _arrays.torch_tensor(array)
    if kind == 'numpy':
        return array
    import jax
    return jax.random.wrap_key_data(array, impl=kind[4:]) if kind != 'jax' else jax.numpy.asarray(
        array)


class RestoreReport:
    """What a restore that is not strict did not find a place for, and what it read."""

    def __init__(self, info):
        self.step = info['step']
        self.missing, self.unexpected = info['missing'], info['unexpected']
        self.mismatched = info['mismatched']
        self.bytes_wanted, self.bytes_read = info['bytes_wanted'], info['bytes_read']

    def __repr__(self):
        return (f'RestoreReport(step={self.step}, missing={self.missing}, '
                f'unexpected={self.unexpected}, mismatched={self.mismatched})')


class CheckpointManager:
    """Saves and restores the state of a training run in the folder `path`.

    A save is due every `save_interval` steps (0: never by itself), every `save_seconds`, at
    `save_steps`, or, with `continuous`, as soon as the last one is done. `max_to_keep` newest steps
    stay (None: all), and those that `keep_period` divides, `keep_best` (dict(metric=, count=,
    mode='max')) or `pin` keep. Step 0 is due too.

    A step that save_async was asked for will be there: `async_queue_size` saves (1 or 2) may be under
    way, and one more waits until one of them is committed, which it hastens (`on_busy` 'wait', as
    Orbax and torch_xla do). join() and close() return when all are committed, and so does the end of
    the program: of the interpreter, by an exception or sys.exit too, and of a process of
    multiprocessing. os._exit and signals that kill leave the steps that were committed before. Whoever
    would rather miss a step than wait for the disk says on_busy='skip': should_save is then False
    while a save is under way, and a save_async that is called all the same saves nothing (the handle's
    stage is 'skipped'). 'replace' drops a save that has not begun. save() always waits.

    With `chkpt_on_preemption` SIGTERM on any process makes all agree upon a step to stop at
    (reached_preemption). A save under way that began at most `preemption_reuse_seconds` before will
    do then, and none is begun that would take longer than what is left of
    `preemption_grace_seconds`.

    Several processes form a group by RANK, WORLD_SIZE and HEKLA_STORE (file:DIR), or by `rank`,
    `world_size` and `store`; they call the same methods for the same steps in the same order.
    A failed save in the background is raised by the next save, join or close.

    NumPy and torch arrays are copied through `staging_bytes` of memory (256 MiB) before save_async
    returns; with a larger state it waits for the disk until the rest has room. As many bytes as the
    state of a process has end that. JAX arrays need none.

    With `save_priority` 'background' the threads that hash, compress and write behind training have
    a low priority, and write no more than `background_bandwidth` bytes per second, so that steps do
    not notice them. None: 64 MiB/s for each core of the machine (shared by LOCAL_WORLD_SIZE
    processes), and what spreads a save over a minute at most; twice as much from every save on that
    comes while one is under way; 0: as fast as it goes. Whoever waits on any process (wait(), join(),
    save(), a preemption) ends that: the rest is written by ordinary threads as fast as it goes. A
    process that is killed meanwhile has the step before. 'normal': threads like others, without a
    rate limit. `bandwidth_limit` bytes per second hold always, for disks that others use too. Compressed
    states have none: coding takes longer than writing.

    Tensors whose names match a pattern of `frozen` ('base/*') lie in files of their own; a step
    that holds the same values takes them over from the step before by hard links. Values are
    compared at every save, so nothing is lost when one changes. `tile_hint` {pattern: sizes} cuts
    tensors into tiles (0: not in that dimension), for meshes that will read other parts.

    `compress` 'zstd' or 'auto', or {pattern: 'zstd', 'auto' or 'none'} of which the first that matches
    counts, compresses tensors of 64 KiB and more; 'auto' where it makes them smaller by a third.
    Other programs with HDF5 then need a plugin (docs/reading_checkpoints.md).

    `verify_after_write` 'sample' or 'all' reads back what was written before the step is committed;
    `check_replicas` 'sample' or 'all' compares what several processes hold of the same box, and the
    save fails, naming tensor and ranks, when they differ.
    """

    def __init__(self, path, save_interval=1, max_to_keep=None, async_queue_size=1,
                 chkpt_on_preemption=True, *, save_seconds=None, save_steps=(), continuous=False,
                 min_interval_seconds=None, keep_period=0, keep_best=None, keep_steps=(),
                 on_busy='wait', overwrite=False, preemption_signals=(signal.SIGTERM,),
                 preemption_grace_seconds=None, preemption_reuse_seconds=None,
                 staging_bytes=None, bandwidth_limit=None, save_priority='background',
                 background_bandwidth=None,
                 continue_on_error=False, metadata=None, rank=None, world_size=None, store=None,
                 group_deadline_seconds=None, frozen=(), tile_hint=None,
                 verify_after_write='none', check_replicas='none', compress=None):
        options = {
            'save_interval': save_interval, 'save_seconds': save_seconds,
            'save_steps': sorted(save_steps), 'continuous': continuous,
            'min_interval_seconds': min_interval_seconds, 'max_to_keep': max_to_keep,
            'keep_period': keep_period, 'keep_best': keep_best, 'keep_steps': sorted(keep_steps),
            'async_queue_size': async_queue_size, 'on_busy': on_busy, 'overwrite': overwrite,
            'preemption_signals': ([int(s) for s in preemption_signals]
                                   if chkpt_on_preemption else []),
            'preemption_grace_seconds': preemption_grace_seconds,
            'preemption_reuse_seconds': preemption_reuse_seconds,
            'continue_on_error': continue_on_error, 'metadata': metadata,
            'staging_bytes': staging_bytes, 'bandwidth_limit': bandwidth_limit,
            'save_priority': save_priority, 'background_bandwidth': background_bandwidth,
            'group_deadline_seconds': group_deadline_seconds, 'frozen': list(frozen),
            'verify_after_write': verify_after_write, 'check_replicas': check_replicas,
            'compress': [list(pair) for pair in ({'*': compress} if isinstance(compress, str)
                                                 else compress or {}).items()],
            'tile_hints': [[pattern, list(tile)] for pattern, tile in (tile_hint or {}).items()],
        }
        if world_size is None and rank is not None:
            raise ValueError('a rank needs its world_size')
        if world_size is None:
            self._world = int(os.environ.get('WORLD_SIZE') or 1)
            self._rank = int(os.environ.get('RANK') or 0) if self._world > 1 else 0
            given = -1
        else:
            self._world, self._rank, given = world_size, rank or 0, world_size
        self._path = os.fspath(path)
        self._lock = threading.Lock()
        self._handle = _native.handle_of(
            'manager_open', os.fsencode(self._path), json.dumps(options).encode(), self._rank,
            given, (store or '').encode())
        # Before the interpreter goes: the threads behind a save call back into it.
        atexit.register(self._at_exit)
        self._pid = os.getpid()
        # Processes of multiprocessing end without atexit; they have this module.
        util = sys.modules.get('multiprocessing.util')
        self._finalizer = util and util.Finalize(None, self._at_exit, exitpriority=0)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close()

    @property
    def path(self):
        return self._path

    @property
    def rank(self):
        return self._rank

    @property
    def world_size(self):
        return self._world

    def _state(self, tree):
        return _State(tree, self._world, lambda text: json.loads(
            _native.text_of('manager_exchange', self._open(), text.encode())))

    def should_save(self, step):
        """Whether the policy wants this step saved."""
        answer = ctypes.c_int32()
        _native.call('manager_should_save', self._open(), step, ctypes.byref(answer))
        return bool(answer.value)

    def save(self, step, state, metrics=None):
        """Saves a tree of arrays and values; returns when the step is committed."""
        made = self._state(state)
        try:
            _native.call('manager_save_now', self._open(), step, made.handle,
                         json.dumps(metrics or {}).encode())
        finally:
            made.close()

    def save_async(self, step, state, metrics=None):
        """As save, but returns a SaveHandle as soon as the arrays may change: NumPy and torch arrays
        are copied first, JAX arrays are held and fetched in the background. Those on Hekla's devices
        and on XLA's CPU may be donated at once: what a launch would consume it then copies. Those on
        other devices may after handle.wait_staged(), not before: the save of a deleted array fails
        and says so."""
        made = self._state(state)
        try:
            handle = _native.handle_of('manager_save', self._open(), step, made.handle,
                                       json.dumps(metrics or {}).encode())
        finally:
            made.close()
        return SaveHandle(handle, step)

    def restore(self, step=None, like=None, *, into=None, strict=True, only=(), renames=(),
                with_report=False):
        """The state of a step, the newest one unless named.

        Without `like` it comes back as it was saved; tensors that were cut come back whole. With
        `like`, a tree of arrays, it comes back in that tree's containers, dtypes, kinds (NumPy, JAX
        with its sharding, torch) and boxes, and only those bytes are read. A jax.ShapeDtypeStruct
        in `like` stands for a JAX array, of its sharding or on the default device. `only` are
        patterns of stored names, `renames` pairs of names. A state that does not fit is a
        CheckpointError, or, when not `strict`, a matter of the report: then leaves that are missing
        stay those of `like`.

        `into`, instead of `like`, is a tree of NumPy arrays, torch tensors in this process's memory
        and values: the arrays are filled in place, read straight into their memory where that is
        contiguous, and must have the stored shapes and dtypes. The tree that is returned has these
        very arrays, with the values of the step. When reading fails, arrays may be half filled; no
        older step is taken instead.
        """
        if into is not None:
            if like is not None or only or renames:
                raise ValueError('`into` goes without `like`, `only` and `renames`')
            return self._restore_into(step, into, strict, with_report)
        request = {'strict': strict, 'only': list(only), 'renames': [list(r) for r in renames]}
        leaves = {}
        if like is not None:
            leaves, _ = _tree.flatten(like, _arrays.is_model, '`like`')
            request['targets'] = [_target(name, leaf) for name, leaf in leaves.items()
                                  if not _arrays.is_value(leaf)]
        memory = _Memory(_native.handle_of('manager_restore', self._open(),
                                           -1 if step is None else step,
                                           json.dumps(request).encode()))
        info = json.loads(_native.text_of('restored_info', memory.handle))
        items = parse_items(info['items'])
        structure = items.pop(_STRUCTURE, None)
        kinds = json.loads(items.pop(_KINDS, '{}'))
        found = {}
        for t, tensor in enumerate(info['tensors']):
            found[tensor['name']] = {
                (tuple(box['start']), tuple(box['dims'])): memory.array(
                    t, b, _arrays.numpy_dtype(box['dtype']), box['dims'])
                for b, box in enumerate(tensor['boxes'])}
        report = RestoreReport(info)
        if like is not None:
            state = _tree.rebuild(like, _arrays.is_model, lambda name, leaf: self._leaf_like(
                name, leaf, found, items, strict, report))
        else:
            state = self._as_saved(found, items, structure, kinds, bool(only or renames))
        return (state, report) if with_report else state

    def _restore_into(self, step, into, strict, with_report):
        from . import _step
        leaves, _ = _tree.flatten(into, _arrays.is_leaf, '`into`')
        places = {name: _arrays.in_place(leaf, f'"{name}" of into')
                  for name, leaf in leaves.items() if not _arrays.is_value(leaf)}
        # No boxes: names and shapes are checked and the step is chosen, by all ranks together.
        request = {'strict': strict, 'targets': [
            {'name': name, 'shape': list(shape), 'boxes': []}
            for name, (_, shape, _) in places.items()]}
        memory = _Memory(_native.handle_of('manager_restore', self._open(),
                                           -1 if step is None else step,
                                           json.dumps(request).encode()))
        info = json.loads(_native.text_of('restored_info', memory.handle))
        items = parse_items(info['items'])
        report = RestoreReport(info)
        found = {tensor['name'] for tensor in info['tensors']}
        with _step.open_step(self._path, report.step) as opened:
            boxes, arrays = {}, {}
            for name in found:
                box, _, array = places[name]
                wanted = _arrays.describe(leaves[name], name).dtype
                if wanted != opened[name].stored_dtype:
                    raise _native.CheckpointError(
                        f'"{name}" of into is {wanted}, step {report.step} has '
                        f'{opened[name].stored_dtype}; `like` casts')
                boxes[name] = box
                if array is not None:
                    arrays[name] = array
            read = opened.read_all(boxes, into=arrays)
            report.bytes_read = opened.bytes_read
        for name in found - arrays.keys():
            leaf = leaves[name].array if isinstance(leaves[name], _arrays.Part) else leaves[name]
            if isinstance(leaf, np.ndarray):
                leaf[...] = read[name]
            else:
                leaf.detach().copy_(_arrays.torch_tensor(read[name]))
        state = _tree.rebuild(into, _arrays.is_leaf, lambda name, leaf: (
            self._leaf_like(name, leaf, {}, items, strict, report)))
        return (state, report) if with_report else state

    @staticmethod
    def _leaf_like(name, leaf, found, items, strict, report):
        if _arrays.is_value(leaf):
            if name in items:
                return items[name]
            if strict:
                raise _native.CheckpointError(f'step {report.step} has no value "{name}"')
            report.missing.append(name)
            return leaf
        return _made_like(leaf, found[name]) if name in found else leaf

    @staticmethod
    def _as_saved(found, items, structure, kinds, is_subset):
        def leaf(name):
            if name in items:
                return items[name]
            (array,) = found[name].values()
            return _made_of_kind(kinds.get(name, 'numpy'), array)

        if structure is None or is_subset:  # not saved by this package, or not all of it
            state = {}
            for name in [*found, *([] if is_subset else items)]:
                *folders, last = name.split('/')
                place = state
                for folder in folders:
                    place = place.setdefault(folder, {})
                place[last] = leaf(name)
            return state
        return _tree.unflatten(structure, leaf)

    def all_steps(self):
        """Committed steps, ascending."""
        return json.loads(_native.text_of('manager_steps', self._open()))

    def latest_step(self):
        """The newest committed step, None when there is none."""
        steps = self.all_steps()
        return steps[-1] if steps else None

    def pin(self, step):
        """Keeps a step from being deleted; unpin lets it go."""
        _native.call('manager_pin', self._open(), step, 1)

    def unpin(self, step):
        _native.call('manager_pin', self._open(), step, 0)

    def reached_preemption(self, step):
        """True at the step that all processes agreed upon after a signal to any of them: save it and
        end with exit code 75, which exit_for_preemption does."""
        answer = ctypes.c_int32()
        _native.call('manager_reached_preemption', self._open(), step, ctypes.byref(answer))
        return bool(answer.value)

    def request_preemption(self):
        """As a signal would."""
        _native.library().hekla_checkpoint_manager_request_preemption(self._open())

    def exit_for_preemption(self, step, state):
        """Saves the state (or waits for a save of this step that is under way) and raises
        SystemExit: 75 when it is committed, so that a launcher starts the job again, else 76."""
        made = self._state(state)
        code = ctypes.c_int32()
        try:
            _native.call('manager_save_for_preemption', self._open(), step, made.handle,
                         ctypes.byref(code))
        finally:
            made.close()
        raise SystemExit(code.value)

    def join(self, timeout=None):
        """Until no save is under way; raises what went wrong in the background."""
        _native.call('manager_wait', self._open(), -1.0 if timeout is None else timeout)

    def close(self):
        """join, and the end of this manager. Also done when the program ends."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is None:
            return
        atexit.unregister(self._at_exit)
        if self._finalizer:
            self._finalizer.cancel()
        if os.getpid() != self._pid:  # a fork: threads and saves are its parent's
            return
        try:
            _native.call('manager_close', handle)
        finally:
            _native.library().hekla_checkpoint_manager_destroy(handle)

    def _at_exit(self):
        try:
            self.close()
        except Exception as error:  # too late to raise
            print(f'hekla.checkpoint: {error}', file=sys.stderr)

    def _open(self):
        if self._handle is None:
            raise ValueError('this CheckpointManager is closed')
        return self._handle


def is_own_item(name):
    """Whether an item is this package's own and not of the state."""
    return name in (_STRUCTURE, _KINDS)


def parse_items(text):
    """{name: value} of a step's items."""
    made = {'bool': bool, 'int': int, 'float': float, 'text': str, 'bytes': bytes.fromhex}
    return {name: made[kind](value) for name, (kind, value) in json.loads(text or '{}').items()}
