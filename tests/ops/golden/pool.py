#!/usr/bin/python3
"""Writes pool.h: pooling to a size and back from windows, by PyTorch.

The numbers in the repository are from Debian 12's python3-torch 1.13.1 (CPU):
    /usr/bin/python3 tests/ops/golden/pool.py > tests/ops/golden/pool.h
The array is made of integers so that the C test makes the same one; no two elements are equal.
"""
import torch
import torch.nn.functional as F

x = torch.tensor([(i * 37 + 11) % 211 / 8 - 13 for i in range(2 * 3 * 7 * 5)], dtype=torch.float64).reshape(2, 3, 7, 5)


def emit(name, t):
    values = [f"{v:.17g}" for v in t.flatten().tolist()]
    lines = [", ".join(values[i:i + 6]) for i in range(0, len(values), 6)]
    print(f"static const double golden_{name}[] = {{\n    " + ",\n    ".join(lines) + "};")


def gradient(f):
    y = x.clone().requires_grad_()
    out = f(y)
    weights = torch.arange(out.numel(), dtype=torch.float64).reshape(out.shape)
    return torch.autograd.grad(out, y, weights)[0]


print(f"/* Made by pool.py with PyTorch {torch.__version__}; see there. */\n/* clang-format off */")
emit("adaptive_avg", F.adaptive_avg_pool2d(x, (3, 2)))
emit("adaptive_avg_dx", gradient(lambda x: F.adaptive_avg_pool2d(x, (3, 2))))
emit("adaptive_avg_even", F.adaptive_avg_pool2d(x, (7, 1)))
emit("adaptive_avg_more", F.adaptive_avg_pool2d(x, (9, 5)))
emit("adaptive_max", F.adaptive_max_pool2d(x, (3, 2)))
emit("adaptive_max_dx", gradient(lambda x: F.adaptive_max_pool2d(x, (3, 2))))
emit("adaptive_line", F.adaptive_avg_pool1d(x.reshape(2, 3, 35), 4))
emit("adaptive_cube", F.adaptive_max_pool3d(x.reshape(1, 2, 3, 7, 5), (2, 3, 5)))
emit("global_avg", x.mean((2, 3)))
emit("global_max", x.amax((2, 3)))
values, places = F.max_pool2d(x, 2, return_indices=True)
emit("maxunpool", F.max_unpool2d(values, places, 2, output_size=(7, 5)))
values, places = F.max_pool2d(x, 3, stride=3, padding=1, return_indices=True)
emit("maxunpool_padded", F.max_unpool2d(values, places, 3, stride=3, padding=1, output_size=(7, 5)))
emit("unpool", F.interpolate(x[:, :, :3, :2], scale_factor=2))
