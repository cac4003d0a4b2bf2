#!/usr/bin/python3
"""Writes MODEL.npz for five models trained by PyTorch: what test_golden.c compares with.

The files in the repository are from Debian 12's python3-torch 1.13.1 (CPU):
    /usr/bin/python3 tests/tools/golden/models.py tests/tools/golden
Each file has x and y; the initial weights "w/NAME"; the scores of the first forward; its gradients
"g/NAME"; the losses of ten steps. All in float64. Names are those of the layers in C.
"""
import sys

import numpy
import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


def made(seed, *shape):
    """Numbers of a fixed pattern, without a generator, in -1 … 1."""
    n = int(numpy.prod(shape))
    return torch.tensor([((i * 37 + seed * 101) % 211) / 105 - 1 for i in range(n)]).reshape(shape)


def labels(n, classes):
    return torch.tensor([(i * 5 + 2) % classes for i in range(n)])


class Gru(nn.Module):
    """Words → GRU → the last state → scores. The weights of the GRU are one vector, as cuDNN's."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 5)
        self.gru = nn.GRU(5, 6)
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(self.gru(self.words(x).transpose(0, 1))[0][-1])


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        B, T, W = x.shape
        q, k, v = (p.reshape(B, T, self.heads, -1).transpose(1, 2) for p in self.qkv(x).chunk(3, 2))
        score = q @ k.transpose(2, 3) / (W / self.heads) ** 0.5
        score = score.masked_fill(torch.ones(T, T).triu(1).bool(), -numpy.inf)
        return self.out((score.softmax(3) @ v).transpose(1, 2).reshape(B, T, W))


class Transformer(nn.Module):
    """A block with the norms first, causal, over words; scores of each position."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(7, 8)
        self.attend = nn.ModuleDict({"norm": nn.LayerNorm(8), "attention": Attention(8, 2)})
        self.mlp = nn.ModuleDict({"norm": nn.LayerNorm(8), "fc1": nn.Linear(8, 32), "fc2": nn.Linear(32, 8)})
        self.scores = nn.Linear(8, 7)

    def forward(self, x):
        h = self.words(x)
        h = h + self.attend["attention"](self.attend["norm"](h))
        h = h + self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.mlp["norm"](h))))
        return self.scores(h).reshape(-1, 7)


def sequence(**layers):
    net = nn.Sequential()
    for name, layer in layers.items():
        net.add_module(name, layer)
    return net


def weights(net):
    """(name, parts): the parts of a GRU are one parameter, weights first, then biases."""
    out = {}
    for name, p in net.named_parameters():
        out.setdefault("gru.weight" if name.startswith("gru.") else name, []).append(p)
    return out


def flat(parts, value):
    values = [value(p) for p in parts]
    return values[0] if len(parts) == 1 else torch.cat([v.flatten() for v in values])


def run(net, x, y, optimizer):
    out = {"x": x, "y": y}
    for i, p in enumerate(net.parameters()):
        scale = 1 / p.shape[-1] ** 0.5 if p.dim() > 1 else 0.1
        p.data = made(i + 1, *p.shape) * scale
    for name, parts in weights(net).items():
        out["w/" + name] = flat(parts, lambda p: p.detach().clone())
    step, losses = optimizer(net.parameters()), []
    for i in range(10):
        step.zero_grad()
        scores = net(x)
        loss = F.cross_entropy(scores, y)
        loss.backward()
        losses.append(loss.item())
        if i == 0:
            out["scores"] = scores.detach()
            for name, parts in weights(net).items():
                out["g/" + name] = flat(parts, lambda p: p.grad.clone())
        step.step()
    out["losses"] = torch.tensor(losses)
    return {k: v.numpy() for k, v in out.items()}


def main(folder):
    image, words = made(9, 4, 1, 28, 28), torch.tensor([[(i * 3 + j * j) % 7 for j in range(6)] for i in range(5)])
    lenet = sequence(conv1=nn.Conv2d(1, 3, 5), relu1=nn.ReLU(), pool1=nn.MaxPool2d(2), conv2=nn.Conv2d(3, 4, 5),
                     relu2=nn.ReLU(), pool2=nn.MaxPool2d(2), flatten=nn.Flatten(), fc1=nn.Linear(64, 12),
                     relu3=nn.ReLU(), fc2=nn.Linear(12, 10))
    mlp = sequence(fc1=nn.Linear(13, 8), relu=nn.ReLU(), fc2=nn.Linear(8, 5))
    o = torch.optim
    models = {
        "softmax": (sequence(fc=nn.Linear(17, 5)), made(7, 6, 17), labels(6, 5), lambda p: o.SGD(p, 0.1)),
        "mlp": (mlp, made(8, 7, 13), labels(7, 5), lambda p: o.SGD(p, 0.05, momentum=0.9)),
        "lenet": (lenet, image, labels(4, 10), lambda p: o.Adam(p, 0.01)),
        "gru": (Gru(), words, labels(5, 3), lambda p: o.SGD(p, 0.1, momentum=0.8, nesterov=True)),
        "transformer": (Transformer(), words, labels(30, 7), lambda p: o.AdamW(p, 0.01, weight_decay=0.1)),
    }
    for name, (net, x, y, optimizer) in models.items():
        numpy.savez_compressed(f"{folder}/{name}.npz", **run(net, x, y, optimizer))


main(sys.argv[1] if len(sys.argv) > 1 else ".")
