# SPDX-License-Identifier: Apache-2.0
"""Process groups for NumPy and JAX arrays: collectives between the processes of a run.

    from hekla import process_group
    group = process_group.init()                 # under `hekla launch`, torchrun, mpirun, srun ...
    total = group.all_reduce(x)

runtime/process_group/process_group.h says what the calls promise: sums in the order of the ranks, calls
compared before data move, a deadline for each, errors that name the call and the ranks to blame. A
result is a new array, on the device of a JAX array that was given; `out` takes a NumPy array for it.
With wait=False a call returns at once with a Pending. Small calls are cheaper together:

    with group.coalesced():
        sums = [group.all_reduce(x) for x in many]     # each a Pending
    sums = [pending.result() for pending in sums]

A JAX array on one device whose memory is the host's is sent from where it lies; while a call is under
way it may be deleted or donated, which then works on a copy. Other arrays are copied to the host first, and
results to the device. A call waits for the contents of its array.
"""
import contextlib
import ctypes
import functools
import threading

import numpy as np

from hekla import _process_group as native
from hekla.checkpoint import _arrays

GroupError = native.GroupError


@functools.cache
def dtype_number(dtype):
    return native.library().hekla_group_dtype(_arrays.dtype_name(dtype, 'an array').encode())


@functools.cache
def op_number(name):
    number = native.library().hekla_group_reduce_op(name.encode())
    if number < 0:
        raise ValueError(f'there is no reduction {name!r}')
    return number


def raise_as_python(error):
    """ValueError where a call was refused, else the error itself."""
    if error.code != native.INVALID_ARGUMENT:
        raise error
    refused = ValueError(str(error))
    refused.hekla_is_known = getattr(error, 'hekla_is_known', False)
    raise refused from None


def array_of(x):
    """The C structure of a dense NumPy array."""
    return native.Array(x.ctypes.data, x.size, dtype_number(x.dtype))


def milliseconds(seconds):
    return -1 if seconds is None else max(1, round(seconds * 1000))


def as_given(given, result):
    """`result`, as what was given is: a JAX array on the same device, or NumPy's."""
    if isinstance(given, np.ndarray) or not hasattr(given, 'devices'):
        return result
    import jax
    return jax.device_put(result, given.sharding)


class Pending:
    """A call under way."""

    def __init__(self, work, result):
        self._work, self._result = work, result

    def done(self):
        return self._work.test()

    def result(self, timeout=None):
        """Waits, and gives the result of the call."""
        try:
            self._work.wait(milliseconds(timeout))
        except GroupError as error:
            raise_as_python(error)
        return self._result()


def _collective(method):
    """Of calls that all ranks make: when this one refuses its arguments, the others hear of it."""
    @functools.wraps(method)
    def call(self, *args, wait=True, **kwargs):
        try:
            arguments, kept, result = method(self, *args, **kwargs)
            pending = self._begin(method.__name__, arguments, kept, result)
        except Exception as error:
            if not getattr(error, 'hekla_is_known', False):
                self._group.refuse(method.__name__, str(error))
            raise
        return pending.result() if wait and not self._is_in_block() else pending
    return call


class ProcessGroup:
    """Made by `init` and `subgroup`."""

    def __init__(self, group):
        self._group = group
        lib = native.library()
        self.rank, self.size = lib.hekla_group_rank(group.handle), lib.hekla_group_size(group.handle)
        self._blocks = set()    # the threads that are in one

    @property
    def handle(self):
        return self._group.handle

    def _is_in_block(self):
        return threading.get_ident() in self._blocks

    @contextlib.contextmanager
    def coalesced(self, timeout=None):
        """The collectives that this thread calls in the block go when it ends, small ones as one exchange; then they
        are waited for, no longer than `timeout`. In the block they return a Pending, whatever `wait` says, whose
        result is there after it. None is made where one is refused or an exception leaves the block."""
        me = threading.get_ident()
        try:
            self._group.coalesce_begin()
        except GroupError as error:
            raise_as_python(error)
        self._blocks.add(me)
        try:
            yield self
        except BaseException as error:
            # What the library has refused it knows, and keeps the first reason.
            self._group.refuse('coalesced calls', f'{type(error).__name__}: {error}')
            raise
        finally:
            self._blocks.discard(me)
            together = self._group.coalesce_end(milliseconds(timeout))
        try:
            together.wait()
        except GroupError as error:
            raise_as_python(error)

    def _begin(self, name, arguments, kept, result):
        """Errors of the library, which the group knows, are marked as such."""
        try:
            work = (self._group.start(name, *arguments) if kept is None
                    else self._group.start(name, *arguments, keeps=kept))
        except GroupError as error:
            error.hekla_is_known = True
            raise_as_python(error)
        return Pending(work, result)

    def _run(self, name, arguments, kept, result, wait):
        pending = self._begin(name, arguments, kept, result)
        return pending.result() if wait else pending

    def _dense(self, x):
        if hasattr(x, 'addressable_data') and len(x.sharding.device_set) == 1:
            # Of the same buffer: JAX keeps a view of an array as long as the array, and nothing could
            # be donated any more.
            x = x.addressable_data(0)
        return np.ascontiguousarray(np.asarray(x)).reshape(np.shape(x))

    def _out(self, out, shape, dtype):
        if out is None:
            return np.empty(shape, dtype)
        if not isinstance(out, np.ndarray) or not out.flags.c_contiguous or not out.flags.writeable:
            raise ValueError('out is a dense NumPy array that can be written')
        if out.shape != tuple(shape) or out.dtype != dtype:
            raise ValueError(f'out is {out.dtype}{out.shape}, not {dtype}{tuple(shape)}')
        return out

    def _rows(self, x):
        """Of the first dimension, for each rank."""
        if x.ndim == 0 or x.shape[0] % self.size:
            raise ValueError(f'the first dimension of {x.shape} in {self.size} equal parts')
        return x.shape[0] // self.size

    @_collective
    def broadcast(self, x, root, out=None, timeout=None):
        """The root's x; the others' says shape and dtype."""
        if self.rank == root:
            dense = self._dense(x)
            whole = self._out(out, dense.shape, dense.dtype)
            whole[...] = dense
        else:
            whole = self._out(out, np.shape(x), x.dtype if hasattr(x, 'dtype') else np.asarray(x).dtype)
        return (array_of(whole), root, milliseconds(timeout)), [whole], lambda: as_given(x, whole)

    @_collective
    def all_reduce(self, x, op='sum', factor=1.0, out=None, timeout=None):
        dense = self._dense(x)
        whole = self._out(out, dense.shape, dense.dtype)
        return ((array_of(whole), array_of(dense), op_number(op), factor, milliseconds(timeout)), [whole, dense],
                lambda: as_given(x, whole))

    @_collective
    def all_gather(self, x, out=None, timeout=None):
        """x of all ranks, with a first dimension more."""
        dense = self._dense(x)
        whole = self._out(out, (self.size, *dense.shape), dense.dtype)
        return (array_of(whole), array_of(dense), milliseconds(timeout)), [whole, dense], lambda: as_given(x, whole)

    @_collective
    def reduce_scatter(self, x, op='sum', factor=1.0, out=None, timeout=None):
        """This rank's rows of the reduction of x."""
        dense = self._dense(x)
        part = self._out(out, (self._rows(dense), *dense.shape[1:]), dense.dtype)
        return ((array_of(part), array_of(dense), op_number(op), factor, milliseconds(timeout)), [part, dense],
                lambda: as_given(x, part))

    @_collective
    def all_to_all(self, x, out=None, timeout=None):
        """Rows for each rank go there; those of all ranks for this one."""
        dense = self._dense(x)
        self._rows(dense)
        whole = self._out(out, dense.shape, dense.dtype)
        return ((array_of(whole), array_of(dense), None, None, milliseconds(timeout)), [whole, dense],
                lambda: as_given(x, whole))

    @_collective
    def barrier(self, timeout=None):
        return (milliseconds(timeout),), None, lambda: None

    def send(self, x, to, tag=0, wait=True, timeout=None):
        dense = self._dense(x)
        return self._run('send', (array_of(dense), to, tag, milliseconds(timeout)), [dense], lambda: None, wait)

    def receive(self, like, source=-1, tag=0, out=None, wait=True, timeout=None):
        """An array with the shape and dtype of `like`, from a rank, -1: from any."""
        whole = self._out(out, np.shape(like), np.dtype(like.dtype))
        return self._run('receive', (array_of(whole), source, tag, milliseconds(timeout)), [whole],
                         lambda: as_given(like, whole), wait)

    def subgroup(self, name, ranks, timeout=None):
        """A group of some ranks, in that order, over the same connections; those alone call."""
        try:
            return ProcessGroup(native.Group.of(self._group, list(ranks), name, milliseconds(timeout)))
        except GroupError as error:
            raise_as_python(error)

    def refuse(self, call, reason):
        """Tells the others of a collective that this rank does not make, which then fails there."""
        self._group.refuse(call, reason)

    def abort(self, reason):
        native.call('abort', self.handle, reason.encode())

    def close(self):
        self._group.close()


def init(method='env://', name='world', engine='auto', timeout=600.0):
    """The group of all processes of a run (runtime/process_group/init.h): env://, tcp://HOST:PORT?rank=R&world_size=N
    or file://DIR. Waits for all, no longer than `timeout`, which is also that of each call."""
    try:
        return ProcessGroup(native.Group.init(method, name, engine, milliseconds(timeout)))
    except GroupError as error:
        raise_as_python(error)


def view_of(array, dtype, shape, owner):
    """The memory of a C array as a NumPy array, which keeps its owner."""
    dtype = np.dtype(dtype)
    if array.count == 0:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * (array.count * dtype.itemsize)).from_address(array.data)
    memory.owner = owner
    return np.frombuffer(memory, dtype=np.uint8).view(dtype).reshape(shape)
