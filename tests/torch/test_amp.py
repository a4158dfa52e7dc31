# SPDX-License-Identifier: Apache-2.0
"""Mixed precision: autocast in bf16 and f16, loss scaling, optimizers that skip a bad step."""
import models
import pytest
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.amp
from torch_xla.amp import syncfree

pytestmark = pytest.mark.quick


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16], ids=str)
def test_autocast(device, dtype):
    x, w = torch.randn(4, 8), torch.randn(8, 8)
    with torch.autocast('xla', dtype=dtype):
        product = x.to(device) @ w.to(device)
        loss = F.softmax(product, 1)
    assert product.dtype == dtype
    torch.testing.assert_close(product.cpu().float(), x @ w, rtol=5e-2, atol=5e-2)
    assert torch.isfinite(loss.cpu()).all()


@pytest.mark.parametrize('dtype', [None, torch.bfloat16, torch.float16], ids=str)
def test_autocast_of_torch_xla(device, dtype, platform):
    if platform == 'cpu':
        pytest.skip('upstream has it for TPUs alone')
    with torch_xla.amp.autocast(device, **({} if dtype is None else {'dtype': dtype})):
        product = torch.ones(2, 3, device=device) @ torch.ones(3, 2, device=device)
    assert product.dtype == (dtype or torch.bfloat16) and product.cpu()[0, 0] == 3
    with torch_xla.amp.autocast(device, enabled=False):
        product = torch.ones(2, 3, device=device) @ torch.ones(3, 2, device=device)
    assert product.dtype == torch.float32


@pytest.mark.parametrize('name', ['digits_cnn', 'gpt'])
def test_trains_in_bf16(device, name):
    want, _ = models.train(name, torch.device('cpu'))

    def wrap(model):
        def forward(*inputs):
            with torch.autocast('xla', dtype=torch.bfloat16):
                return model(*inputs).float()
        return forward
    got, _ = models.train(name, device, wrap=wrap)
    assert got == pytest.approx(want, rel=2e-2)


def test_scaler_skips_a_step_that_overflows(device):
    model = torch.nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(0.5)
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler('xla', init_scale=1024.0, growth_interval=2)
    for scale, value in ((1024, 1.0), (1024, 1e30), (512, 1.0), (512, 1.0), (1024, 1.0)):
        assert scaler.get_scale() == scale
        before = model.weight.detach().clone().cpu()
        optimizer.zero_grad()
        loss = model(torch.full((2, 4), value, device=device)).sum()
        loss = loss * 1e30 if value > 1 else loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        torch_xla.sync()
        after = model.weight.detach().cpu()
        torch.testing.assert_close(after, before if value > 1 else before - 0.2)


@pytest.mark.parametrize('name', ['SGD', 'Adam', 'AdamW'])
def test_syncfree_optimizers(device, name):
    options = {'lr': 0.1, **({'momentum': 0.9} if name == 'SGD' else {})}
    start, gradients = torch.randn(5), [torch.randn(5) for _ in range(3)]

    def run(cls, where, found_inf):
        p = torch.nn.Parameter(start.clone().to(where))
        optimizer = cls([p], **options)
        for step, gradient in enumerate(gradients):
            p.grad = gradient.to(where)
            if found_inf is None:
                if step != 1:
                    optimizer.step()
            else:
                optimizer.step(found_inf=torch.tensor(1.0 if step == 1 else 0.0, device=where))
                torch_xla.sync()
        return p.detach().cpu()
    torch.testing.assert_close(run(getattr(syncfree, name), device, True),
                               run(getattr(torch.optim, name), 'cpu', None), rtol=1e-4, atol=1e-5)
