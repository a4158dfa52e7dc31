# SPDX-License-Identifier: Apache-2.0
"""Small networks of the kinds that people train, and one way of training them on any device."""
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn


class DigitsCnn(nn.Module):
    """Convolutions, batch norm, max pooling and dropout-free heads, as the MNIST examples have."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 5), nn.Conv2d(8, 16, 5)
        self.norm = nn.BatchNorm2d(8)
        self.hidden, self.out = nn.Linear(256, 32), nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.norm(self.first(x)), 2))
        x = F.relu(F.max_pool2d(self.second(x), 2))
        return F.log_softmax(self.out(F.relu(self.hidden(x.flatten(1)))), dim=1)


class _Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.skip = nn.Identity() if stride == 1 and inputs == outputs else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


class ResNet18(nn.Module):
    """Two basic blocks at each of four widths; width 64 is the one of the paper (He et al., 2015)."""

    def __init__(self, width=64, classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width),
                                  nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        blocks, inputs = [], width
        for level in range(4):
            outputs = width << level
            blocks += [_Block(inputs, outputs, 1 if level == 0 else 2), _Block(outputs, outputs, 1)]
            inputs = outputs
        self.blocks, self.out = nn.Sequential(*blocks), nn.Linear(inputs, classes)

    def forward(self, x):
        return self.out(self.blocks(self.stem(x)).mean((2, 3)))


class _Attention(nn.Module):
    def __init__(self, width, heads, is_causal):
        super().__init__()
        self.heads, self.is_causal = heads, is_causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads) \
            .permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
        if self.is_causal:
            future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(future, float('-inf'))
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], float('-inf'))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))


class _Layer(nn.Module):
    def __init__(self, width, heads, is_causal):
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = _Attention(width, heads, is_causal)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, mask=None):
        x = x + self.attention(self.before(x), mask)
        return x + self.mlp(self.after(x))


class Gpt(nn.Module):
    def __init__(self, words=64, length=32, width=32, heads=4, layers=2):
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(_Layer(width, heads, True) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        nn.init.normal_(self.words.weight, std=0.02)
        self.tie()

    def tie(self):
        """Once more after a move to a device, where torch_xla makes two parameters of a shared one."""
        self.out.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norm(x))


class Bert(nn.Module):
    """Masked words: an encoder over padded sentences with two kinds of segments."""

    def __init__(self, words=64, length=16, width=32, heads=4, layers=2):
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width, padding_idx=0), nn.Embedding(length, width)
        self.segments, self.norm = nn.Embedding(2, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList(_Layer(width, heads, False) for _ in range(layers))
        self.out = nn.Linear(width, words)

    def forward(self, tokens, segments):
        x = self.words(tokens) + self.segments(segments)
        x = self.norm(x + self.positions(torch.arange(tokens.shape[1], device=tokens.device)))
        for layer in self.layers:
            x = layer(x, tokens != 0)
        return self.out(x)


class Lstm(nn.Module):
    def __init__(self, inputs=6, width=16, layers=2):
        super().__init__()
        self.lstm, self.out = nn.LSTM(inputs, width, layers, batch_first=True), nn.Linear(width, 1)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


def _words(count, length, words=64):
    tokens = torch.randint(1, words, (count, length + 1))
    tokens[:, 1::2] = (tokens[:, :-1:2] * 3 + 1) % words  # something to learn
    return tokens


def case(name, **sizes):
    """(model, batches, loss function of model and batch, optimizer of parameters) on the CPU."""
    torch.manual_seed(7)
    if name == 'digits_cnn':
        batches = [(torch.randn(8, 1, 28, 28), torch.randint(10, (8,))) for _ in range(2)]
        return (DigitsCnn(), batches, lambda m, b: F.nll_loss(m(b[0]), b[1]),
                lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9))
    if name == 'resnet18':
        size = sizes.pop('size', 32)
        batch = sizes.pop('batch', 8)
        batches = [(torch.randn(batch, 3, size, size), torch.randint(10, (batch,))) for _ in range(2)]
        return (ResNet18(**{'width': 8, **sizes}), batches, lambda m, b: F.cross_entropy(m(b[0]), b[1]),
                lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=1e-4))
    if name == 'gpt':
        length = sizes.get('length', 32)
        batch = sizes.pop('batch', 4)
        words = sizes.get('words', 64)
        batches = [(_words(batch, length, words),) for _ in range(2)]

        def next_word(m, b):
            return F.cross_entropy(m(b[0][:, :-1]).flatten(0, 1), b[0][:, 1:].flatten())
        return Gpt(**sizes), batches, next_word, lambda p: torch.optim.AdamW(p, lr=1e-3)
    if name == 'bert':
        batches = []
        for _ in range(2):
            tokens = _words(4, 15)
            tokens[1, 10:] = 0
            hidden = (torch.rand(tokens.shape) < 0.2) & (tokens != 0)
            segments = (torch.arange(16) > 8).long().expand(4, 16)
            batches.append((tokens.masked_fill(hidden, 1), segments, tokens.masked_fill(~hidden, -100)))
        return (Bert(**sizes), batches,
                lambda m, b: F.cross_entropy(m(b[0], b[1]).flatten(0, 1), b[2].flatten(),
                                             ignore_index=-100),
                lambda p: torch.optim.Adam(p, lr=1e-3))
    if name == 'lstm':
        batches = [(x := torch.randn(4, 7, 6), x.sum((1, 2))[:, None] / 6) for _ in range(2)]
        return (Lstm(**sizes), batches, lambda m, b: F.mse_loss(m(b[0]), b[1]),
                lambda p: torch.optim.Adagrad(p, lr=0.05))
    raise ValueError(name)


CASES = ('digits_cnn', 'resnet18', 'gpt', 'bert', 'lstm')


def train(name, device, steps=4, dtype=None, wrap=None, **sizes):
    """Losses of so many steps and the trained model; steps are cut by torch_xla.sync."""
    model, batches, loss_of, optimizer_of = case(name, **sizes)
    model = copy.deepcopy(model).to(device, dtype)
    if isinstance(model, Gpt):
        model.tie()
    forward = wrap(model) if wrap else model
    optimizer = optimizer_of(model.parameters())
    def placed(x):
        return x.to(device, dtype if x.is_floating_point() else None)
    batches = [tuple(placed(x) for x in b) for b in batches]
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(forward, batches[step % len(batches)])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if device.type == 'xla':
            import torch_xla
            torch_xla.sync()
    return [float(loss) for loss in losses], model
