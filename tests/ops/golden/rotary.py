#!/usr/bin/python3
"""Writes rotary.h: rotary embedding by PyTorch's complex numbers, and by halves.

The numbers in the repository are from Debian 12's python3-torch 1.13.1 (CPU):
    /usr/bin/python3 tests/ops/golden/rotary.py > tests/ops/golden/rotary.h
"""
import torch

T, D = 5, 6
x = torch.tensor([(i * 7 + 3) % 23 * 0.125 - 1.25 for i in range(2 * T * D)], dtype=torch.float64).reshape(2, T, D)


def angles(n, base, offset):
    return torch.outer(torch.arange(T, dtype=torch.float64) + offset,
                       base ** (-torch.arange(0, n, 2, dtype=torch.float64) / n))


def adjacent(x, base, offset):
    a = angles(x.shape[2], base, offset)
    return torch.view_as_real(torch.view_as_complex(x.reshape(2, T, -1, 2)) * torch.polar(torch.ones_like(a), a)).flatten(2)


def halves(x, base, offset):
    a = torch.cat([angles(x.shape[2], base, offset)] * 2, 1)
    half = x.shape[2] // 2
    return x * a.cos() + torch.cat([-x[..., half:], x[..., :half]], 2) * a.sin()


print(f"/* Made by rotary.py with PyTorch {torch.__version__}; see there. */\n/* clang-format off */")
for name, y in {"halves": halves(x, 10000, 0), "adjacent": adjacent(x, 100, 7),
                "part": torch.cat([halves(x[..., :4].contiguous(), 10000, 0), x[..., 4:]], 2)}.items():
    values = [f"{v:.17g}" for v in y.flatten().tolist()]
    lines = [", ".join(values[i:i + 6]) for i in range(0, len(values), 6)]
    print(f"static const double golden_{name}[] = {{\n    " + ",\n    ".join(lines) + "};")
