# SPDX-License-Identifier: Apache-2.0
"""The processes that checkpoints.py starts: one library each, driven by lines of JSON.

Started as `checkpoint_sides.py SIDE '{"kind": ..., "bytes": ...}'`. Each line of the input is an
operation, {"do": NAME, ...}, each line of the output its result, {"error": ...} when it failed.
"""
import gc
import json
import mmap
import os
import pathlib
import resource
import shutil
import sys
import threading
import time

ROWS = 4096  # of each tensor; f32, so 4,096 columns are 64 MiB


def cpu_seconds():
    mine, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF,
                                                        resource.RUSAGE_CHILDREN))
    return mine.ru_utime + mine.ru_stime + others.ru_utime + others.ru_stime


def status_bytes(field):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def io_counters():
    """Of this process: bytes asked of the kernel (rchar) and of the disk (read_bytes)."""
    return {key: int(value) for key, value in
            (line.split(": ") for line in
             pathlib.Path("/proc/self/io").read_text().splitlines())}


def files_below(folder):
    return [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]


def settle(folder):
    """Syncs what a library has left to the kernel; next to no time where it has synced itself."""
    start = time.perf_counter()
    for path in [*files_below(folder), *(p for p in pathlib.Path(folder).rglob("*") if p.is_dir()),
                 pathlib.Path(folder), pathlib.Path(folder).parent]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    return time.perf_counter() - start


def drop_cache(folder):
    for path in files_below(folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def forget(folder):
    settle(folder)
    drop_cache(folder)
    return {}


def begin_peak():
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew


def private_memory(total):
    memory = mmap.mmap(-1, total, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, total, 4096):
        memory[at] = 1
    return memory


def warm_memory(total):
    """Takes and frees memory, so that whoever comes next does not pay for pages that the host of a
    virtual machine has taken back: seconds for each GB, by chance for one side or the other."""
    private_memory(total).close()


def make_arrays(total):
    """name -> f32 matrix of 64 MiB that does not compress, the last one smaller."""
    import numpy as np
    rng = np.random.default_rng(7)
    arrays, row = {}, 4 * ROWS
    rows = max(total // row, 4)
    while rows > 0:
        take = min(rows, ROWS)
        arrays[f"layer{len(arrays):03}"] = rng.random((take, ROWS), np.float32)
        rows -= take
    return arrays


class Side:
    """What all libraries are asked for; a step lies in `folder_of(step)`."""

    def __init__(self, options):
        self.kind = options["kind"]
        self.root = pathlib.Path(options["folder"])
        self.state = self.make_state(make_arrays(options["bytes"]))
        self.bytes = options["bytes"]
        self.threads = options.get("step_threads", 1)
        self.background_bandwidth = options.get("background_bandwidth")

    def make_state(self, arrays):
        if self.kind == "jax":
            import jax
            # Copies: the arrays are XLA's own, as those of a training step.
            return {name: jax.numpy.array(array).block_until_ready()
                    for name, array in arrays.items()}
        if self.kind == "torch":
            import torch
            return {name: torch.from_numpy(array) for name, array in arrays.items()}
        return arrays

    def numpy(self, leaf):
        import numpy as np
        return leaf.numpy() if self.kind == "torch" else np.asarray(leaf)

    def open(self):
        gc.collect()
        self.before = status_bytes("VmRSS")
        self.connect()
        return {"rss": self.before}

    def save(self, step):
        begin_peak()
        cpu, start = cpu_seconds(), time.perf_counter()
        pending = self.begin_save(step)
        blocked = time.perf_counter() - start
        self.wait(pending)
        waited = time.perf_counter() - start
        settled = settle(self.folder_of(step))
        del pending
        stored = sum(path.stat().st_size for path in files_below(self.folder_of(step)))
        return {"blocked_s": blocked, "durable_s": waited + settled, "settle_s": settled,
                "cpu_s": cpu_seconds() - cpu, "stored_bytes": stored,
                "peak_bytes": status_bytes("VmHWM") - self.before}

    def restore(self, step):
        import numpy as np
        forget(self.folder_of(step))
        warm_memory(self.bytes)
        begin_peak()
        before, cpu, start = io_counters(), cpu_seconds(), time.perf_counter()
        found = self.read(step)
        seconds, cpu = time.perf_counter() - start, cpu_seconds() - cpu
        after, peak = io_counters(), status_bytes("VmHWM") - self.before
        equal = all(np.array_equal(self.numpy(found[name]), self.numpy(leaf))
                    for name, leaf in self.state.items())
        del found
        gc.collect()
        return {"seconds": seconds, "cpu_s": cpu, "equal": equal, "peak_bytes": peak,
                **{key: after[key] - before[key] for key in ("read_bytes", "rchar")}}

    def remove(self, step):
        shutil.rmtree(self.folder_of(step))
        return {}

    def make_step(self):
        """A function that does a step of a training loop and waits for it: some ms of products."""
        import numpy as np
        size = 768
        if self.kind == "torch":
            import torch
            torch.set_num_threads(self.threads or os.cpu_count())
            x, w = torch.rand(size, size), torch.rand(size, size) / size
            return lambda: torch.tanh(torch.tanh(x @ w) @ w).sum().item()
        if self.kind == "jax":
            import jax
            x = jax.numpy.ones((size, size))
            w = jax.numpy.full((size, size), 1 / size)
            jitted = jax.jit(lambda x, w: jax.numpy.tanh(jax.numpy.tanh(x @ w) @ w).sum())
            return lambda: jitted(x, w).block_until_ready()
        x, w = np.random.rand(size, size), np.random.rand(size, size) / size
        return lambda: np.tanh(np.tanh(x @ w) @ w).sum()

    def train(self, seconds, saves, first_step):
        """Times of steps; with `saves`, one save after the other, begun within a step's time."""
        step = self.make_step()
        for _ in range(5):
            step()
        times, pending, number, done = [], None, first_step, 0
        end = time.perf_counter() + seconds
        # Until the last save has ended, so that every save counts as a whole.
        while (start := time.perf_counter()) < end or pending is not None:
            if pending is not None and self.is_done(pending):
                self.wait(pending)
                pending = None
                done += 1
                shutil.rmtree(self.folder_of(number))
                number += 1
                start = time.perf_counter()  # deleting is the benchmark's, not the library's
            if saves and pending is None and start < end:
                pending = self.begin_save(number)
            step()
            times.append(time.perf_counter() - start)
        return {"times": times, "saves": done}


class Hekla(Side):
    compress = None

    def connect(self):
        import hekla.checkpoint
        self.manager = hekla.checkpoint.CheckpointManager(
            self.root, save_interval=0, chkpt_on_preemption=False, rank=0, world_size=1,
            background_bandwidth=self.background_bandwidth, compress=self.compress)

    def folder_of(self, step):
        return self.root / f"step-{step:012}"

    def begin_save(self, step):
        return self.manager.save_async(step, self.state)

    def wait(self, pending):
        pending.wait()

    def is_done(self, pending):
        return pending.stage in ("committed", "failed", "skipped")

    def read(self, step):
        return self.manager.restore(step, like=self.state)


class HeklaZstd(Hekla):
    compress = "zstd"


class Orbax(Side):
    def connect(self):
        import orbax.checkpoint
        self.ocp = orbax.checkpoint
        self.manager = self.ocp.CheckpointManager(
            self.root.absolute(), options=self.ocp.CheckpointManagerOptions(create=True))

    def folder_of(self, step):
        return self.root / str(step)

    def begin_save(self, step):
        self.manager.save(step, args=self.ocp.args.StandardSave(self.state), force=True)
        return True

    def wait(self, pending):
        self.manager.wait_until_finished()

    def is_done(self, pending):
        return not self.manager.is_saving_in_progress()

    def abstract(self):
        import jax
        return jax.tree.map(self.ocp.utils.to_shape_dtype_struct, self.state)

    def read(self, step):
        import jax
        found = self.manager.restore(step, args=self.ocp.args.StandardRestore(self.abstract()))
        return jax.block_until_ready(found)


class Dcp(Side):
    def connect(self):
        import torch.distributed
        self.root.mkdir(parents=True, exist_ok=True)
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{self.root.absolute()}/group", rank=0, world_size=1)

    def folder_of(self, step):
        return self.root / str(step)

    def begin_save(self, step):
        import torch.distributed.checkpoint as dcp
        folder = self.folder_of(step)
        # As many threads as Hekla has; files are synced, which is the default.
        return dcp.async_save(self.state, storage_writer=dcp.FileSystemWriter(folder,
                                                                              thread_count=5))

    def wait(self, pending):
        pending.result()

    def is_done(self, pending):
        return pending.done()

    def read(self, step):
        import torch
        import torch.distributed.checkpoint as dcp
        found = {name: torch.empty_like(leaf) for name, leaf in self.state.items()}
        dcp.load(found, checkpoint_id=self.folder_of(step))
        return found


class Raw:
    """Direct I/O of the same number of bytes without a library: two threads, 8 MiB a call, memory
    at pages, space allocated first, fdatasync at the end."""

    ITEM = 8 << 20

    def __init__(self, options):
        self.root = pathlib.Path(options["folder"])
        self.root.mkdir(parents=True, exist_ok=True)
        self.path = self.root / "raw"
        self.bytes = options["bytes"] // self.ITEM * self.ITEM
        self.memory = private_memory(self.bytes)
        block = os.urandom(self.ITEM)
        for at in range(0, self.bytes, self.ITEM):
            self.memory[at:at + self.ITEM] = block
        self.view = memoryview(self.memory)

    def open(self):
        return {}

    def both(self, call):
        places = iter(range(0, self.bytes, self.ITEM))
        lock, errors = threading.Lock(), []

        def work():
            while True:
                with lock:
                    at = next(places, None)
                if at is None:
                    return
                try:
                    if call(self.view[at:at + self.ITEM], at) != self.ITEM:
                        raise OSError(f"a short transfer at {at}")
                except OSError as error:
                    errors.append(error)
                    return
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def save(self, step):
        cpu, start = cpu_seconds(), time.perf_counter()
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
        os.posix_fallocate(file, 0, self.bytes)
        self.both(lambda part, at: os.pwritev(file, [part], at))
        os.fdatasync(file)
        os.close(file)
        return {"durable_s": time.perf_counter() - start, "cpu_s": cpu_seconds() - cpu}

    def restore(self, step):
        before, cpu, start = io_counters(), cpu_seconds(), time.perf_counter()
        file = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        self.both(lambda part, at: os.preadv(file, [part], at))
        os.close(file)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "cpu_s": cpu_seconds() - cpu, "equal": True,
                "read_bytes": io_counters()["read_bytes"] - before["read_bytes"]}

    def remove(self, step):
        self.path.unlink()
        return {}


# --- resharding: one process of a group saves or restores its boxes ---

def box_of(cut, rank, world):
    """(row slice, column slice) of a matrix of ROWS x ROWS; uneven cuts as arrays are split."""
    def part(n):
        each = -(-ROWS // n)
        return slice(min(rank * each, ROWS), min((rank + 1) * each, ROWS))
    return (part(world), slice(0, ROWS)) if cut == "rows" else (slice(0, ROWS), part(world))


class Cut:
    """`do` is "save" or "restore"; every rank holds its rows or columns of every matrix."""

    def __init__(self, options):
        self.o = options
        self.root = pathlib.Path(options["folder"])
        rows, columns = box_of(options["cut"], options["rank"], options["world"])
        self.box = rows, columns
        self.arrays = {name: array[rows, columns].copy()
                       for name, array in make_arrays(options["bytes"]).items()}

    def measure(self, function):
        before, start = io_counters(), time.perf_counter()
        found = function()
        after = io_counters()
        return found, {"seconds": time.perf_counter() - start,
                       "bytes_held": sum(a.nbytes for a in self.arrays.values()),
                       **{key: after[key] - before[key] for key in ("read_bytes", "rchar")}}

    def check(self, found, result):
        import numpy as np
        result["equal"] = all(np.array_equal(np.asarray(found[name]), array)
                              for name, array in self.arrays.items())
        return result


class HeklaCut(Cut):
    compress = None

    def open(self):
        import hekla.checkpoint as checkpoint
        self.part = checkpoint.Part
        self.manager = checkpoint.CheckpointManager(
            self.root, save_interval=0, chkpt_on_preemption=False, rank=self.o["rank"],
            world_size=self.o["world"], store=f"file:{self.o['store']}", compress=self.compress)
        start = [s.start for s in self.box]
        self.state = {name: checkpoint.Part(array, start, (ROWS, ROWS))
                      for name, array in self.arrays.items()}
        return {}

    def save(self):
        self.manager.save(1, self.state)
        return {}

    def restore(self):
        found, result = self.measure(lambda: self.manager.restore(1, like=self.state))
        return self.check({name: part.array for name, part in found.items()}, result)


class HeklaZstdCut(HeklaCut):
    compress = "zstd"


class DcpCut(Cut):
    def open(self):
        import torch
        import torch.distributed
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Shard
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{self.o['store']}.group", rank=self.o["rank"],
            world_size=self.o["world"])
        mesh = init_device_mesh("cpu", (self.o["world"],))
        dim = 0 if self.o["cut"] == "rows" else 1
        self.wrap = lambda tensor: DTensor.from_local(
            tensor, mesh, [Shard(dim)], run_check=False, shape=torch.Size((ROWS, ROWS)),
            stride=(ROWS, 1))
        return {}

    def save(self):
        import torch
        import torch.distributed.checkpoint as dcp
        state = {name: self.wrap(torch.from_numpy(array)) for name, array in self.arrays.items()}
        dcp.save(state, checkpoint_id=self.root / "1")
        return {}

    def restore(self):
        import torch
        import torch.distributed.checkpoint as dcp
        state = {name: self.wrap(torch.empty(array.shape)) for name, array in self.arrays.items()}
        _, result = self.measure(lambda: dcp.load(state, checkpoint_id=self.root / "1"))
        return self.check({name: t.to_local().numpy() for name, t in state.items()}, result)


class JaxCut:
    """One process with `devices` devices; the matrices are cut over them. Hekla, with its values as
    they are or compressed, or Orbax."""

    def __init__(self, options):
        import jax
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        self.o = options
        self.is_hekla = options["library"] != "orbax"
        self.root = pathlib.Path(options["folder"])
        import numpy as np
        mesh = Mesh(np.array(jax.devices()[:options["devices"]]), ("x",))
        spec = PartitionSpec("x", None) if options["cut"] == "rows" else PartitionSpec(None, "x")
        self.sharding = NamedSharding(mesh, spec)
        self.arrays = make_arrays(options["bytes"])
        self.state = {name: jax.device_put(array, self.sharding)
                      for name, array in self.arrays.items()}
        jax.block_until_ready(self.state)

    def open(self):
        if self.is_hekla:
            import hekla.checkpoint as checkpoint
            self.manager = checkpoint.CheckpointManager(
                self.root, save_interval=0, chkpt_on_preemption=False, rank=0, world_size=1,
                compress="zstd" if self.o["library"] == "hekla-zstd" else None)
        else:
            import orbax.checkpoint as ocp
            self.ocp = ocp
            self.manager = ocp.CheckpointManager(self.root.absolute())
        return {}

    def save(self):
        if self.is_hekla:
            self.manager.save(1, self.state)
        else:
            self.manager.save(1, args=self.ocp.args.StandardSave(self.state))
            self.manager.wait_until_finished()
        return {}

    def restore(self):
        import jax
        import numpy as np
        before, start = io_counters(), time.perf_counter()
        if self.is_hekla:
            found = self.manager.restore(1, like=self.state)
        else:
            like = {name: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=self.sharding)
                    for name, a in self.arrays.items()}
            found = self.manager.restore(1, args=self.ocp.args.StandardRestore(like))
        jax.block_until_ready(found)
        seconds, after = time.perf_counter() - start, io_counters()
        return {"seconds": seconds, "bytes_held": sum(a.nbytes for a in self.arrays.values()),
                "equal": all(np.array_equal(np.asarray(found[n]), a)
                             for n, a in self.arrays.items()),
                **{key: after[key] - before[key] for key in ("read_bytes", "rchar")}}


SIDES = {"hekla": Hekla, "hekla-zstd": HeklaZstd, "orbax": Orbax, "dcp": Dcp, "raw": Raw, "hekla-cut": HeklaCut,
         "hekla-zstd-cut": HeklaZstdCut, "dcp-cut": DcpCut, "jax-cut": JaxCut}


def main():
    # What libraries print goes to the error output; answers have the output to themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(document):
        answers.write(json.dumps(document) + "\n")
        answers.flush()

    def attempt(function):
        try:
            answer(function())
        except Exception as error:  # of any library; the parent says it
            answer({"error": f"{type(error).__name__}: {error}"[:600]})

    made = []
    attempt(lambda: made.append(SIDES[sys.argv[1]](json.loads(sys.argv[2]))) or {})
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "drop_cache":
            attempt(lambda: forget(request["folder"]))
            continue
        attempt(lambda: getattr(made[0], request.pop("do"))(**request))
    answers.flush()
    # Past the libraries' own threads, which may wait for peers that are gone.
    os._exit(0)


if __name__ == "__main__":
    main()
