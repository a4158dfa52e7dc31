# SPDX-License-Identifier: Apache-2.0
"""torch.distributed's backend `hekla`: collectives of CPU tensors through Hekla's process groups.

    import hekla.torch_distributed
    torch.distributed.init_process_group('hekla')

The import registers it; torch then takes it by name for DistributedDataParallel, fully_shard,
DTensor and functional collectives. A group made here is what runtime/process_group/process_group.h
says: sums in the order of the ranks, calls compared before data move, a deadline for each, errors
that name the call and the ranks to blame. Tensors are used where they lie if they are contiguous,
and copied if not. HEKLA_GROUP_ENGINE chooses the transport.
"""
import contextlib
import datetime
import functools
import os
import threading
import time
import weakref

import torch
import torch.distributed as dist

from hekla import _process_group as native

_DTYPES = {
    torch.bool: 'i1', torch.int8: 'i8', torch.int16: 'i16', torch.int32: 'i32', torch.int64: 'i64',
    torch.uint8: 'ui8', torch.uint16: 'ui16', torch.uint32: 'ui32', torch.uint64: 'ui64',
    torch.bfloat16: 'bf16', torch.float16: 'f16', torch.float32: 'f32', torch.float64: 'f64',
    torch.complex64: 'complex<f32>', torch.complex128: 'complex<f64>',
    torch.float8_e4m3fn: 'f8E4M3FN', torch.float8_e4m3fnuz: 'f8E4M3FNUZ', torch.float8_e5m2: 'f8E5M2',
    torch.float8_e5m2fnuz: 'f8E5M2FNUZ', torch.float8_e8m0fnu: 'f8E8M0FNU',
}
_OPS = {'SUM': 'sum', 'AVG': 'avg', 'PRODUCT': 'product', 'MIN': 'min', 'MAX': 'max', 'BAND': 'band',
        'BOR': 'bor', 'BXOR': 'bxor', 'PREMUL_SUM': 'premul_sum'}

_SUM = dist.ReduceOp(dist.ReduceOp.SUM)


@functools.cache
def _dtype(dtype):
    if dtype not in _DTYPES:
        raise ValueError(f'the backend hekla has no {dtype}; it has ' + ', '.join(map(str, _DTYPES)))
    return native.library().hekla_group_dtype(_DTYPES[dtype].encode())


@functools.cache
def _op_number(kind):
    return native.library().hekla_group_reduce_op(_OPS[kind.name].encode())


def _reduction(op):
    """(number, factor) of a ReduceOp."""
    kind, factor = op.__getstate__()
    if isinstance(factor, torch.Tensor):
        if factor.numel() != 1:
            raise ValueError(f'the factor of premul_sum is one number, not a tensor of {tuple(factor.shape)}')
        factor = factor.item()
    return _op_number(kind), 1.0 if factor is None else float(factor)


def _milliseconds(opts):
    """Of a call's options, -1 where they say nothing."""
    timeout = getattr(opts, 'timeout', None)
    if timeout is None or timeout <= datetime.timedelta(0):
        return -1
    return max(1, round(timeout.total_seconds() * 1000))


def _raise(error):
    raised = (ValueError if error.code == native.INVALID_ARGUMENT else dist.DistBackendError)(str(error))
    raised.hekla_is_known = True   # to the group
    raise raised from None


def _collective(method):
    """Of calls that all ranks make: when this one refuses its arguments, the others hear of it."""
    @functools.wraps(method)
    def call(self, *args, **kwargs):
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            if not getattr(error, 'hekla_is_known', False):
                self._group.refuse(method.__name__.lstrip('_'), str(error))
                error.hekla_is_known = True
            self._drop_block(str(error))
            raise
    return call


def _message(method):
    """Of messages: an error ends the block that they are in."""
    @functools.wraps(method)
    def call(self, *args, **kwargs):
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self._drop_block(str(error))
            raise
    return call


def _check(tensor):
    if tensor.device.type != 'cpu' or tensor.layout != torch.strided:
        raise ValueError(f'the backend hekla takes dense CPU tensors, not one of layout {tensor.layout} on '
                         f'{tensor.device}')
    return tensor


def _array(tensor):
    return native.Array(tensor.data_ptr(), tensor.numel(), _dtype(tensor.dtype))


class _Memory:
    """The dense memory of a call: tensors as they lie, or copies, which `unpack` brings back."""

    def __init__(self):
        self.kept = []
        self.back = []  # (tensor, the part of a copy that it gets)

    def read(self, tensor):
        _check(tensor)
        self.kept.append(tensor if tensor.is_contiguous() else tensor.contiguous())
        return _array(self.kept[-1])

    def write(self, tensor, is_read=False):
        _check(tensor)
        dense = tensor
        if not tensor.is_contiguous():
            dense = tensor.contiguous() if is_read else torch.empty_like(
                tensor, memory_format=torch.contiguous_format)
            self.back.append((tensor, dense))
        self.kept.append(dense)
        return _array(dense)

    def read_all(self, tensors):
        """One array of all, one after the other."""
        if len(tensors) == 1:
            return self.read(tensors[0])
        flat = torch.cat([_check(t).detach().reshape(-1) for t in tensors])
        self.kept.append(flat)
        return _array(flat)

    def write_all(self, tensors):
        if len(tensors) == 1:
            return self.write(tensors[0])
        sizes = [_check(t).numel() for t in tensors]
        flat = torch.empty(sum(sizes), dtype=tensors[0].dtype)
        self.kept.append(flat)
        self.back += [(tensor, part.view(tensor.shape)) for tensor, part in zip(tensors, flat.split(sizes))]
        return _array(flat)

    def unpack(self):
        if not self.back:
            return
        with torch.no_grad():
            for tensor, part in self.back:
                tensor.copy_(part)


class HeklaWork(dist.Work):
    """A call under way: some works of the group, then copies to tensors that are not contiguous."""

    def __init__(self, works, memory, outputs):
        super().__init__()
        self._works, self._memory, self._outputs = works, memory, outputs
        self._lock = threading.Lock()
        self._future = None

    def _unpack(self):
        with self._lock:
            memory, self._memory = self._memory, None
            if memory is not None:
                memory.unpack()

    def wait(self, timeout=datetime.timedelta(0)):
        limit = _milliseconds_of_wait(timeout)
        end = time.monotonic() + limit / 1000
        try:
            for work in self._works:
                work.wait(-1 if limit < 0 else max(0, round((end - time.monotonic()) * 1000)))
        except native.GroupError as error:
            _raise(error)
        self._unpack()
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return all(work.test() for work in self._works)

    def exception(self):
        """What it ended with, None as long as it goes on."""
        if not self.is_completed():
            return None
        try:
            self.wait()
        except (ValueError, RuntimeError) as error:
            return error
        return None

    def is_success(self):
        return self.is_completed() and self.exception() is None

    def result(self):
        return self._outputs

    def source_rank(self):
        return self._works[0].source()

    _source_rank = source_rank

    def get_future(self):
        """Of the outputs. It is done on a thread of the group's."""
        with self._lock:
            if self._future is not None:
                return self._future
            done = torch.futures.Future()
            # An error that C++ and Python both see comes of a callback that raises it.
            self._future = done.then(self._finish)
        left = [len(self._works)]

        def on_done(error):  # of one work; Python's lock orders them
            del error  # wait() has it
            left[0] -= 1
            if left[0] == 0:
                done.set_result(None)
        for work in self._works:
            work.then(on_done)
        if not self._works:
            done.set_result(None)
        return self._future

    def _finish(self, future):
        del future
        self.wait()
        return self._outputs


def _milliseconds_of_wait(timeout):
    return -1 if timeout <= datetime.timedelta(0) else max(1, round(timeout.total_seconds() * 1000))


class _StoreOfTorch:
    """A store of c10d's. It is asked and asked again, not waited on: some stores let nobody else in
    while one waits."""

    def __init__(self, store):
        self._store = store

    def get(self, key, seconds):
        end, pause = time.monotonic() + seconds, 0.0005
        while not self._store.check([key]):
            left = end - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(pause, left))
            pause = min(2 * pause, 0.02)
        return self._store.get(key)

    def put(self, key, value):
        if self._store.check([key]):
            return False
        self._store.set(key, value)
        return True


class ProcessGroupHekla(dist.ProcessGroup):
    """A process group of torch.distributed; torch calls it, programs call torch.distributed."""

    def __init__(self, store, rank, size, timeout, name, world=None, ranks=()):
        """`world`: a ProcessGroupHekla over whose connections this one of some of its ranks goes."""
        super().__init__(rank, size)
        self._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        self._store_kept, self._rank, self._size = store, rank, size
        self._group_name = self._group_desc = name
        # Since _start_coalescing, on the thread that called it: works, and milliseconds of collectives.
        self._batch, self._batch_thread, self._batch_limits = None, None, []
        try:
            timeout_ms = max(1, round(timeout.total_seconds() * 1000))
            if world is not None:
                self._group = native.Group.of(world._group, ranks, name, timeout_ms)
            else:
                self._group = native.Group(_StoreOfTorch(store), rank, size, name,
                                           os.environ.get('HEKLA_GROUP_ENGINE', 'auto'), timeout_ms)
        except native.GroupError as error:
            _raise(error)

    # What torch asks of a group; C++ by the names with capitals.
    def getBackendName(self):  # pylint: disable=invalid-name
        return 'hekla'

    name = getBackendName

    def getRank(self):  # pylint: disable=invalid-name
        return self._rank

    rank = getRank

    def getSize(self):  # pylint: disable=invalid-name
        return self._size

    size = getSize

    # C++'s own asks the backends of a group, of which this one has none.
    def setGroupName(self, name):  # pylint: disable=invalid-name
        self._group_name = name

    def getGroupName(self):  # pylint: disable=invalid-name
        return self._group_name

    def setGroupDesc(self, text):  # pylint: disable=invalid-name
        self._group_desc = text

    def getGroupDesc(self):  # pylint: disable=invalid-name
        return self._group_desc

    def shutdown(self):
        global _world  # pylint: disable=global-statement
        if _world is not None and _world() is self:
            _world = None
        self._group.close()

    def abort(self):
        try:
            native.call('abort', self._group.handle, b'by the program')
        except native.GroupError as error:
            if error.code != native.CANCELLED:  # it has ended: nothing to abort
                _raise(error)

    def _start(self, memory, outputs, *calls):
        """The work of calls (name, *arguments) that share their memory."""
        together = not self._is_in_block() and len(calls) > 1 and calls[0][0] not in ('send', 'receive')
        try:
            if together:
                self._group.coalesce_begin()
            try:
                works = [self._group.start(*call, keeps=memory.kept) for call in calls]
            except (native.ctypes.ArgumentError, TypeError) as error:
                # Before the block ends, which does not make the others then.
                self._group.refuse(calls[0][0], str(error))
                error.hekla_is_known = True
                raise
            finally:
                if together:
                    together = self._group.coalesce_end(calls[0][-1])
        except native.GroupError as error:
            _raise(error)
        is_collective = calls and calls[0][0] not in ('send', 'receive')
        return self._made(HeklaWork([together] if together else works, memory, outputs),
                          [calls[0][-1]] if is_collective else [])

    def _made(self, work, limits):
        if self._is_in_block():
            self._batch.append(work)
            self._batch_limits += limits
        return work

    def _is_in_block(self):
        return self._batch is not None and self._batch_thread == threading.get_ident()

    def _parts_of_ranks(self, parts, what):
        if len(parts) != self._size:
            raise ValueError(f'{what} has {len(parts)} parts for {self._size} ranks')
        return parts

    def _parts(self, tensors, what):
        if len(tensors) != self._size:
            raise ValueError(f'{what} has {len(tensors)} tensors for {self._size} ranks')
        if len({(t.dtype, t.numel()) for t in tensors}) > 1:
            raise ValueError(f'{what} has tensors of different dtypes or sizes: '
                             + ', '.join(f'{t.dtype}{tuple(t.shape)}' for t in tensors))
        return tensors

    @_collective
    def broadcast(self, tensors, opts=None):
        memory, root = _Memory(), opts.rootRank if opts else 0
        arrays = [memory.write(t, is_read=True) for t in tensors]
        limit = _milliseconds(opts)
        return self._start(memory, tensors, *(('broadcast', x, root, limit) for x in arrays))

    @_collective
    def allreduce(self, tensors, opts=None):
        if any(t.layout == torch.sparse_coo for t in tensors):
            return self._allreduce_sparse(tensors, opts)
        memory, limit = _Memory(), _milliseconds(opts)
        op, factor = _reduction(opts.reduceOp if opts else _SUM)
        arrays = [memory.write(t, is_read=True) for t in tensors]
        return self._start(memory, tensors, *(('all_reduce', x, x, op, factor, limit) for x in arrays))

    def _allreduce_sparse(self, tensors, opts):
        """Sums of sparse tensors, such as gradients of embeddings: all ranks get the elements of all and add them up
        in the order of the ranks. Waits for the others: how many elements there are says the first of the calls."""
        kind = (opts.reduceOp if opts else _SUM).__getstate__()[0].name
        if len(tensors) != 1 or kind not in ('SUM', 'AVG'):
            raise ValueError('the backend hekla has sums and averages of one sparse tensor, '
                             f'not {kind} of {len(tensors)}')
        if self._is_in_block():
            raise ValueError('an all_reduce of a sparse tensor waits and has no place among coalesced calls')
        x = tensors[0].detach().coalesce()
        _dtype(x.dtype)    # which is refused before anything is sent
        if x.device.type != 'cpu':
            raise ValueError(f'the backend hekla takes CPU tensors, not one on {x.device}')
        gather = functools.partial(self._gather_equal, opts)
        (shapes,) = gather(torch.tensor([x._nnz(), x.sparse_dim(), *x.shape]))
        if any(not torch.equal(shape[1:], shapes[0][1:]) for shape in shapes):
            raise ValueError('all_reduce of sparse tensors of different shapes: ' + ', '.join(
                f'{tuple(shape[2:].tolist())} with {int(shape[1])} sparse dimensions' for shape in shapes))
        counts = [int(shape[0]) for shape in shapes]
        indices = x.indices().new_zeros(x.sparse_dim(), max(counts))
        values = x.values().new_zeros(max(counts), *x.values().shape[1:])
        indices[:, :x._nnz()] = x.indices()
        values[:x._nnz()] = x.values()
        total = None
        for count, index, value in zip(counts, *gather(indices, values)):
            part = torch.sparse_coo_tensor(index[:, :count], value[:count], x.shape, is_coalesced=True,
                                           check_invariants=False)
            total = part if total is None else (total + part).coalesce()
        if kind == 'AVG':
            total = (total / self._size).coalesce()
        with torch.no_grad():
            tensors[0].copy_(total)
        return HeklaWork([], _Memory(), tensors)

    def _gather_equal(self, opts, *tensors):
        """Of each dense tensor those of all ranks."""
        outputs = [t.new_empty(self._size, *t.shape) for t in tensors]
        memory, limit = _Memory(), _milliseconds(opts)
        calls = [('all_gather', memory.write(out), memory.read(t), limit) for out, t in zip(outputs, tensors)]
        self._start(memory, outputs, *calls).wait()
        return outputs

    def allreduce_coalesced(self, tensors, opts=None):
        return self.allreduce(tensors, opts)

    @_collective
    def reduce(self, tensors, opts):
        memory, limit = _Memory(), _milliseconds(opts)
        op, factor = _reduction(opts.reduceOp)
        arrays = [memory.write(t, is_read=True) for t in tensors]
        return self._start(memory, tensors,
                           *(('reduce', x, opts.rootRank, op, factor, limit) for x in arrays))

    @_collective
    def allgather(self, output_lists, inputs, opts=None):
        memory, limit = _Memory(), _milliseconds(opts)
        calls = []
        for outputs, x in zip(output_lists, inputs, strict=True):
            self._parts(outputs, "all_gather's output")
            calls.append(('all_gather', memory.write_all(outputs), memory.read(x), limit))
        return self._start(memory, output_lists, *calls)

    @_collective
    def allgather_coalesced(self, output_lists, inputs, opts=None):
        """output_lists[r][i] gets input i of rank r."""
        for outputs in self._parts_of_ranks(output_lists, "all_gather_coalesced's output"):
            if len(outputs) != len(inputs):
                raise ValueError(f"all_gather_coalesced's output has {len(outputs)} tensors for {len(inputs)} inputs")
        work = self.allgather([list(outputs) for outputs in zip(*output_lists)], inputs, opts)
        work._outputs = output_lists
        return work

    def _allgather_base(self, output, x, opts=None):
        return self.allgather_into_tensor_coalesced([output], [x], opts)

    @_collective
    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        memory, limit = _Memory(), _milliseconds(opts)
        calls = [('all_gather', memory.write(output), memory.read(x), limit)
                 for output, x in zip(outputs, inputs, strict=True)]
        return self._start(memory, outputs, *calls)

    @_collective
    def gather(self, output_lists, inputs, opts):
        memory, limit = _Memory(), _milliseconds(opts)
        calls = []
        for i, x in enumerate(inputs):
            out = None
            if self._rank == opts.rootRank:
                out = memory.write_all(self._parts(output_lists[i], "gather's output"))
            calls.append(('gather', out, memory.read(x), opts.rootRank, limit))
        return self._start(memory, output_lists, *calls)

    @_collective
    def scatter(self, outputs, input_lists, opts):
        memory, limit = _Memory(), _milliseconds(opts)
        calls = []
        for i, output in enumerate(outputs):
            x = None
            if self._rank == opts.rootRank:
                x = memory.read_all(self._parts(input_lists[i], "scatter's input"))
            calls.append(('scatter', memory.write(output), x, opts.rootRank, limit))
        return self._start(memory, outputs, *calls)

    @_collective
    def reduce_scatter(self, outputs, input_lists, opts=None):
        memory, limit = _Memory(), _milliseconds(opts)
        op, factor = _reduction(opts.reduceOp if opts else _SUM)
        calls = []
        for output, inputs in zip(outputs, input_lists, strict=True):
            x = memory.read_all(self._parts(inputs, "reduce_scatter's input"))
            calls.append(('reduce_scatter', memory.write(output), x, op, factor, limit))
        return self._start(memory, outputs, *calls)

    def _reduce_scatter_base(self, output, x, opts=None):
        return self.reduce_scatter_tensor_coalesced([output], [x], opts)

    @_collective
    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        memory, limit = _Memory(), _milliseconds(opts)
        op, factor = _reduction(opts.reduceOp if opts else _SUM)
        calls = [('reduce_scatter', memory.write(output), memory.read(x), op, factor, limit)
                 for output, x in zip(outputs, inputs, strict=True)]
        return self._start(memory, outputs, *calls)

    @_collective
    def alltoall(self, outputs, inputs, opts=None):
        for tensors, what in ((outputs, 'output'), (inputs, 'input')):
            if len(tensors) != self._size:
                raise ValueError(f"all_to_all's {what} has {len(tensors)} tensors for {self._size} ranks")
        memory = _Memory()
        out, x = memory.write_all(outputs), memory.read_all(inputs)
        splits = [[t.numel() for t in tensors] for tensors in (outputs, inputs)]
        return self._all_to_all(memory, outputs, out, x, *splits, opts)

    @_collective
    def alltoall_base(self, output, x, output_splits, input_splits, opts=None):
        memory = _Memory()
        arrays = memory.write(output), memory.read(x)
        splits = [self._splits(tensor, lengths) for tensor, lengths in ((output, output_splits), (x, input_splits))]
        return self._all_to_all(memory, output, *arrays, *splits, opts)

    def _splits(self, tensor, lengths):
        """Elements for each rank, of rows for each."""
        rows = tensor.shape[0] if tensor.dim() else 1
        if not lengths:
            if rows % self._size:
                raise ValueError(f'all_to_all of {tuple(tensor.shape)} in equal parts for {self._size} ranks')
            lengths = [rows // self._size] * self._size
        if len(lengths) != self._size or sum(lengths) != rows:
            raise ValueError(f'all_to_all of {tuple(tensor.shape)} with splits {list(lengths)} for {self._size} ranks')
        row = tensor.numel() // rows if rows else 0
        return [length * row for length in lengths]

    def _all_to_all(self, memory, outputs, out, x, out_splits, in_splits, opts):
        lists = [(native.ctypes.c_int64 * self._size)(*splits) for splits in (out_splits, in_splits)]
        return self._start(memory, outputs, ('all_to_all', out, x, *lists, _milliseconds(opts)))

    @_collective
    def barrier(self, opts=None):
        try:
            limit = _milliseconds(opts)
            work = self._group.start('barrier', limit)
        except native.GroupError as error:
            _raise(error)
        return self._made(HeklaWork([work], _Memory(), []), [limit])

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """Waits for all ranks; the error names all that have not come, whatever wait_all_ranks says."""
        del wait_all_ranks
        limit = -1 if timeout is None else _milliseconds_of_wait(timeout)
        try:
            native.call('monitored_barrier', self._group.handle, limit)
        except native.GroupError as error:
            _raise(error)

    @_message
    def send(self, tensors, dst, tag=0):
        memory = _Memory()
        return self._start(memory, [], *(('send', memory.read(t), dst, tag, -1) for t in tensors))

    @_message
    def recv(self, tensors, src, tag=0):
        memory = _Memory()
        return self._start(memory, tensors, *(('receive', memory.write(t), src, tag, -1) for t in tensors))

    def recv_anysource(self, tensors, tag=0):
        return self.recv(tensors, -1, tag)

    def _start_coalescing(self, device=None):
        del device
        # Who calls this without torch's manager may have left a block by an exception.
        self._drop_block('an exception has left the block')
        if self._batch is not None:
            raise ValueError('another thread coalesces calls')
        try:
            self._group.coalesce_begin()
        except native.GroupError as error:
            _raise(error)
        self._batch, self._batch_thread, self._batch_limits = [], threading.get_ident(), []

    def _drop_block(self, reason):
        """The block of this thread, where it is in one: nothing of it is made, and the others hear of it."""
        if not self._is_in_block():
            return
        self._batch = None
        self._group.refuse('coalesced calls', reason)
        try:
            self._group.coalesce_end()
        except native.GroupError as error:
            if error.code != native.CANCELLED:  # it has been shut down, with its blocks
                _raise(error)

    def _leave_block(self, is_collected, error):
        """An exception of the program has left a block of torch's manager, of which nothing is made.
        `is_collected`: torch has kept the calls, and this group has heard of none."""
        reason = f'an exception has left the block: {type(error).__name__}: {error}'
        if is_collected:
            self._group.refuse('coalesced calls', reason)
        else:
            self._drop_block(reason)

    def _end_coalescing(self, device=None):
        """One work of all since _start_coalescing: collectives go now, messages have gone."""
        del device
        batch, self._batch = self._batch or [], None
        # The longest; where one has that of the group it is all's.
        limits = self._batch_limits
        limit = max(limits) if limits and min(limits) > 0 else -1
        try:
            return _Works(batch, self._group.coalesce_end(limit))
        except native.GroupError as error:
            _raise(error)

    def _get_sequence_number_for_group(self):
        number = native.ctypes.c_int64()
        native.call('sequence', self._group.handle, native.ctypes.byref(number))
        return number.value

    def _set_sequence_number_for_group(self):
        pass  # ranks compare each call


class _Works(HeklaWork):
    """Several calls as one."""

    def __init__(self, parts, work):
        super().__init__([work], _Memory(), [part.result() for part in parts])
        self._parts_of_it = parts

    def _unpack(self):
        for part in self._parts_of_it:
            part._unpack()


def _create(options, backend_options=None):
    """What torch calls for each group, on its members alone."""
    del backend_options
    global _world  # pylint: disable=global-statement
    ranks = list(options.global_ranks_in_group)
    world = _world() if ranks and _world is not None else None
    group = ProcessGroupHekla(options.store, options.group_rank, options.group_size, options.timeout,
                              options.group_id or 'world', world, ranks)
    if not ranks:
        _world = weakref.ref(group)
    return group


_world = None  # the group of all processes, while there is one of this backend


def _with_left_blocks(manager):
    """torch's _coalescing_manager forgets to end a block that an exception leaves: it goes on to collect what
    the program then calls on that group, of which nothing is ever made. Here such a block of a group of this
    backend ends, and the ranks that have not left it hear of it."""
    c10d = dist.distributed_c10d

    @functools.wraps(manager)
    @contextlib.contextmanager
    def managed(group=None, device=None, async_ops=False):
        with manager(group, device, async_ops) as coalesced:
            try:
                yield coalesced
            except BaseException as error:
                own = group or c10d._get_default_group()
                if isinstance(own, ProcessGroupHekla):
                    c10d._world.pg_coalesce_state.pop(own, None)
                    own._leave_block(not device, error)
                raise
    managed.hekla_is_known = True
    return managed


if not hasattr(dist._coalescing_manager, 'hekla_is_known'):
    dist._coalescing_manager = dist.distributed_c10d._coalescing_manager = _with_left_blocks(dist._coalescing_manager)

dist.Backend.register_backend('hekla', _create, extended_api=True, devices=['cpu'])
