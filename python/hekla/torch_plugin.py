# SPDX-License-Identifier: Apache-2.0
"""What PyTorch/XLA loads when it looks for plugins (entry-point group torch_xla.plugins).

torch_xla makes one object of each class below when it is imported, under the name that the entry point
has in upper case; PJRT_DEVICE=VULKAN, HEKLA_CPU or HEKLA_REFERENCE then chooses a device. CPU is
torch_xla's own device: that name never reaches a plugin. Making an object does nothing, so that
an installed package changes nothing for a program that uses another device; only the chosen one looks
for its library, and says where it looked when there is none.

torch_xla takes a plugin that is named by PJRT_DEVICE alone; importing hekla is not needed.

Several devices: torch_xla.launch starts HEKLA_NUM_PROCESSES processes (1) with HEKLA_NUM_DEVICES
logical devices (1) each, a thread for each device; torchrun's processes are taken as they are. Where
there are several, torch_xla's coordinator, in the process of rank 0, gives the plugin a key-value
store through which they find each other.
"""
import fcntl
import functools
import multiprocessing.util
import os
import socket
import tempfile
import time

from torch_xla.experimental import plugins

import hekla


def _open_autocast(platform):
    """Makes torch_xla.amp.autocast(device) what torch.autocast('xla') is on our platform.

    Without it the class prints that it takes TPUs alone and leaves itself unfinished: entering it ends in
    an AttributeError. Scripts hold the class by name, so that its constructor is replaced, not the class.
    """
    import torch
    import torch_xla.core.xla_model as xm
    from torch_xla.amp.autocast_mode import autocast
    theirs = autocast.__init__

    @functools.wraps(theirs)
    def init(self, device, enabled=True, dtype=None, cache_enabled=True):
        if 'xla' in str(device) and xm.xla_device_hw(device) == platform.upper():
            torch.autocast.__init__(self, 'xla', enabled=enabled, dtype=dtype or torch.bfloat16,
                                    cache_enabled=cache_enabled)
        else:
            theirs(self, device, enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)
    autocast.__init__ = init


def _reduce_with_views():
    """Makes torch.distributed's all_reduce reach the views of a tensor, as DDP has of its buckets.

    torch_xla reduces in place behind the back of PyTorch's functionalization, so that the view that was
    written last keeps what it had: DDP would leave one gradient of each bucket as it is.
    """
    import torch
    import torch_xla.core.xla_model as xm
    from torch_xla.distributed import xla_backend

    def allreduce(self, tensors, all_reduce_options):
        kind = self._get_reduce_type(all_reduce_options.reduceOp)
        with torch.no_grad():
            for tensor in tensors:
                tensor.copy_(xm.all_reduce(kind, tensor, groups=self._mesh, pin_layout=False))
        return xla_backend._ret_work(tensors)
    xla_backend.ProcessGroupXla.allreduce = allreduce


_LEAVING_SECONDS = 60  # how long rank 0 waits at its end for the others


@functools.cache
def _leave_last(rank):
    """Has rank 0 of a machine stay until the others have ended.

    torch_xla's coordinator ends with the process of rank 0, and then ends whoever is still there. All
    others hold a lock as long as they live, whatever they die of.
    """
    path = os.path.join(tempfile.gettempdir(), f'hekla-ranks-{os.getuid()}')
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    at = int(os.environ.get('XLA_COORDINATOR_PORT') or 0)  # a byte of the file for each run
    if rank:
        fcntl.lockf(file, fcntl.LOCK_SH, 1, at)
        return

    def wait():
        end = time.monotonic() + _LEAVING_SECONDS
        while time.monotonic() < end:
            try:
                return fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
            except OSError:
                time.sleep(0.02)
    # Unlike atexit it runs in processes of multiprocessing too, which torch_xla.launch starts.
    multiprocessing.util.Finalize(None, wait, exitpriority=-100)


def _integer(*names, default):
    """The first of these variables that is set."""
    for name in names:
        if os.environ.get(name):
            return int(os.environ[name])
    return default


def _processes():
    """(rank of this process, their number), found as torch_xla finds them for its coordinator."""
    rank = _integer('RANK', 'PJRT_LOCAL_PROCESS_RANK', 'LOCAL_RANK', default=0)
    count = _integer('WORLD_SIZE', 'PJRT_LOCAL_PROCESS_COUNT', 'LOCAL_WORLD_SIZE', default=1)
    return rank, count


class _Plugin(plugins.DevicePlugin):
    platform = ''  # as hekla.plugins() names it

    def physical_chip_count(self):
        # torch_xla.launch asks for the number of processes that it is about to start. They inherit a
        # port for their coordinator, so that two programs on one machine do not share one.
        count = _integer('HEKLA_NUM_PROCESSES', default=1)
        if count > 1 and not os.environ.get('XLA_COORDINATOR_PORT'):
            with socket.socket() as free:
                free.bind(('127.0.0.1', 0))
                os.environ['XLA_COORDINATOR_PORT'] = str(free.getsockname()[1])
        return count

    def configure_single_process(self):
        # torch_xla.launch(debug_single_process=True): one process, whose first device is used.
        pass

    def configure_multiprocess(self, local_rank, local_world_size):
        # The processes share the cores; before the client is made.
        share = max(1, len(os.sched_getaffinity(0)) // local_world_size)
        os.environ.setdefault('HEKLA_NUM_THREADS', str(share))

    def requires_xla_coordinator(self):
        return _processes()[1] > 1

    def client_create_options(self):
        rank, count = _processes()
        if count == 1:
            return {}
        _leave_last(rank)  # torch_xla asks once
        return {'node_id': rank, 'num_nodes': count}

    def library_path(self):
        # torch_xla asks once, when the chosen device is opened.
        _open_autocast(self.platform)
        _reduce_with_views()
        return hekla.plugin_path(self.platform)


class Vulkan(_Plugin):
    """PJRT_DEVICE=VULKAN: the first Vulkan device."""
    platform = 'vulkan'


class Cpu(_Plugin):
    """PJRT_DEVICE=HEKLA_CPU: this machine's cores."""
    platform = 'tbb'


class Reference(_Plugin):
    """PJRT_DEVICE=HEKLA_REFERENCE: the evaluator, slow and right."""
    platform = 'reference'


# torch_xla takes what stands before the first "_" of PJRT_DEVICE for the plugin's name where it asks
# one how to start processes. In that all of ours are alike.
plugins._plugin_registry.setdefault('HEKLA', Cpu())
