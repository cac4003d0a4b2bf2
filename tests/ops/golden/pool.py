#!/usr/bin/python3
"""Writes pool.h: pooling to a size and back from windows, by PyTorch.

The numbers in the repository are from Debian 12's python3-torch 1.13.1 (CPU):
    /usr/bin/python3 tests/ops/golden/pool.py > tests/ops/golden/pool.h
The arrays are made of integers so that the C test makes the same ones; no two elements are
equal. The parts of a name in _both come one after the other: y, then the gradient of
Σ y·(0 … n-1).
"""
import torch
import torch.nn.functional as F

x = torch.tensor([(i * 37 + 11) % 211 / 8 - 13 for i in range(2 * 3 * 7 * 5)], dtype=torch.float64).reshape(2, 3, 7, 5)


def emit(name, t, columns=6):
    values = [f"{v:.17g}" for v in t.flatten().tolist()]
    lines = [", ".join(values[i:i + columns]) for i in range(0, len(values), columns)]
    print(f"static const double golden_{name}[] = {{\n    " + ",\n    ".join(lines) + "};")


def gradient(f):
    y = x.clone().requires_grad_()
    out = f(y)
    weights = torch.arange(out.numel(), dtype=torch.float64).reshape(out.shape)
    return torch.autograd.grad(out, y, weights)[0]


def both(name, f):
    emit(name + "_both", torch.cat([f(x).flatten(), gradient(f).flatten()]), 8)


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
x = x.flatten()[:60].reshape(1, 2, 6, 5)
line, cube = (1, 2, 30), (1, 1, 4, 3, 5)
both("max", lambda x: F.max_pool2d(x, 2))
both("max_overlap", lambda x: F.max_pool2d(x, 3, 2, 1))
both("max_uneven", lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0)))
both("max_dilated", lambda x: F.max_pool2d(x, 2, 1, 1, (3, 2)))
both("max_ceil", lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True))
both("max_line", lambda x: F.max_pool1d(x.reshape(line), 4, 3, 2))
both("max_cube", lambda x: F.max_pool3d(x.reshape(cube), 2, (1, 2, 2)))
both("avg", lambda x: F.avg_pool2d(x, 2))
both("avg_padded", lambda x: F.avg_pool2d(x, 3, 2, 1))
both("avg_inside", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False))
both("avg_ceil", lambda x: F.avg_pool2d(x, (3, 2), (2, 3), ceil_mode=True, count_include_pad=False))
both("avg_line", lambda x: F.avg_pool1d(x.reshape(line), 4, 3, 2))
both("avg_cube", lambda x: F.avg_pool3d(x.reshape(cube), (2, 3, 2), (1, 2, 2), (0, 1, 0)))
both("adaptive_avg", lambda x: F.adaptive_avg_pool2d(x, (9, 2)))
both("adaptive_max", lambda x: F.adaptive_max_pool2d(x, (3, 4)))
both("global_avg", lambda x: x.mean((2, 3)))
both("global_max", lambda x: x.amax((2, 3)))
