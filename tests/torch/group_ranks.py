# SPDX-License-Identifier: Apache-2.0
"""What each rank does in test_group.py.

    python group_ranks.py scenarios FOLDER WORLD...    all scenarios with so many ranks, one after the other
    LAUNCHER group_ranks.py sum FOLDER                 one sum, where a launcher has said who is who
    LAUNCHER group_ranks.py killed FOLDER              rank 1 is killed between two sums
    python group_ranks.py spawn FOLDER                 one sum of two spawned processes

The default group is of backend hekla. Each scenario compares with a group of gloo over the same
ranks, or, for what gloo lacks, with what the rank computes from the inputs of all; it notes what
differs. FOLDER/WORLD/RANK.json gets {scenario: [what differs]}.
"""
import datetime
import json
import os
import pathlib
import signal
import sys
import time
import traceback

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int32, torch.int64]
SHAPES = [(), (0,), (7,), (3, 5), (300, 41)]


class Ranks:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.gloo = dist.new_group(backend='gloo')
        self.wrong = []

    def of(self, rank, *shape, dtype=torch.float32):
        """The array that a rank brings: small whole numbers, whose sums are exact in any order."""
        draw = torch.Generator().manual_seed(31 + rank)
        values = torch.randint(0 if dtype == torch.uint8 else -4, 5, shape, generator=draw)
        return values > 0 if dtype == torch.bool else values.to(dtype)

    def own(self, *shape, dtype=torch.float32):
        return self.of(self.rank, *shape, dtype=dtype)

    def all(self, *shape, dtype=torch.float32):
        return [self.of(rank, *shape, dtype=dtype) for rank in range(self.world)]

    def same(self, what, given, expected):
        given, expected = ([v] if torch.is_tensor(v) else list(v) for v in (given, expected))
        if len(given) != len(expected) or not all(
                g.dtype == e.dtype and g.shape == e.shape and torch.equal(g, e)
                for g, e in zip(given, expected)):
            self.wrong.append(f'{what}: {given} instead of {expected}'[:1000])

    def as_gloo(self, what, run):
        """run(group) gives tensors: the same with hekla's and gloo's."""
        self.same(what, run(None), run(self.gloo))

    def raises(self, what, kinds, texts, run):
        try:
            run()
        except kinds as error:
            self.wrong += [f'{what}: {text} is not in {error}' for text in texts if text not in str(error)]
        else:
            self.wrong.append(f'{what}: no error')


def after(work, *tensors):
    if work is not None:
        work.wait()
    return tensors


def reductions(r):
    ops = dist.ReduceOp
    for dtype in FLOATS + INTEGERS:
        for shape in SHAPES:
            for op in (ops.SUM, ops.PRODUCT, ops.MIN, ops.MAX):
                def run(group, op=op, shape=shape, dtype=dtype):
                    x = r.own(*shape, dtype=dtype)
                    dist.all_reduce(x, op, group=group)
                    return x
                r.as_gloo(f'all_reduce {op} {dtype} {shape}', run)
    for op in (ops.BAND, ops.BOR, ops.BXOR):
        def bits(group, op=op):
            x = r.own(33, dtype=torch.int32)
            return after(dist.all_reduce(x, op, group=group, async_op=True), x)
        r.as_gloo(f'all_reduce {op}', bits)
    # What gloo lacks.
    total = torch.stack(r.all(6)).sum(0)
    x = r.own(6)
    dist.all_reduce(x, ops.AVG)
    r.same('AVG', x, total / r.world)
    x = r.own(6)
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    r.same('PREMUL_SUM', x, total * 0.5)
    x = torch.complex(r.own(6), r.own(6))
    dist.all_reduce(x)
    r.same('complex', x, torch.complex(total, total))
    x = r.own(6, dtype=torch.bool)
    dist.all_reduce(x, ops.MAX)
    r.same('bool', x, torch.stack(r.all(6, dtype=torch.bool)).any(0))
    for root in range(r.world):
        x = r.own(4, 3)
        dist.reduce(x, root, ops.SUM)
        r.same(f'reduce to {root}', x, torch.stack(r.all(4, 3)).sum(0) if r.rank == root else r.own(4, 3))
    # Not contiguous.
    for group in (None, r.gloo):
        base = r.own(8, 6)
        dist.all_reduce(base.t() if group is None else (copy := base.t().contiguous()), group=group)
        if group is None:
            given = base
    r.same('of a view', given.t(), copy)


def movements(r):
    """Broadcasts, gathers, scatters, all_to_all."""
    n = r.world
    for dtype in FLOATS + INTEGERS + [torch.bool, torch.complex64]:
        for shape in SHAPES:
            def broadcast(group, shape=shape, dtype=dtype):
                x = r.own(*shape, dtype=dtype)
                return after(dist.broadcast(x, n - 1, group=group, async_op=True), x)

            def all_gather(group, shape=shape, dtype=dtype):
                out = [torch.zeros(shape, dtype=dtype) for _ in range(n)]
                dist.all_gather(out, r.own(*shape, dtype=dtype), group=group)
                return out
            r.as_gloo(f'broadcast {dtype} {shape}', broadcast)
            r.as_gloo(f'all_gather {dtype} {shape}', all_gather)
    for shape in SHAPES[1:]:
        out = torch.zeros(n * shape[0], *shape[1:])
        dist.all_gather_into_tensor(out, r.own(*shape))
        r.same(f'all_gather_into_tensor {shape}', out, torch.cat(r.all(*shape)))

        def gather(group, shape=shape):
            out = [torch.zeros(shape) for _ in range(n)] if r.rank == 1 else None
            dist.gather(r.own(*shape), out, dst=1, group=group)
            return out or []

        def scatter(group, shape=shape):
            out = torch.zeros(shape)
            dist.scatter(out, r.all(*shape) if r.rank == 1 else None, src=1, group=group)
            return out
        r.as_gloo(f'gather {shape}', gather)
        r.as_gloo(f'scatter {shape}', scatter)
        whole = [torch.stack([r.of(17 * rank + part, *shape) for part in range(n)]) for rank in range(n)]
        out = torch.zeros(shape)
        dist.reduce_scatter(out, list(whole[r.rank]))
        r.same(f'reduce_scatter {shape}', out, sum(whole)[r.rank])
        dist.reduce_scatter_tensor(out, whole[r.rank].flatten(0, 1) if shape else whole[r.rank])
        r.same(f'reduce_scatter_tensor {shape}', out, sum(whole)[r.rank])
        out = [torch.zeros(shape) for _ in range(n)]
        dist.all_to_all(out, list(whole[r.rank]))
        r.same(f'all_to_all {shape}', out, [w[r.rank] for w in whole])
    # Rank s sends s + d rows to rank d.
    def uneven(group):
        rows = [r.rank + d for d in range(n)]
        out = torch.zeros(sum(rows), 3)
        dist.all_to_all_single(out, r.own(sum(rows), 3), rows, rows, group=group)
        return out
    r.as_gloo('all_to_all_single', uneven)
    lists = [torch.zeros(r.rank + s, 2) for s in range(n)]
    dist.all_to_all(lists, [torch.full((r.rank + d, 2), float(r.rank)) for d in range(n)])
    r.same('all_to_all of different sizes', lists, [torch.full((r.rank + s, 2), float(s)) for s in range(n)])
    base = torch.zeros(6, n * 2)
    dist.all_gather_into_tensor(base.t(), r.own(2, 6))
    r.same('all_gather into a view', base.t(), torch.cat(r.all(2, 6)))


def messages(r):
    n, after_me, before_me = r.world, (r.rank + 1) % r.world, (r.rank - 1) % r.world
    out = torch.zeros(5)
    work = dist.isend(r.own(5), after_me, tag=3)
    dist.recv(out, before_me, tag=3)
    work.wait()
    r.same('round', out, r.of(before_me, 5))
    many = [torch.zeros(4) for _ in range(2)]
    points = [dist.P2POp(dist.isend, torch.full((4,), r.rank + 0.5 * tag), after_me, tag=tag) for tag in (0, 1)]
    points += [dist.P2POp(dist.irecv, many[tag], before_me, tag=tag) for tag in (1, 0)]
    for work in dist.batch_isend_irecv(points):
        work.wait()
    r.same('batch', many, [torch.full((4,), before_me + 0.5 * tag) for tag in (0, 1)])
    if r.rank == 0:
        seen = []
        for _ in range(n - 1):
            x = torch.zeros(2)
            source = dist.recv(x)
            r.same('from any', x, r.of(source, 2))
            seen.append(source)
        if sorted(seen) != list(range(1, n)):
            r.wrong.append(f'from any: {seen}')
    else:
        dist.send(r.own(2), 0)


def objects(r):
    every = [None] * r.world
    dist.all_gather_object(every, {'rank': r.rank, 'text': 'x' * r.rank})
    if every != [{'rank': k, 'text': 'x' * k} for k in range(r.world)]:
        r.wrong.append(f'all_gather_object: {every}')
    said = [('a', 1), None] if r.rank == 0 else [None, 3]
    dist.broadcast_object_list(said, 0)
    got = [None]
    dist.scatter_object_list(got, list(range(r.world)) if r.rank == 0 else None, 0)
    if said != [('a', 1), None] or got != [r.rank]:
        r.wrong.append(f'{said} {got}')


def groups(r):
    """Some of the ranks, coalesced calls, works, barriers."""
    threads = set(os.listdir('/proc/self/task'))
    dist.barrier(dist.new_group())  # over the world's connections, so without threads for others of its own
    more = set(os.listdir('/proc/self/task')) - threads
    if len(more) > 1:
        r.wrong.append(f'a group of all ranks has {len(more)} threads')
    pair = [r.world - 2, r.world - 1]
    group = dist.new_group(pair)
    if r.rank in pair:
        x = r.own(5)
        dist.all_reduce(x, group=group)
        r.same('two ranks', x, r.of(pair[0], 5) + r.of(pair[1], 5))
        dist.broadcast(x, pair[1], group=group)
        dist.destroy_process_group(group)
    several = [r.own(3 + k) for k in range(3)]
    with dist._coalescing_manager(async_ops=True) as coalesced:
        for x in several:
            dist.all_reduce(x)
    coalesced.wait()
    r.same('coalesced', several, [sum(r.all(3 + k)) for k in range(3)])
    outputs, inputs = [torch.zeros(r.world * 2) for _ in range(2)], [r.own(2), r.own(2) * 3]
    with dist._coalescing_manager(device=torch.device('cpu')):
        for out, x in zip(outputs, inputs):
            dist.all_gather_into_tensor(out, x)
    by_rank = [[torch.zeros(2), torch.zeros(3, 2)] for _ in range(r.world)]
    dist.all_gather_coalesced(by_rank, [r.own(2), r.own(3, 2)])
    r.same('all_gather_coalesced', [x for pair in by_rank for x in pair],
           [x for pair in zip(r.all(2), r.all(3, 2)) for x in pair])
    r.same('coalesced gathers', outputs, [torch.cat(r.all(2)), torch.cat(r.all(2)) * 3])
    x = r.own(1000)
    work = dist.all_reduce(x, async_op=True)
    r.same('future', work.get_future().wait(), [sum(r.all(1000))])
    if not (work.is_completed() and work.is_success() and work.exception() is None):
        r.wrong.append('a work that is done does not say so')
    views = torch.zeros(3, r.world)
    work = dist.all_gather_into_tensor(views.t(), r.own(1, 3), async_op=True)
    later = work.get_future().then(lambda f: views.sum())
    r.same('after a future', later.wait(), torch.cat(r.all(1, 3)).sum())
    dist.barrier()
    # Nothing is kept of calls that are done.
    from hekla import _process_group as native
    end = time.monotonic() + 20
    while True:
        dist.all_reduce(torch.zeros(3))
        if len(native._kept) <= 2:
            break
        if time.monotonic() > end:
            r.wrong.append(f'memory of {len(native._kept)} calls is kept')
            break
    dist.group.WORLD.monitored_barrier(datetime.timedelta(seconds=20))


def errors(r):
    def group(seconds=30):
        return dist.new_group(timeout=datetime.timedelta(seconds=seconds))
    wrong = group()
    count = 5 if r.rank == 1 else 4
    r.raises('another size', dist.DistBackendError, ['rank 1 calls all_reduce(sum) of f32[5]', 'f32[4]'],
             lambda: dist.all_reduce(torch.zeros(count), group=wrong))
    r.raises('after it', dist.DistBackendError, ['rank 1 calls'], lambda: dist.barrier(group=wrong))
    refused = group()
    if r.rank == 1:
        r.raises('of its own', ValueError, ['sparse'],
                 lambda: refused.allgather([[torch.eye(3)] * r.world], [torch.eye(3).to_sparse()]))
    else:
        r.raises("another's", dist.DistBackendError, ['rank 1 has refused it, allgather', 'sparse'],
                 lambda: dist.all_reduce(torch.zeros(4), group=refused))
    late = group(0.4)
    if r.rank != 1:
        r.raises('late', dist.DistBackendError, ['all_reduce', 'rank 1'],
                 lambda: dist.all_reduce(torch.zeros(8), group=late))
    late = group(30)
    if r.rank != 1:
        r.raises('late for a barrier', dist.DistBackendError, ['rank 1'],
                 lambda: late.monitored_barrier(datetime.timedelta(seconds=0.3)))
    dist.barrier(group=r.gloo)
    future = group()
    work = dist.all_reduce(torch.zeros(count), group=future, async_op=True)
    r.raises('by a future', RuntimeError, ['rank 1 calls'], lambda: work.get_future().wait())
    if 'rank 1 calls' not in str(work.exception()) or work.is_success():
        r.wrong.append(f'exception: {work.exception()}')
    ended = group()
    model = DistributedDataParallel(model_of(), process_group=ended)
    loss = model(torch.ones(2, 12)).sum()
    if r.rank == 1:
        ended.abort()
    else:
        r.raises('during backward', RuntimeError, ['rank 1 has aborted'], loss.backward)
    # Refused before anything happens: the group goes on.
    r.raises('bits of floats', ValueError, ['band', 'f32'],
             lambda: dist.all_reduce(torch.zeros(3), dist.ReduceOp.BAND))
    r.raises('quantized', ValueError, ['qint8'], lambda: dist.broadcast(
        torch.quantize_per_tensor(torch.zeros(2), 1.0, 0, torch.qint8), 0))
    r.raises('splits', (ValueError, RuntimeError), ['split'],
             lambda: dist.all_to_all_single(torch.zeros(4), torch.zeros(4), [1] * r.world, [9] * r.world))
    r.raises('sparse', ValueError, ['sparse'], lambda: dist.broadcast(torch.eye(3).to_sparse(), 0))
    r.raises('the largest of sparse', ValueError, ['sums and averages'],
             lambda: dist.all_reduce(torch.eye(3).to_sparse(), dist.ReduceOp.MAX))
    r.raises('sparse of other shapes', ValueError, ['(3, 3) with 2 sparse', '(4, 3) with 2 sparse'],
             lambda: dist.all_reduce(torch.ones(4 if r.rank == 1 else 3, 3).to_sparse()))
    ended = group()
    if r.rank == 0:
        ended.abort()
    else:
        r.raises('aborted', dist.DistBackendError, ['rank 0 has aborted'],
                 lambda: dist.all_reduce(torch.zeros(2), group=ended))
    left = group()
    dist.destroy_process_group(left)
    r.raises('shut down', RuntimeError, ['shut down'], lambda: left.allreduce([torch.zeros(2)]))
    for block in (left._start_coalescing, left._end_coalescing):
        r.raises('a block of what is shut down', RuntimeError, ['shut down'], block)
    x = r.own(3)
    dist.all_reduce(x)
    r.same('the group goes on', x, sum(r.all(3)))


def blocks(r):
    """Errors between _start_coalescing and _end_coalescing, and how long calls in them may take."""
    world, x = dist.group.WORLD, r.own(3)
    for refused in (lambda: world.recv([torch.zeros(2)], 99, 0), lambda: world.send([torch.zeros(2)], 99, 0)):
        world._start_coalescing()
        refused()
        r.raises('a message', ValueError, ['rank 99'], world._end_coalescing().wait)
    # An exception ends the block, a manager of torch's does not.
    sparse = torch.eye(3).to_sparse()
    for wrong in (lambda: world.broadcast([sparse]), lambda: world.recv([sparse], 0, 0)):
        world._start_coalescing()
        world.broadcast([x])
        r.raises('in a block', ValueError, ['sparse'], wrong)
        x = r.own(3)
        world.allreduce([x]).wait()
        r.same('after an exception', x, sum(r.all(3)))
    world._start_coalescing()
    world.allreduce([x])
    world._start_coalescing()  # the one before was left by an exception of the program's
    x, y = r.own(3), r.own(4)
    world.allreduce([x])
    world.allreduce([y])
    world._end_coalescing().wait()
    r.same('after a block that was left', [x, y], [sum(r.all(3)), sum(r.all(4))])
    # The time of the call, not the group's.
    options = dist.AllreduceOptions()
    options.timeout = datetime.timedelta(seconds=0.4)

    def together(group):
        return group.allreduce([torch.zeros(3), torch.zeros(4)], options).wait()

    def block(group):
        group._start_coalescing()
        group.allreduce([torch.zeros(3)], options)
        return group._end_coalescing().wait()
    for call in (together, block):
        late = dist.new_group(timeout=datetime.timedelta(seconds=15))
        begin = time.monotonic()
        if r.rank != 1:
            r.raises('late', dist.DistBackendError, ['rank 1'], lambda call=call, late=late: call(late))
            if time.monotonic() - begin > 10:
                r.wrong.append(f'{call.__name__} has waited for {time.monotonic() - begin} s')
        dist.barrier(group=r.gloo)


def left_blocks(r):
    """Blocks of torch's coalescing manager that an exception of the program leaves."""
    class Left(Exception):
        pass

    def block(group, leaves, collected, **how):
        with dist._coalescing_manager(group=group, **how) as coalesced:
            for _ in range(collected):
                dist.all_reduce(torch.zeros(3), group=group)
            if leaves:
                raise Left('of the program')
        coalesced.wait()
    ways = [{}, {'async_ops': True}, {'device': torch.device('cpu')},
            {'device': torch.device('cpu'), 'async_ops': True}]
    everyone = dist.new_group()
    for how in ways:
        for collected in (0, 1, 2):
            r.raises(f'{how}, by all', Left, ['of the program'],
                     lambda how=how, collected=collected: block(everyone, True, collected, **how))
            x, y = r.own(3), r.own(4)
            dist.all_reduce(x, group=everyone)
            with dist._coalescing_manager(group=everyone, **how) as coalesced:
                dist.all_reduce(y, group=everyone)
            coalesced.wait()
            r.same(f'after {how}, which all left', [x, y], [sum(r.all(3)), sum(r.all(4))])
    for how in ways:
        # One rank alone, before and after it has collected something.
        for collected in (0, 2):
            group = dist.new_group(timeout=datetime.timedelta(seconds=60))
            begin = time.monotonic()
            if r.rank == 1:
                r.raises(f'{how}, by one', Left, ['of the program'], lambda: block(group, True, collected, **how))
            else:
                r.raises(f'{how}, on the others', dist.DistBackendError,
                         ['rank 1 has refused it', 'Left: of the program'], lambda: block(group, False, 2, **how))
            r.raises(f'after {how}', dist.DistBackendError, ['rank 1 has refused it', 'Left: of the program'],
                     lambda: dist.all_reduce(torch.zeros(3), group=group))
            if time.monotonic() - begin > 30:
                r.wrong.append(f'{how}: heard of after {time.monotonic() - begin} s')
    # A block inside of another, which torch refuses, leaves the outer one as it is.
    x, y = r.own(3), r.own(4)
    with dist._coalescing_manager() as coalesced:
        dist.all_reduce(x)
        try:
            block(dist.group.WORLD, False, 1)
            r.wrong.append('a block inside of a block')
        except ValueError:
            pass
        dist.all_reduce(y)
    coalesced.wait()
    r.same('around a block that was refused', [x, y], [sum(r.all(3)), sum(r.all(4))])
    # Of another backend torch's manager is what it was.
    x = r.own(3)
    with dist._coalescing_manager(group=r.gloo):
        dist.all_reduce(x, group=r.gloo)
    r.same('gloo', x, sum(r.all(3)))


def sparse(r):
    """Sums of sparse tensors, with elements that some ranks alone have, twice or none; gradients of embeddings."""
    def own(rank, count):
        draw = torch.Generator().manual_seed(rank)
        return torch.sparse_coo_tensor(torch.randint(0, 5, (2, count), generator=draw),
                                       torch.randint(-4, 5, (count, 3), generator=draw).float(), (5, 6, 3))
    for counts in ([0] * r.world, [4 * rank for rank in range(r.world)], [7] * r.world):
        x = own(r.rank, counts[r.rank])
        dist.all_reduce(x)
        total = sum(own(rank, count).to_dense() for rank, count in enumerate(counts))
        r.same(f'sparse sum of {counts}', x.to_dense(), total)
        x = own(r.rank, counts[r.rank])
        work = dist.all_reduce(x, dist.ReduceOp.AVG, async_op=True)
        r.same(f'sparse average of {counts}', work.get_future().wait()[0].to_dense(), total / r.world)
    found = []
    for group in (None, r.gloo):
        torch.manual_seed(7)
        model = torch.nn.Sequential(torch.nn.Embedding(40, 6, sparse=True), torch.nn.Linear(6, 3))
        model = DistributedDataParallel(model, process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        for step in range(3):
            draw = torch.Generator().manual_seed(10 * step + r.rank)
            optimizer.zero_grad()
            model(torch.randint(0, 40, (8,), generator=draw)).square().mean().backward()
            optimizer.step()
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    close(r, 'DDP of an embedding', *found)


def functional_collectives(r):
    world = dist.group.WORLD
    r.same('all_reduce', functional.all_reduce(r.own(6), 'sum', world) + 0, sum(r.all(6)))
    r.same('all_gather', functional.all_gather_tensor(r.own(2, 3), 1, world) + 0, torch.cat(r.all(2, 3), 1))
    whole = r.all(2 * r.world, 3)
    r.same('reduce_scatter', functional.reduce_scatter_tensor(whole[r.rank], 'sum', 0, world) + 0,
           sum(whole)[2 * r.rank:2 * r.rank + 2])
    r.same('all_to_all', functional.all_to_all_single(whole[r.rank], None, None, world) + 0,
           torch.cat([w[2 * r.rank:2 * r.rank + 2] for w in whole]))
    r.same('broadcast', functional.broadcast(r.own(4), 1, world) + 0, r.of(1, 4))
    r.same('coalesced', [x + 0 for x in functional.all_reduce_coalesced([r.own(3), r.own(4)], 'sum', world)],
           [sum(r.all(3)), sum(r.all(4))])
    # With a derivative.
    x = r.own(4).requires_grad_()
    torch.distributed.nn.functional.all_reduce(x * 2).sum().backward()
    r.same('derivative', x.grad, torch.full((4,), 2.0 * r.world))


def model_of(seed=5):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(12, 33), torch.nn.Tanh(), torch.nn.Linear(33, 33), torch.nn.GELU(),
                               torch.nn.Linear(33, 3))


def losses(r, model, optimizer):
    out = []
    for step in range(4):
        draw = torch.Generator().manual_seed(100 * step + r.rank)
        x, y = torch.randn(8, 12, generator=draw), torch.randn(8, 3, generator=draw)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x).float(), y)
        loss.backward()
        optimizer.step()
        out.append(loss.detach())
    return torch.stack(out)


def close(r, what, given, expected):
    if not torch.allclose(given, expected, rtol=1e-5, atol=1e-6) or given[-1] == given[0]:
        r.wrong.append(f'{what}: {given} instead of {expected}')


def ddp(r):
    found = []
    for group in (None, r.gloo):
        model = DistributedDataParallel(model_of(), process_group=group, bucket_cap_mb=0.002)
        found.append(losses(r, model, torch.optim.SGD(model.parameters(), 0.1)))
    close(r, 'DDP', *found)
    model = DistributedDataParallel(model_of())
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    halves = losses(r, model, torch.optim.SGD(model.parameters(), 0.1))
    if not torch.allclose(halves, found[1], rtol=0.05):
        r.wrong.append(f'bf16: {halves} instead of {found[1]}')


def fsdp(r):
    reference = DistributedDataParallel(model_of(), process_group=r.gloo)
    expected = losses(r, reference, torch.optim.AdamW(reference.parameters(), 0.01))
    mesh = init_device_mesh('cpu', (r.world,))
    for policy in (None, MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)):
        model = model_of()
        more = {} if policy is None else {'mp_policy': policy}
        for layer in model:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer, mesh=mesh, **more)
        fully_shard(model, mesh=mesh, **more)
        given = losses(r, model, torch.optim.AdamW(model.parameters(), 0.01))
        if policy is None:
            close(r, 'fully_shard', given, expected)
        elif not torch.allclose(given, expected, rtol=0.1, atol=0.05):
            r.wrong.append(f'in bf16: {given} instead of {expected}')
    if r.world == 4:
        mesh = init_device_mesh('cpu', (2, 2), mesh_dim_names=('replica', 'shard'))
        model = fully_shard(model_of(), mesh=mesh)
        close(r, 'sharded and replicated', losses(r, model, torch.optim.AdamW(model.parameters(), 0.01)), expected)


def dtensor(r):
    mesh = init_device_mesh('cpu', (r.world,))
    whole = torch.arange(7 * 6, dtype=torch.float32).view(7, 6)  # 7 rows: not the same for all
    for place in (Shard(0), Shard(1), Replicate()):
        x = distribute_tensor(whole, mesh, [place])
        r.same(f'{place} to full', x.full_tensor(), whole)
        for other in (Shard(0), Shard(1), Replicate()):
            r.same(f'{place} to {other}', x.redistribute(mesh, [other]).full_tensor(), whole)
    product = distribute_tensor(whole, mesh, [Shard(1)]) @ distribute_tensor(whole.t().contiguous(), mesh, [Shard(0)])
    if not isinstance(product.placements[0], Partial):
        r.wrong.append(f'a product of shards is {product.placements}')
    r.same('product', product.redistribute(mesh, [Shard(0)]).full_tensor(), whole @ whole.t())
    if r.world == 4:
        mesh = init_device_mesh('cpu', (2, 2))
        x = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
        r.same('in two dimensions', (x + x).redistribute(mesh, [Replicate(), Shard(0)]).full_tensor(), 2 * whole)


SCENARIOS = (reductions, movements, messages, objects, groups, blocks, left_blocks, sparse, functional_collectives, ddp,
             fsdp, dtensor, errors)


def init(**where):
    import hekla.torch_distributed  # noqa: F401  here: a session without Hekla's package reads SCENARIOS
    dist.init_process_group('hekla', **where)


def run_scenarios(rank, world, folder):
    torch.set_num_threads(1)
    init(init_method=f'file://{folder}/store', rank=rank, world_size=world)
    ranks, found = Ranks(), {}
    for scenario in SCENARIOS:
        ranks.wrong = []
        try:
            scenario(ranks)
        except Exception:  # pylint: disable=broad-except  # the test shows it
            ranks.wrong.append(traceback.format_exc()[-3000:])
        found[scenario.__name__] = ranks.wrong
    (pathlib.Path(folder) / f'{rank}.json').write_text(json.dumps(found), encoding='utf-8')
    dist.destroy_process_group()


def one_sum(folder, **where):
    init(**where)
    x = torch.full((3,), float(dist.get_rank()))
    dist.all_reduce(x)
    (pathlib.Path(folder) / f'sum {dist.get_rank()}').write_text(f'{x.tolist()} {dist.get_backend()}', encoding='utf-8')
    # Ends without destroy_process_group.


def one_sum_spawned(rank, world, folder):
    one_sum(folder, init_method=f'file://{folder}/store', rank=rank, world_size=world)


def killed_between_sums():
    init()
    x = torch.ones(3)
    dist.all_reduce(x)
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(x)


def main():
    kind, folder = sys.argv[1:3]
    if kind == 'sum':
        one_sum(folder)
    elif kind == 'killed':
        killed_between_sums()
    elif kind == 'spawn':
        mp.spawn(one_sum_spawned, (2, folder), nprocs=2)
    else:  # forked after what takes long to import, which DDP would
        import torch._dynamo  # noqa: F401
        for world in map(int, sys.argv[3:]):
            mp.start_processes(run_scenarios, (world, f'{folder}/{world}'), nprocs=world, start_method='fork')


if __name__ == '__main__':
    main()
