# SPDX-License-Identifier: Apache-2.0
"""A data-parallel training that saves as it goes, for test_hosts.py.

    LAUNCHER host_training.py FOLDER STEPS SECONDS

The global batch of a step depends on the step alone, so the curve does not depend on how many ranks
there are. A step takes at least SECONDS. Rank 0 appends "STEP LOSS RANKS" to FOLDER/curve.
"""
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hekla.torch_distributed  # noqa: F401  # registers the backend
from hekla.checkpoint import CheckpointManager

BATCH = 24

folder, steps, pause = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
dist.init_process_group('hekla')
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))

with CheckpointManager(folder / 'run', save_interval=5, max_to_keep=2) as manager:
    first = 0
    if manager.latest_step() is not None:
        first = manager.latest_step() + 1
        model.load_state_dict(manager.restore(like=model.state_dict()))
        print(f'going on at step {first}', flush=True)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), 0.05)
    for step in range(first, steps):
        random = torch.Generator().manual_seed(step)
        x = torch.randn(BATCH, 16, generator=random)
        own = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
        loss = ((parallel(x[own]) - x[own].sum(1, keepdim=True).sin()) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        whole = loss.detach().clone()
        dist.all_reduce(whole, dist.ReduceOp.AVG)
        if rank == 0:
            with open(folder / 'curve', 'a', encoding='utf-8') as curve:
                curve.write(f'{step} {whole.item()!r} {world}\n')
        if manager.should_save(step):
            manager.save(step, model.state_dict())
        time.sleep(pause)
dist.destroy_process_group()
