# SPDX-License-Identifier: Apache-2.0
"""What each device of a launch does in test_launch.py, which runs `python ranks.py FOLDER NAME...`.

torch_xla.launch starts the ranks, processes and threads as the environment says. Each runs the named
scenarios one after the other and writes FOLDER/RANK.json: {scenario: {outcome: value}}, with an
'error' where one raised. What a rank expects it computes itself with torch's CPU, from what all
ranks have: inputs are made of a rank's number.
"""
import fcntl
import json
import os
import pathlib
import signal
import sys
import threading
import time
import traceback

import numpy as np
import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.spmd as xs
import torch_xla.distributed.xla_backend  # noqa: F401  torch.distributed's backend 'xla'
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr

LIMIT = {'rtol': 1e-4, 'atol': 1e-5}


class Outcomes(dict):
    def close(self, name, given, expected):
        """All of `given`, tensors of a device, are the `expected` ones, of torch's CPU."""
        many = (list, tuple)
        given, expected = ([v] if not isinstance(v, many) else v for v in (given, expected))
        given = [torch.as_tensor(v).detach().cpu() for v in given]
        self[name] = len(given) == len(expected) and all(
            g.shape == e.shape and g.dtype == e.dtype and torch.allclose(g, e, **LIMIT)
            for g, e in zip(given, map(torch.as_tensor, expected)))
        if not self[name]:
            self[name] = f'{given} instead of {expected}'[:2000]


def of_rank(rank, *shape, dtype=torch.float32):
    """The array that a rank brings."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(100 + rank))
    return (values * 8).to(dtype) if dtype != torch.float32 else values


SEEDING = threading.Lock()  # the ranks of a process share torch's generator


def seeded(seed, make):
    with SEEDING:
        torch.manual_seed(seed)
        return make()


def of_all(*shape, dtype=torch.float32):
    return [of_rank(rank, *shape, dtype=dtype) for rank in range(xr.world_size())]


def reduced(kind, arrays):
    result = arrays[0]
    for array in arrays[1:]:
        result = {'sum': torch.add, 'mul': torch.mul, 'min': torch.minimum, 'max': torch.maximum,
                  'and': torch.bitwise_and, 'or': torch.bitwise_or}[kind](result, array)
    return result


def groups_of(world):
    """[(groups, the one of this rank)]: all, halves, and pairs across."""
    rank = xr.global_ordinal()
    found = [[list(range(world))]]
    if world == 4:
        found += [[[0, 1], [2, 3]], [[0, 2], [1, 3]]]
    return [(groups, next(g for g in groups if rank in g)) for groups in found]


def numbers(out):
    out['numbers'] = {
        'world_size': xr.world_size(), 'global_ordinal': xr.global_ordinal(),
        'local_ordinal': xr.local_ordinal(), 'process_index': xr.process_index(),
        'process_count': xr.process_count(), 'local_process_count': xr.local_process_count(),
        'global_device_count': xr.global_device_count(),
        'addressable_device_count': xr.addressable_device_count(),
        'real_device': xm.xla_real_devices([torch_xla.device()])[0],
        'is_master': xm.is_master_ordinal(local=False),
    }


def reductions(out):
    device, world = torch_xla.device(), xr.world_size()
    rank = xr.global_ordinal()
    kinds = {'sum': xm.REDUCE_SUM, 'mul': xm.REDUCE_MUL, 'min': xm.REDUCE_MIN, 'max': xm.REDUCE_MAX,
             'and': xm.REDUCE_AND, 'or': xm.REDUCE_OR}
    for kind, name in kinds.items():
        types = [torch.int32] if kind in ('and', 'or') else [torch.float32, torch.int64]
        for dtype in types:
            all_of_them = of_all(3, 5, dtype=dtype)
            mine = all_of_them[rank].to(device)
            out.close(f'{kind} {dtype}', xm.all_reduce(name, mine), reduced(kind, all_of_them))
    boolean = [a > 0 for a in of_all(7)]
    out.close('and of booleans', xm.all_reduce(xm.REDUCE_AND, boolean[rank].to(device)),
              reduced('and', boolean))
    whole = of_all(6)
    for pin in (True, False):
        given = xm.all_reduce(xm.REDUCE_SUM, whole[rank].to(device), scale=0.25, pin_layout=pin)
        out.close(f'scaled, pinned {pin}', given, reduced('sum', whole) * 0.25)
        for groups, own in groups_of(world):
            given = xm.all_reduce(xm.REDUCE_SUM, whole[rank].to(device), groups=groups, pin_layout=pin)
            out.close(f'{groups}, pinned {pin}', given, reduced('sum', [whole[r] for r in own]))
        several = [of_all(4), of_all(2, 3)]
        inputs = [one[rank].to(device) for one in several]
        result = xm.all_reduce(xm.REDUCE_SUM, inputs, scale=0.5, pin_layout=pin)
        out.close(f'list, pinned {pin}', inputs, [reduced('sum', one) * 0.5 for one in several])
        out[f'same list, pinned {pin}'] = result is inputs
    # Without elements, and more than is carried at once.
    empty = xm.all_reduce(xm.REDUCE_SUM, torch.zeros(0, 3, device=device))
    out.close('no elements', empty, torch.zeros(0, 3))
    large = xm.all_reduce(xm.REDUCE_SUM, torch.full((1 << 20,), float(rank + 1), device=device))
    out.close('many elements', large[::4097],
              torch.full(large[::4097].shape, float(world * (world + 1) // 2)))
    torch_xla.sync()


def gathers(out):
    device, world = torch_xla.device(), xr.world_size()
    rank = xr.global_ordinal()
    whole = of_all(2, 4)
    for pin in (True, False):
        for dim in (0, 1, -1):
            out.close(f'along {dim}, pinned {pin}',
                      xm.all_gather(whole[rank].to(device), dim=dim, pin_layout=pin),
                      torch.cat(whole, dim))
        for groups, own in groups_of(world):
            out.close(f'{groups}, pinned {pin}',
                      xm.all_gather(whole[rank].to(device), groups=groups, pin_layout=pin),
                      torch.cat([whole[r] for r in own]))
    other = of_all(3)
    output = torch.zeros(2 * world, 4, device=device)
    xm.all_gather(whole[rank].to(device), output=output, pin_layout=False)
    out.close('into an output', output, torch.cat(whole))
    pair = [one[rank].to(device) for one in (whole, other)]
    expected = [torch.cat(whole), torch.cat(other)]
    out.close('list', xm.all_gather(pair, pin_layout=False), expected)
    out.close('in buckets', xm.all_gather_bucketized(pair, bucket_cap_mb=1), expected)

    wide = of_all(2 * world, 3)
    own_part = slice(2 * rank, 2 * rank + 2)
    for pin in (True, False):
        given = xm.reduce_scatter(xm.REDUCE_SUM, wide[rank].to(device), scale=0.5, scatter_dim=0,
                                  shard_count=world, pin_layout=pin)
        out.close(f'scattered, pinned {pin}', given, reduced('sum', wide)[own_part] * 0.5)
    for groups, own in groups_of(world):
        count, at = len(own), own.index(rank)
        size = 2 * world // count
        given = xm.reduce_scatter(xm.REDUCE_MAX, wide[rank].to(device), scale=1.0, scatter_dim=0,
                                  shard_count=count, groups=groups, pin_layout=False)
        out.close(f'scattered {groups}', given,
                  reduced('max', [wide[r] for r in own])[at * size:(at + 1) * size])
    output = torch.zeros(2, 3, device=device)
    xm.reduce_scatter(xm.REDUCE_SUM, wide[rank].to(device), 1.0, 0, world, output=output,
                      pin_layout=False)
    out.close('scattered into an output', output, reduced('sum', wide)[own_part])
    columns = of_all(5, world)
    pair = [wide[rank].to(device), wide[rank].to(device) * 2]
    expected = [reduced('sum', wide)[own_part], reduced('sum', wide)[own_part] * 2]
    out.close('scattered list', xm.reduce_scatter(xm.REDUCE_SUM, pair, 1.0, 0, world,
                                                  pin_layout=False), expected)
    out.close('scattered in buckets',
              xm.reduce_scatter_bucketized(xm.REDUCE_SUM, pair, 1.0, 0, world, bucket_cap_mb=1),
              expected)
    out.close('scattered along 1',
              xm.reduce_scatter(xm.REDUCE_SUM, columns[rank].to(device), 1.0, 1, world),
              reduced('sum', columns)[:, rank:rank + 1])
    torch_xla.sync()


def exchanges(out):
    device, world = torch_xla.device(), xr.world_size()
    rank = xr.global_ordinal()
    wide = of_all(2 * world, 3)
    for pin in (True, False):
        given = xm.all_to_all(wide[rank].to(device), 0, 1, world, pin_layout=pin)
        out.close(f'all to all, pinned {pin}', given,
                  torch.cat([w[2 * rank:2 * rank + 2] for w in wide], 1))
    for groups, own in groups_of(world):
        size = 2 * world // len(own)
        at = own.index(rank) * size
        given = xm.all_to_all(wide[rank].to(device), 0, 0, len(own), groups=groups)
        out.close(f'all to all {groups}', given, torch.cat([wide[r][at:at + size] for r in own]))
    ring = [[r, (r + 1) % world] for r in range(world)]
    out.close('ring', xm.collective_permute(wide[rank].to(device), ring), wide[(rank - 1) % world])
    # Who receives nothing has zeros.
    out.close('one pair', xm.collective_permute(wide[rank].to(device), [[0, world - 1]]),
              wide[0] if rank == world - 1 else torch.zeros(2 * world, 3))
    for root in range(world):
        tensors = [wide[rank].to(device), of_rank(rank, 4).to(device)]
        xm.collective_broadcast(tensors, root_ordinal=root, pin_layout=root == 0)
        out.close(f'broadcast of {root}', tensors, [wide[root], of_rank(root, 4)])
    # A tensor that all collectives of a program come from, in the order of their tokens.
    value = wide[rank].to(device)
    expected = [w.clone() for w in wide]
    for _ in range(3):
        value = xm.collective_permute(value, ring)
        expected = [expected[(r - 1) % world] for r in range(world)]
        value = xm.all_reduce(xm.REDUCE_MAX, value) + value
        top = reduced('max', expected)
        expected = [e + top for e in expected]
    out.close('one after the other', value, expected[rank])
    torch_xla.sync()


def differences(out):
    """Ranks whose programs differ but for their collectives, in other numbers of launches."""
    device, rank, world = torch_xla.device(), xr.global_ordinal(), xr.world_size()
    whole, others = of_all(4, 4), of_all(6)
    value = whole[rank].to(device)
    first = xm.all_reduce(xm.REDUCE_SUM, value @ value if rank == 0 else value.exp())
    if rank == world - 1:
        torch_xla.sync()  # two launches where others have one
    second = xm.all_gather(others[rank].to(device) * (rank + 1), pin_layout=False)
    torch_xla.sync()
    terms = [whole[0] @ whole[0]] + [w.exp() for w in whole[1:]]
    out.close('first', first, reduced('sum', terms))
    out.close('second', second, torch.cat([o * (r + 1) for r, o in enumerate(others)]))
    # Work between that no other rank has.
    for _ in range(rank):
        value = (value * 1.5).tanh()
        torch_xla.sync()
    expected = list(whole)
    for r in range(world):
        for _ in range(r):
            expected[r] = (expected[r] * 1.5).tanh()
    out.close('third', xm.all_reduce(xm.REDUCE_MIN, value), reduced('min', expected))


def host_functions(out, folder):
    device, rank, world = torch_xla.device(), xr.global_ordinal(), xr.world_size()
    out['rendezvous'] = xm.rendezvous('here') == [b''] * world
    texts = [b'rank %d' % r * (r + 1) for r in range(world)]
    out['payloads'] = xm.rendezvous('texts', texts[rank]) == texts
    out['mesh_reduce'] = xm.mesh_reduce('sum', rank + 1.5, sum) == sum(r + 1.5 for r in range(world))
    out.close('mesh_reduce of tensors',
              xm.mesh_reduce('tensors', of_rank(rank, 3).to(device), torch.stack),
              torch.stack(of_all(3)))
    ran = xm.do_on_ordinals(lambda x: float(x.sum()), (torch.ones(3, device=device),), (0,))
    out['do_on_ordinals'] = ran == (3.0 if rank == 0 else None)

    model = seeded(rank, lambda: torch.nn.Linear(3, 2)).to(device)
    xm.broadcast_master_param(model)
    master = seeded(0, lambda: torch.nn.Linear(3, 2))
    out.close('broadcast_master_param', list(model.parameters()), [p.detach() for p in master.parameters()])

    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    (model(of_rank(rank, 4, 3).to(device)) ** 2).sum().backward()
    xm.reduce_gradients(optimizer)
    sum((master(of_rank(r, 4, 3)) ** 2).sum() / world for r in range(world)).backward()
    out.close('reduce_gradients', [p.grad for p in model.parameters()],
              [p.grad for p in master.parameters()])
    torch_xla.sync()
    path = pathlib.Path(folder) / 'saved.pt'
    xm.save({'model': model.state_dict(), 'step': 3}, path, global_master=True)
    xm.rendezvous('saved')
    loaded = torch.load(path)
    out.close('save', list(loaded['model'].values()), [p.detach() for p in master.parameters()])
    out['saved number'] = loaded['step'] == 3


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(12, 32), torch.nn.Tanh(), torch.nn.LayerNorm(32),
                               torch.nn.Linear(32, 3))


def cnn():
    return torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(),
                               torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(64, 3))


CASES = {'mlp': (mlp, (12,), lambda p: torch.optim.AdamW(p, 1e-2)),
         'cnn': (cnn, (1, 8, 8), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9))}
STEPS, BATCH = 6, 16


def batches(shape):
    random = torch.Generator().manual_seed(7)
    for _ in range(STEPS):
        x = torch.randn(BATCH, *shape, generator=random)
        yield x, x.flatten(1)[:, :3].argmax(1)


def alone(case):
    """Losses and parameters of a training on torch's CPU with whole batches."""
    make, shape, optimizer_of = CASES[case]
    model = seeded(1, make)
    optimizer = optimizer_of(model.parameters())
    losses = []
    for x, y in batches(shape):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, [p.detach() for p in model.parameters()]


def train(case, wrap, make_optimizer, step, sync=torch_xla.sync):
    """The same with an equal part of each batch on each rank; the mean of their losses."""
    make, shape, optimizer_of = CASES[case]
    device, rank, world = torch_xla.device(), xr.global_ordinal(), xr.world_size()
    model = wrap(seeded(1, make).to(device))
    optimizer = make_optimizer(model, optimizer_of)
    losses = []
    part = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
    for x, y in batches(shape):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x[part].to(device)), y[part].to(device))
        loss.backward()
        step(optimizer)
        losses.append(xm.all_reduce(xm.REDUCE_SUM, loss.detach(), scale=1.0 / world))
        sync()
    return losses, model


def ordinary(model, optimizer_of):
    return optimizer_of(model.parameters())


def data_parallel(out):
    for case in CASES:
        losses, parameters = alone(case)
        given, model = train(case, lambda m: m, ordinary, xm.optimizer_step)
        out.close(f'{case} losses', given, losses)
        out.close(f'{case} parameters', list(model.parameters()), parameters)
        out[f'{case} moves'] = bool(losses[-1] != losses[0])


def zero(out):
    from torch_xla.distributed.zero_redundancy_optimizer import ZeroRedundancyOptimizer
    losses, parameters = alone('mlp')
    given, model = train(
        'mlp', lambda m: m,
        lambda m, _: ZeroRedundancyOptimizer(m.parameters(), torch.optim.AdamW, lr=1e-2,
                                             grad_clipping=False, pin_layout=False),
        lambda o: o.step())
    out.close('losses', given, losses)
    out.close('parameters', list(model.parameters()), parameters)


def fsdp(out, folder):
    from torch_xla.distributed.fsdp import (XlaFullyShardedDataParallel, checkpoint_module,
                                            consolidate_sharded_model_checkpoints)
    from torch_xla.distributed.fsdp.wrap import always_wrap_policy
    forms = {'plain': {}, 'flat': {'flatten_parameters': True},
             'each module, kept, unpinned': {'auto_wrap_policy': always_wrap_policy,
                                             'reshard_after_forward': False,
                                             'pin_layout_in_collective_ops': False},
             'in buckets': {'reduce_scatter_bucket_size_mb': 1, 'coalesce_all_gather_ops': True,
                            'shard_param_on_dim_0': True, 'pin_layout_in_collective_ops': False}}
    model = None
    for case in CASES:
        losses, parameters = alone(case)
        for name, options in forms.items():
            given, model = train(case, lambda m, o=options: XlaFullyShardedDataParallel(m, **o),
                                 ordinary, lambda o: o.step())
            out.close(f'{case}, {name}', given, losses)
    checked, _ = train('cnn', lambda m: XlaFullyShardedDataParallel(checkpoint_module(m)), ordinary,
                       lambda o: o.step())
    out.close('checkpointed', checked, alone('cnn')[0])
    # The norm of all shards together.
    clipped = model.clip_grad_norm_(1e-3)
    out['clip_grad_norm_'] = bool(torch.isfinite(clipped).item())
    xm.save({'model': model.state_dict(), 'shard_metadata': model.get_shard_metadata()},
            f'{folder}/fsdp_rank-{xr.global_ordinal()}.pth', master_only=False)
    xm.rendezvous('shards')
    if xr.global_ordinal() == 0:
        whole, _ = consolidate_sharded_model_checkpoints(f'{folder}/fsdp', '_rank-*.pth')
        _, parameters = alone('cnn')
        out.close('consolidated', list(whole.values()), parameters)
    xm.rendezvous('consolidated')


def distributed(out):
    """torch.distributed's collectives as far as torch_xla 2.9's ProcessGroupXla has them."""
    device, rank, world = torch_xla.device(), xr.global_ordinal(), xr.world_size()
    if not dist.is_initialized():
        dist.init_process_group('xla', init_method='xla://')
    out['rank and size'] = (dist.get_rank(), dist.get_world_size()) == (rank, world)
    whole = of_all(3)
    mine = lambda: whole[rank].to(device)  # noqa: E731
    for op, kind in ((dist.ReduceOp.SUM, 'sum'), (dist.ReduceOp.PRODUCT, 'mul'),
                     (dist.ReduceOp.MIN, 'min'), (dist.ReduceOp.MAX, 'max')):
        value = mine()
        dist.all_reduce(value, op)
        out.close(f'all_reduce {kind}', value, reduced(kind, whole))
    bits = of_all(3, dtype=torch.int32)
    for op, kind in ((dist.ReduceOp.BAND, 'and'), (dist.ReduceOp.BOR, 'or')):
        value = bits[rank].to(device)
        dist.all_reduce(value, op)
        out.close(f'all_reduce {kind}', value, reduced(kind, bits))
    gathered = [torch.zeros(3, device=device) for _ in range(world)]
    dist.all_gather(gathered, mine())
    out.close('all_gather', gathered, whole)
    scalars = [torch.zeros((), device=device) for _ in range(world)]
    dist.all_gather(scalars, torch.tensor(float(rank), device=device))
    out.close('all_gather of scalars', scalars, [float(r) for r in range(world)])
    flat = torch.zeros(3 * world, device=device)
    dist.all_gather_into_tensor(flat, mine())
    out.close('all_gather_into_tensor', flat, torch.cat(whole))
    for root in range(world):
        value = mine()
        dist.broadcast(value, root)
        out.close(f'broadcast of {root}', value, whole[root])
    parts = [[of_rank(10 * r + p, 3) for p in range(world)] for r in range(world)]
    value = torch.zeros(3, device=device)
    dist.reduce_scatter(value, [p.to(device) for p in parts[rank]])
    sums = reduced('sum', [p[rank] for p in parts])
    out.close('reduce_scatter', value, sums)
    value = torch.zeros(3, device=device)
    dist.reduce_scatter_tensor(value, torch.cat(parts[rank]).to(device))
    out.close('reduce_scatter_tensor', value, sums)
    value = torch.zeros(3 * world, device=device)
    dist.all_to_all_single(value, torch.cat(parts[rank]).to(device))
    out.close('all_to_all_single', value, torch.cat([p[rank] for p in parts]))
    received = [torch.zeros(3, device=device) for _ in range(world)]
    dist.all_to_all(received, [p.to(device) for p in parts[rank]])
    out.close('all_to_all', received, [p[rank] for p in parts])
    value = mine()
    dist.reduce(value, 0)
    out.close('reduce', value, reduced('sum', whole) if rank == 0 else whole[rank])
    lists = [torch.zeros(3, device=device) for _ in range(world)] if rank == 0 else None
    dist.gather(mine(), lists, 0)
    if rank == 0:
        out.close('gather', lists, whole)
    value = torch.zeros(3, device=device)
    dist.scatter(value, [p.to(device) for p in parts[0]] if rank == 0 else None, 0)
    out.close('scatter', value, parts[0][rank])
    # A message between two; the others do nothing. But a value that was read leaves its collective in
    # the token of the next one until a sync, which send and recv have in them.
    torch_xla.sync()
    if rank == 0:
        dist.send(mine(), world - 1)
    if rank == world - 1:
        value = torch.zeros(3, device=device)
        dist.recv(value, 0)
        out.close('recv', value, whole[0])
    for groups, own in groups_of(world):
        group = [dist.new_group(g) for g in groups][groups.index(own)]
        group._mesh = groups  # ranks of one program name all groups
        value = mine()
        dist.all_reduce(value, group=group)
        out.close(f'group {groups}', value, reduced('sum', [whole[r] for r in own]))
    dist.barrier()
    torch_xla.sync()


def ddp(out):
    from torch.nn.parallel import DistributedDataParallel
    if not dist.is_initialized():
        dist.init_process_group('xla', init_method='xla://')
    for case in CASES:
        losses, parameters = alone(case)
        given, model = train(
            case, lambda m: DistributedDataParallel(m, gradient_as_bucket_view=True), ordinary,
            lambda o: o.step())
        out.close(f'{case} losses', given, losses)
        out.close(f'{case} parameters', list(model.parameters()), parameters)


def sharded(out):
    """One program over the devices of all processes."""
    count = xr.global_runtime_device_count()
    out['devices'] = (xr.process_count(), xr.addressable_runtime_device_count(), count) == (2, 2, 4)
    mesh = xs.Mesh(np.arange(count), (2, count // 2), ('x', 'y'))
    a, b = of_rank(0, 16, 8), of_rank(1, 8, 12)
    on_a, on_b = a.to('xla'), b.to('xla')
    xs.mark_sharding(on_a, mesh, ('x', 'y'))
    xs.mark_sharding(on_b, mesh, ('y', None))
    out.close('product', on_a @ on_b, a @ b)
    out.close('whole', on_a, a)
    make, shape, optimizer_of = CASES['mlp']
    losses, _ = alone('mlp')
    model = seeded(1, make).to('xla')
    for parameter, cut in zip(model.parameters(), [('y', None), ('y',), (None,), (None,), (None, 'y')]):
        xs.mark_sharding(parameter, mesh, cut)
    optimizer, given = optimizer_of(model.parameters()), []
    for x, y in batches(shape):
        x, y = x.to('xla'), y.to('xla')
        xs.mark_sharding(x, mesh, ('x', None))
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        given.append(loss.detach())
    out.close('losses', given, losses)


def compiled(out):
    """A step under torch.compile, with its collective."""
    device, rank = torch_xla.device(), xr.global_ordinal()
    whole = of_all(4, 4)
    step = torch.compile(lambda v: xm.all_reduce(xm.REDUCE_SUM, torch.sin(v) @ v), backend='openxla')
    for _ in range(2):
        out.close('step', step(whole[rank].to(device)), reduced('sum', [torch.sin(w) @ w for w in whole]))


def message_of(call):
    """What `call` raises, or 'none'."""
    try:
        call()
    except Exception as error:  # pylint: disable=broad-exception-caught
        return f'{type(error).__name__}: {error}'
    return 'none'


def gaps(out):
    """What torch_xla does not do on any device; test_launch.py knows where it says so."""
    device, rank, world = torch_xla.device(), xr.global_ordinal(), xr.world_size()
    mine = of_rank(rank, 4).to(device)
    out['spawn with a number'] = message_of(lambda: xmp.spawn(print, nprocs=2))
    out['rendezvous of some'] = message_of(lambda: xm.rendezvous('some', replicas=[0]))
    out['pinned list'] = message_of(lambda: xm.all_gather([mine, mine]))
    if not dist.is_initialized():
        dist.init_process_group('xla', init_method='xla://')
    out['xor'] = message_of(lambda: dist.all_reduce(mine.int(), dist.ReduceOp.BXOR))
    out['uneven parts'] = message_of(
        lambda: dist.all_to_all_single(mine, mine, [1, 3], [3, 1]))
    out['receive from anybody'] = message_of(lambda: dist.recv(mine))
    # A barrier that is none: who comes early does not see what the others do before it.
    marker = pathlib.Path(sys.argv[1]) / 'came'
    if rank == 0:
        time.sleep(1)
        marker.touch()
    dist.barrier()
    out['barrier'] = 'waited' if marker.exists() and rank == world - 1 else 'returned'
    base = torch.zeros(4, device=device)
    view = base[2:]
    view.copy_(torch.ones(2, device=device))
    xm.all_reduce(xm.REDUCE_SUM, [base])
    out['view'] = 'reduced' if torch.equal(view.cpu(), base.cpu()[2:]) else 'kept'
    xm.rendezvous('the end')
    # Last: no collective of the device is right behind it.
    out['receive by channel'] = message_of(xm.recv(torch.zeros(4, device=device), 1).cpu)


def _error(out, launch):
    begin = time.monotonic()
    out['error'] = message_of(launch)
    out['seconds'] = time.monotonic() - begin


def another_collective(out):
    """Rank 1 comes with another shape than the others."""
    device, rank = torch_xla.device(), xr.global_ordinal()
    out['before'] = float(xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=device))[0])
    shape = (5,) if rank == 1 else (4,)
    _error(out, xm.all_reduce(xm.REDUCE_SUM, torch.ones(shape, device=device)).cpu)


def killed(out):
    """Rank 1 dies; the others wait for it."""
    device, rank = torch_xla.device(), xr.global_ordinal()
    out['before'] = float(xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=device))[0])
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    _error(out, xm.all_reduce(xm.REDUCE_SUM, torch.ones(3, device=device)).cpu)


def late(out):
    """Rank 1 never comes, and lives for longer than the deadline."""
    device, rank = torch_xla.device(), xr.global_ordinal()
    out['before'] = float(xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=device))[0])
    if rank == 1:
        folder = pathlib.Path(sys.argv[1])
        while not (folder / '0.json').exists():
            time.sleep(0.1)
    else:
        _error(out, xm.all_reduce(xm.REDUCE_SUM, torch.ones(3, device=device)).cpu)


def lingers(out):
    """Rank 1 has work to do when rank 0, whose process has the coordinator, has ended."""
    out['sum'] = float(xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=torch_xla.device()))[0]) == 2
    if xr.global_ordinal() == 1:
        time.sleep(3)


FAULTS = (another_collective, killed, late)
SCENARIOS = {f.__name__: f for f in (numbers, reductions, gathers, exchanges, differences,
                                     host_functions, data_parallel, zero, fsdp, distributed, ddp,
                                     compiled, sharded, gaps, lingers,
                                     *FAULTS)}


def run(_, folder, names):
    results = {}
    if 'sharded' in names:
        xr.use_spmd()
    elif dist.is_torchelastic_launched():
        dist.init_process_group('xla', init_method='xla://')
    has_fault = any(scenario.__name__ in names for scenario in FAULTS)
    if has_fault:
        alive = _lock(folder, xr.global_ordinal())  # before the first collective, so before rank 0's end
    for name in names:
        scenario, out = SCENARIOS[name], Outcomes()
        takes_folder = 'folder' in scenario.__code__.co_varnames[:scenario.__code__.co_argcount]
        try:
            scenario(out, folder) if takes_folder else scenario(out)
        except Exception:  # pylint: disable=broad-exception-caught
            out['error'] = traceback.format_exc()
        results[name] = out
        rank = xr.process_index() if xr.is_spmd() else xr.global_ordinal()
        (pathlib.Path(folder) / f'{rank}.json').write_text(json.dumps(results))
    if has_fault:
        # torch_xla's coordinator, in rank 0, waits for all at its end, for the dead one too; without it
        # the others abort. So rank 0 is the last, and does not end it in order.
        if xr.global_ordinal() == 0:
            for other in range(1, xr.world_size()):
                _lock(folder, other).close()
        alive.close()
        os._exit(0)


def _lock(folder, rank):
    """An open file that is locked; waits for the end of a process that has it."""
    file = (pathlib.Path(folder) / f'{rank}.alive').open('w')
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


if __name__ == '__main__':
    torch_xla.launch(run, args=(sys.argv[1], sys.argv[2:]))
