#!/usr/bin/python3
"""Writes attention.h: scaled dot products by PyTorch's small ops, and their gradients.

The numbers in the repository are from Debian 12's python3-torch 1.13.1 (CPU):
    /usr/bin/python3 tests/ops/golden/attention.py > tests/ops/golden/attention.h
Inputs are made of integers so that the C test makes the same ones. All parts come one after the
other: y, then the gradients of Σ y·weight by q, k, v.
"""
import torch

B, H, G, T, S, D, E = 2, 4, 2, 3, 5, 4, 3


def made(seed, *shape):
    n = 1
    for d in shape:
        n *= d
    values = [((i * 7 + seed * 5) % 23) / 16 - 0.6875 for i in range(n)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def run(kind):
    q, k, v = made(1, B, H, T, D), made(2, B, G, S, D), made(3, B, G, S, E)
    for t in (q, k, v):
        t.requires_grad_()
    heads = [h * G // H for h in range(H)]
    scores = q @ k[:, heads].transpose(2, 3) * (0.7 if kind == "scaled" else D ** -0.5)
    if kind == "causal":
        scores = scores + torch.full((T, S), -float("inf"), dtype=torch.float64).triu(1 + S - T)
    if kind == "masked":
        scores = scores + made(4, H, 1, S)
    y = scores.softmax(3) @ v[:, heads]
    (y * made(6, B, H, T, E)).sum().backward()
    return torch.cat([t.detach().flatten() for t in (y, q.grad, k.grad, v.grad)])


print(f"/* Made by attention.py with PyTorch {torch.__version__}; see there. */\n/* clang-format off */")
for kind in ("plain", "scaled", "causal", "masked"):
    values = [f"{v:.10g}" for v in run(kind).tolist()]
    lines = [", ".join(values[i:i + 8]) for i in range(0, len(values), 8)]
    print(f"static const double golden_{kind}[] = {{\n    " + ",\n    ".join(lines) + "};")
