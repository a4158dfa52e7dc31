#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps and all-reduces through torch.distributed's backend `hekla`, beside gloo's.

    PYTHONPATH=build/python .venv/torch-2.9.0/bin/python benchmarks/torch_groups.py [--ranks 2,4] [--seconds S] [--rounds N]
        [--only TEXT] [--overlap]

The same processes hold a group of either backend and a model on each; the two take turns, S seconds each,
in every round. A rank has one thread. Models: `wide`, 17 M parameters and a batch of 1, where communication
dominates; `small`, 40 arrays of 64 x 64, where latency does; `deep`, a batch of 256, where computing does. DDP
has each of them whole, FSDP2 (fully_shard of each layer) in shards, which are gathered for forward and again
for backward. DTensor: `split`, two layers of 64 x 64 divided among the ranks by columns and by rows, whose
activations (8 MiB) are summed in forward and in backward; `redistribute`, an array of 16 MiB from rows
to columns, to all of it on each rank, and a sum of such back to rows.
Prints per row the median time of either, the quartiles, and the ratio; above 1 Hekla is faster.
With --overlap also steps that reduce their gradients, in buckets of the same size, when backward has ended: what
it is worth that DDP reduces them meanwhile.
"""
import argparse
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import hekla.torch_distributed  # noqa: F401  registers the backend

SIZES = [4, 4 << 10, 64 << 10, 1 << 20, 16 << 20]


def layers(count, width):
    return torch.nn.Sequential(*(m for _ in range(count) for m in (torch.nn.Linear(width, width), torch.nn.ReLU())))


MODELS = {'wide': (lambda: layers(4, 2048), 1, 2048), 'small': (lambda: layers(20, 64), 8, 64),
          'deep': (lambda: layers(8, 256), 256, 256)}


def step_of(name, group):
    make, batch, width = MODELS[name]
    torch.manual_seed(0)
    model = DistributedDataParallel(make(), process_group=group, gradient_as_bucket_view=True)
    return training_step(model, torch.randn(batch, width))


def mesh_of(group):
    return DeviceMesh.from_group(group or dist.group.WORLD, 'cpu')


def training_step(model, x):
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return step


def sharded_step_of(name, group):
    make, batch, width = MODELS[name]
    torch.manual_seed(0)
    model, mesh = make(), mesh_of(group)
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    return training_step(fully_shard(model, mesh=mesh), torch.randn(batch, width))


def split_step_of(_, group, width=64, batch=32768):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width))
    parallelize_module(model, mesh_of(group), {'0': ColwiseParallel(), '2': RowwiseParallel()})
    return training_step(model, torch.randn(batch, width, requires_grad=True))


def redistributions_of(_, group, rows=2048, columns=2048):
    mesh = mesh_of(group)
    size = mesh.size()
    x = DTensor.from_local(torch.ones(rows // size, columns), mesh, [Shard(0)])
    y = DTensor.from_local(torch.ones(rows, columns), mesh, [Partial()])

    def run():
        x.redistribute(mesh, [Shard(1)])
        x.redistribute(mesh, [Replicate()])
        y.redistribute(mesh, [Shard(0)])
    return run


def late_step_of(name, group, bucket_bytes=25 << 20):
    """The same step without overlap: gradients lie in flat buckets, which go one after the other after backward."""
    make, batch, width = MODELS[name]
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    x = torch.randn(batch, width)
    buckets, fill = [], []
    for p in reversed(list(model.parameters())):
        if fill and sum(q.numel() for q in fill + [p]) * 4 > bucket_bytes:
            buckets.append(fill)
            fill = []
        fill.append(p)
    buckets.append(fill)
    flats = []
    for fill in buckets:
        flats.append(torch.zeros(sum(p.numel() for p in fill)))
        for p, part in zip(fill, flats[-1].split([p.numel() for p in fill])):
            p.grad = part.view_as(p)
    size = dist.get_world_size(group)

    def step():
        for flat in flats:
            flat.zero_()
        model(x).square().mean().backward()
        for work in [dist.all_reduce(flat, group=group, async_op=True) for flat in flats]:
            work.wait()
        for flat in flats:
            flat /= size
        optimizer.step()
    return step


def sum_of(size, group):
    x = torch.zeros(size // 4)
    return lambda: dist.all_reduce(x, group=group)


def times_of(run, seconds, gloo):
    """Of each run for about so long; all ranks run as often."""
    for _ in range(2):
        run()
    start = time.perf_counter()
    run()
    count = torch.tensor([max(3, min(2000, int(seconds / max(1e-6, time.perf_counter() - start))))])
    dist.broadcast(count, 0, group=gloo)
    times = []
    for _ in range(int(count)):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


def rank_main(rank, world, folder, arguments):
    torch.set_num_threads(1)
    dist.init_process_group('hekla', init_method=f'file://{folder}/store{world}', rank=rank, world_size=world)
    gloo = dist.new_group(backend='gloo')
    rows = [(f'all_reduce of {size} B', sum_of, size) for size in SIZES]
    rows += [(f'DDP step, {name}', step_of, name) for name in MODELS]
    rows += [(f'FSDP2 step, {name}', sharded_step_of, name) for name in MODELS]
    rows += [('DTensor step, split', split_step_of, None), ('DTensor redistribute', redistributions_of, None)]
    for title, make, what in rows:
        if arguments.only not in title:
            continue
        runs = {'hekla': make(what, None), 'gloo': make(what, gloo)}
        if arguments.overlap and make is step_of:
            runs |= {'hekla late': late_step_of(what, None), 'gloo late': late_step_of(what, gloo)}
        times = {side: [] for side in runs}
        for _ in range(arguments.rounds):
            for side, run in runs.items():
                times[side] += times_of(run, arguments.seconds, gloo)
        if rank == 0:
            said = {}
            for side, values in times.items():
                low, middle, high = statistics.quantiles(values, n=4)
                said[side] = f'{side} {middle * 1e6:9.1f} us ({low * 1e6:.1f} to {high * 1e6:.1f})'
            middle = {side: statistics.median(values) for side, values in times.items()}
            ratios = f'ratio {middle["gloo"] / middle["hekla"]:.2f}'
            if 'hekla late' in middle:
                ratios += f', overlap {middle["hekla late"] / middle["hekla"]:.2f}'
                ratios += f' (gloo {middle["gloo late"] / middle["gloo"]:.2f})'
            print(f'{world} ranks  {title:24}  {"  ".join(said.values())}  {ratios}', flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--ranks', default='2,4')
    parser.add_argument('--seconds', type=float, default=0.5)
    parser.add_argument('--rounds', type=int, default=4)
    parser.add_argument('--overlap', action='store_true', help='steps without overlap as well')
    parser.add_argument('--only', default='', help='rows whose title has this')
    arguments = parser.parse_args()
    os.environ['OMP_NUM_THREADS'] = '1'
    with tempfile.TemporaryDirectory() as folder:
        for world in map(int, arguments.ranks.split(',')):
            mp.spawn(rank_main, (world, folder, arguments), nprocs=world)


if __name__ == '__main__':
    main()
