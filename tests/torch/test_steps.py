# SPDX-License-Identifier: Apache-2.0
"""How torch_xla cuts, compiles, names and counts steps; eager mode; loaders; checkpointing."""
import subprocess
import time

import models
import pytest
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as metrics
import torch_xla.distributed.parallel_loader as parallel_loader
from conftest import build_dir
from torch_xla.utils.checkpoint import checkpoint

pytestmark = pytest.mark.quick


def test_each_program_is_compiled_once(device):
    for step in range(5):
        x = torch.full((4,), float(step), device=device) * 3
        torch_xla.sync()
        assert x.tolist() == [step * 3.0] * 4
    # One program for 0 and 1, which torch_xla folds, and one for all others, and their reads.
    assert metrics.metric_data('CompileTime')[0] <= 4
    # A launch is counted when its event's callback goes, a moment after its result is there.
    deadline = time.monotonic() + 10
    while metrics.metric_data('ExecuteTime')[0] < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert metrics.metric_data('ExecuteTime')[0] >= 5
    report = metrics.metrics_report()
    assert 'Metric: CompileTime' in report and 'Counter: MarkStep' in report
    assert metrics.short_metrics_report()


def test_mark_step(device):
    x = torch.ones(3, device=device) + 1
    xm.mark_step()
    assert metrics.counter_value('MarkStep') == 1
    xm.wait_device_ops()
    assert x.tolist() == [2.0] * 3
    y = x * 2
    xm.unlazy([y])
    assert 'placeholder' not in torch_xla._XLAC._get_xla_tensors_text([y]) and y.tolist() == [4.0] * 3


def test_sync_waits_when_it_is_told_to(device):
    x = torch.ones(256, 256, device=device)
    y = x @ x
    torch_xla.sync(wait=True)
    assert y[3, 4].item() == 256


def test_compile_and_step(device):
    @torch_xla.compile
    def step(x):
        return (x * 2).sum()
    assert step(torch.ones(4, device=device)).item() == 8
    with torch_xla.step():
        y = torch.ones(2, device=device) * 5
    assert y.tolist() == [5.0, 5.0]


def test_full_graph_refuses_a_read(device):
    def reads(x):
        return x * x.sum().item()
    with pytest.raises(RuntimeError, match='(?i)unexpected execution'):
        torch_xla.compile(reads, full_graph=True)(torch.ones(4, device=device))
    whole = torch_xla.compile(lambda x: x * x.sum(), full_graph=True)
    assert whole(torch.ones(4, device=device)).tolist() == [4.0] * 4


def test_closures_run_after_their_step(device):
    seen = []
    for step in range(3):
        x = torch.full((2,), float(step), device=device).sum()
        xm.add_step_closure(lambda value, step=step: seen.append((step, value.item())), args=(x,))
        torch_xla.sync()
    assert seen == [(0, 0.0), (1, 2.0), (2, 4.0)]
    xm.add_step_closure(lambda value: seen.append(value.item()), args=(x + 1,), run_async=True)
    torch_xla.sync()
    for _ in range(200):
        if len(seen) == 4:
            break
        time.sleep(0.05)
    assert seen[3] == 5.0


def test_stablehlo_of_what_is_pending(device, tmp_path):
    x = torch.ones(2, 3, device=device)
    y = (x @ x.T).tanh()
    text = xm.get_stablehlo([y])
    assert 'stablehlo.dot_general' in text and 'stablehlo.tanh' in text
    bytecode = xm.get_stablehlo_bytecode([y])
    assert bytecode.startswith(b'ML\xefR')
    (tmp_path / 'program.mlirbc').write_bytes(bytecode)
    printed = subprocess.run([build_dir() / 'bin' / 'hekla', 'compile', tmp_path / 'program.mlirbc',
                              '--emit', 'stablehlo'], capture_output=True, text=True, check=True)
    assert 'stablehlo.tanh' in printed.stdout


def test_eager_mode(device):
    import torch_xla.experimental as experimental
    with experimental.eager_mode_context(True):
        assert experimental.is_eager_mode()
        x = torch.arange(4., device=device)
        y = (x + 1) * 2
        # Operations run on a thread of their own: they are counted once their results are there.
        assert y.tolist() == [2.0, 4.0, 6.0, 8.0]
        assert metrics.metric_data('EagerOpExecuteTime')[0] >= 2

        @torch_xla.compile
        def step(x):
            return x.exp().sum()
        torch.testing.assert_close(step(x).cpu(), torch.arange(4.).exp().sum())
    assert not experimental.is_eager_mode()


def test_optimization_barrier(device):
    x = torch.ones(3, device=device) + 1
    xm.optimization_barrier_([x])
    assert (x * 2).tolist() == [4.0] * 3


def test_optimizer_step_of_xm(device):
    model = torch.nn.Linear(2, 1).to(device)
    before = model.weight.clone().cpu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(torch.ones(3, 2, device=device)).sum().backward()
    xm.optimizer_step(optimizer, barrier=True)
    torch.testing.assert_close(model.weight.cpu(), before - 1.5)


def batches(count):
    return [(torch.full((2, 3), float(i)), torch.tensor([i, i + 1])) for i in range(count)]


def test_loaders_bring_batches_in_order(device):
    loader = parallel_loader.ParallelLoader(batches(5), [device], loader_prefetch_size=2,
                                            device_prefetch_size=1)
    got = [(x.sum().item(), y.tolist()) for x, y in loader.per_device_loader(device)]
    assert got == [(6.0 * i, [i, i + 1]) for i in range(5)]
    both = parallel_loader.MpDeviceLoader(batches(3), device)
    assert len(both) == 3
    for _ in range(2):  # epochs
        seen = []
        for x, y in both:
            assert x.device == device
            seen.append((x * 2).sum())
        assert [value.item() for value in seen] == [0.0, 12.0, 24.0]


def test_loader_of_torch(device):
    data = torch.utils.data.TensorDataset(torch.arange(10.)[:, None], torch.arange(10))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    total = torch.zeros((), device=device)
    for x, y in parallel_loader.MpDeviceLoader(loader, device):
        total = total + (x[:, 0] * y).sum()
    assert total.item() == sum(i * i for i in range(10))


def test_checkpointed_gradients_are_the_same(device):
    def wrap(model):
        def forward(x):
            x = torch.relu(torch.max_pool2d(model.first(x), 2))
            x = checkpoint(lambda t: torch.relu(torch.max_pool2d(model.second(t), 2)), x)
            return torch.log_softmax(model.out(torch.relu(model.hidden(x.flatten(1)))), 1)
        return forward
    got, _ = models.train('digits_cnn', device, steps=2, wrap=wrap)

    def plain(model):
        def forward(x):
            for layer in (model.first, model.second):
                x = torch.relu(torch.max_pool2d(layer(x), 2))
            return torch.log_softmax(model.out(torch.relu(model.hidden(x.flatten(1)))), 1)
        return forward
    want, _ = models.train('digits_cnn', torch.device('cpu'), steps=2, wrap=plain)
    assert got == pytest.approx(want, rel=1e-4)


def test_scan(device):
    from torch_xla.experimental.scan import scan

    def step(carry, x):
        return carry * 0.5 + x, carry
    init, xs = torch.zeros(3, device=device), torch.arange(12., device=device).reshape(4, 3)
    last, history = scan(step, init, xs)
    carry, want = torch.zeros(3), []
    for x in torch.arange(12.).reshape(4, 3):
        want.append(carry)
        carry = carry * 0.5 + x
    torch.testing.assert_close(last.cpu(), carry)
    torch.testing.assert_close(history.cpu(), torch.stack(want))
