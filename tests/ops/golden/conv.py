#!/usr/bin/python3
"""Writes conv.h: convolutions and transposed ones by PyTorch, and their gradients.

The numbers in the repository are from Debian 12's python3-torch 1.13.1 (CPU):
    /usr/bin/python3 tests/ops/golden/conv.py > tests/ops/golden/conv.h
Inputs are made of integers so that the C test makes the same ones. All parts come one after the
other: y, then the gradients of Σ y·weight by each input.
"""
import torch
import torch.nn.functional as F


def made(seed, *shape):
    n = 1
    for d in shape:
        n *= d
    values = [((i * 7 + seed * 5) % 23) / 16 - 0.6875 for i in range(n)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def show(name, f, *shapes):
    inputs = [made(i + 1, *shape).requires_grad_() for i, shape in enumerate(shapes)]
    y = f(*inputs)
    d = torch.autograd.grad(y, inputs, made(6, *y.shape))
    values = [f"{v:.17g}" for t in (y.detach(), *d) for v in t.flatten().tolist()]
    lines = [", ".join(values[i:i + 8]) for i in range(0, len(values), 8)]
    print(f"static const double golden_{name}[] = {{\n    " + ",\n    ".join(lines) + "};")


print(f"/* Made by conv.py with PyTorch {torch.__version__}; see there. */\n/* clang-format off */")
show("line", lambda x, w, b: F.conv1d(F.pad(x, (1, 3)), w, b, stride=2, dilation=2), (2, 2, 7), (3, 2, 3), (3,))
show("line_groups", lambda x, w, b: F.conv1d(x, w, b, padding=1, groups=2), (1, 4, 6), (6, 2, 3), (6,))
show("plane", lambda x, w, b: F.conv2d(x, w, b, padding=1), (2, 2, 4, 5), (3, 2, 3, 3), (3,))
show("plane_one", lambda x, w, b: F.conv2d(x, w, b), (2, 3, 2, 3), (2, 3, 1, 1), (2,))
show("plane_flip", lambda x, w: F.conv2d(x, w.flip((2, 3))), (1, 2, 4, 5), (2, 2, 3, 2))
show("plane_groups", lambda x, w, b: F.conv2d(x, w, b, stride=(1, 2), padding=(1, 0), groups=2),
     (1, 4, 4, 5), (4, 2, 3, 3), (4,))
show("plane_each", lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=3), (1, 3, 4, 4), (6, 1, 3, 3), (6,))
show("plane_dilated", lambda x, w, b: F.conv2d(x, w, b, padding=2, dilation=(2, 1)), (1, 2, 5, 4), (2, 2, 3, 3), (2,))
show("plane_uneven", lambda x, w, b: F.conv2d(F.pad(x, (2, 1, 0, 2)), w, b, stride=(2, 1)),
     (1, 2, 4, 4), (2, 2, 2, 3), (2,))
show("plane_less", lambda x, w, b: F.conv2d(F.pad(x, (1, 0, 2, 1)), w, b), (1, 2, 4, 4), (2, 2, 3, 3), (2,))
show("plane_add", lambda x, w, b, r: F.relu(F.conv2d(x, w, b, padding=1) + r),
     (1, 2, 4, 4), (2, 2, 3, 3), (2,), (1, 2, 4, 4))
show("cube", lambda x, w, b: F.conv3d(x, w, b, stride=(1, 2, 1), padding=(1, 1, 0)),
     (1, 2, 3, 4, 3), (2, 2, 2, 3, 2), (2,))
show("cube_groups", lambda x, w, b: F.conv3d(F.pad(x, (0, 1, 1, 0, 1, 1)), w, b, dilation=(1, 2, 1), groups=2),
     (1, 4, 2, 3, 3), (4, 2, 2, 2, 2), (4,))
show("back_line", lambda x, w, b: F.conv_transpose1d(x, w, b, stride=3, padding=1, output_padding=2, dilation=2),
     (2, 3, 4), (3, 2, 3), (2,))
show("back_plane", lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1), (1, 2, 3, 4), (2, 3, 4, 4), (3,))
show("back_groups", lambda x, w, b: F.conv_transpose2d(x, w, b, stride=(2, 1), output_padding=(1, 0), groups=2),
     (1, 4, 2, 3), (4, 2, 3, 2), (4,))
show("back_cube", lambda x, w, b: F.conv_transpose3d(x, w, b, stride=(1, 2, 1), padding=(0, 1, 1), dilation=(2, 1, 1)),
     (1, 2, 2, 3, 3), (2, 2, 2, 3, 2), (2,))
