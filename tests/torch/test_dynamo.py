# SPDX-License-Identifier: Apache-2.0
"""torch.compile(backend='openxla'): inference and training."""
import models
import pytest
import torch
import torch_xla
import torch_xla.debug.metrics as metrics

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def test_infers(device):
    model, batches, _, _ = models.case('digits_cnn')
    model.eval()
    want = model(batches[0][0])
    with torch.no_grad():
        compiled = torch.compile(model.to(device), backend='openxla')
        for _ in range(3):
            got = compiled(batches[0][0].to(device))
    torch.testing.assert_close(got.cpu(), want.detach(), rtol=1e-4, atol=1e-5)
    assert metrics.counter_value('CachedCompile') is None or metrics.metric_data('CompileTime')[0] <= 4


def test_recompiles_for_another_shape(device):
    compiled = torch.compile(lambda x: (x * 2).sum(0), backend='openxla')
    for rows in (2, 5, 2):
        assert compiled(torch.ones(rows, 3, device=device)).tolist() == [2.0 * rows] * 3


def test_updates_its_input(device):
    @torch.compile(backend='openxla')
    def step(x):
        x.add_(1)
        return x * 2
    x = torch.zeros(3, device=device)
    assert step(x).tolist() == [2.0] * 3 and step(x).tolist() == [4.0] * 3
    assert x.tolist() == [2.0] * 3


@pytest.mark.parametrize('name', ['digits_cnn', 'gpt'])
def test_trains(device, name):
    want, _ = models.train(name, torch.device('cpu'))
    got, _ = models.train(name, device,
                          wrap=lambda model: torch.compile(model, backend='openxla'))
    assert got == pytest.approx(want, rel=1e-3)


def test_trains_with_a_compiled_step(device):
    model = torch.nn.Linear(3, 1).to(device)
    twin = torch.nn.Linear(3, 1)
    twin.load_state_dict({k: v.cpu() for k, v in model.state_dict().items()})

    def run(net, where, compiled):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()
        step = torch_xla.compile(step) if compiled else step
        return [step(torch.ones(4, 3, device=where)).item() for _ in range(3)]
    assert run(model, device, True) == pytest.approx(run(twin, 'cpu', False), rel=1e-4)
