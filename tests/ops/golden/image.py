#!/usr/bin/python3
"""Writes image.h: resized images, pixel shuffles and samples at the places of a grid, by PyTorch.

The numbers in the repository are from Debian 12's python3-torch 1.13.1 (CPU):
    /usr/bin/python3 tests/ops/golden/image.py > tests/ops/golden/image.h
Inputs are made of integers so that the C test makes the same ones. A name that ends in _d has the
gradients of Σ y·(1 … n).
"""
import torch
import torch.nn.functional as F


def made(a, b, m, scale, shift, *shape):
    n = 1
    for d in shape:
        n *= d
    return torch.tensor([(i * a + b) % m * scale + shift for i in range(n)], dtype=torch.float64).reshape(shape)


def emit(name, *tensors):
    values = [f"{v:.17g}" for t in tensors for v in t.flatten().tolist()]
    lines = [", ".join(values[i:i + 6]) for i in range(0, len(values), 6)]
    print(f"static const double golden_{name}[] = {{\n    " + ",\n    ".join(lines) + "};")


def both(name, f, *inputs):
    inputs = [t.clone().requires_grad_() for t in inputs]
    y = f(*inputs)
    emit(name, y.detach())
    weights = torch.arange(1, y.numel() + 1, dtype=torch.float64).reshape(y.shape)
    emit(name + "_d", *torch.autograd.grad(y, inputs, weights))


print(f"/* Made by image.py with PyTorch {torch.__version__}; see there. */\n/* clang-format off */")
x = made(7, 3, 23, 0.125, -1.25, 2, 2, 3, 4)
line, cube = x.reshape(2, 2, 12), x.reshape(1, 2, 2, 3, 4)
both("nearest", lambda x: F.interpolate(x, (5, 3)), x)
both("exact", lambda x: F.interpolate(x, (5, 3), mode="nearest-exact"), x)
both("linear", lambda x: F.interpolate(x, (5, 7), mode="bilinear", align_corners=False), x)
both("corners", lambda x: F.interpolate(x, (2, 7), mode="bilinear", align_corners=True), x)
both("scaled", lambda x: F.interpolate(x, scale_factor=(1.6, 0.7), mode="bilinear", align_corners=False), x)
both("line", lambda x: F.interpolate(x, 7, mode="linear", align_corners=False), line)
both("cube", lambda x: F.interpolate(x, (3, 2, 5), mode="trilinear", align_corners=False), cube)
emit("shuffle", F.pixel_shuffle(x.reshape(1, 8, 3, 2), 2))
emit("unshuffle", F.pixel_unshuffle(x.reshape(2, 1, 4, 6), 2))
windows = dict(dilation=(2, 1), padding=(1, 2), stride=(1, 2))
both("unfold", lambda x: F.unfold(x, (2, 3), **windows), x)
both("unfold_plain", lambda x: F.unfold(x, (3, 2)), x)
columns = made(7, 3, 23, 0.125, -1.25, 2, 12, 9)
both("fold", lambda y: F.fold(y, (3, 4), (2, 3), **windows), columns)
theta = made(11, 5, 37, 0.0703125, -1.2, 2, 2, 3)
for align in (False, True):
    both(f"affine_{int(align)}", lambda t: F.affine_grid(t, (2, 1, 3, 4), align_corners=align), theta)
emit("affine_one", F.affine_grid(theta, (2, 1, 1, 4), align_corners=True))
grid = made(11, 5, 37, 0.0703125, -1.2, 2, 3, 2, 2)
for mode in ("bilinear", "nearest"):
    for padding in ("zeros", "border"):
        for align in (False, True):
            both(f"{mode}_{padding}_{int(align)}",
                 lambda x, g: F.grid_sample(x, g, mode=mode, padding_mode=padding, align_corners=align), x, grid)
