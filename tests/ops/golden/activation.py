#!/usr/bin/python3
"""Writes activation.h: activations by PyTorch, and their gradients.

The numbers in the repository are from Debian 12's python3-torch 1.13.1 (CPU):
    /usr/bin/python3 tests/ops/golden/activation.py > tests/ops/golden/activation.h
The places are made of integers so that the C test makes the same ones; 0 and the ends of the pieces
are among them. The two parts come one after the other: y, then the gradient of Σ y·weight.
"""
import torch
import torch.nn.functional as F

N = 58


def emit(name, f, shift=0):
    x = torch.tensor([i / 4 - 7 + shift for i in range(N)], dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([(i * 7 + 5) % 23 / 16 - 0.6875 for i in range(N)], dtype=torch.float64)
    y = f(x)
    d, = torch.autograd.grad(y, x, weights[:y.numel()])
    values = [f"{v:.17g}" for t in (y.detach(), d) for v in t.tolist()]
    lines = [", ".join(values[i:i + 8]) for i in range(0, len(values), 8)]
    print(f"static const double golden_{name}[] = {{\n    " + ",\n    ".join(lines) + "};")


print(f"/* Made by activation.py with PyTorch {torch.__version__}; see there. */\n/* clang-format off */")
emit("relu", F.relu)
emit("sigm", torch.sigmoid)
emit("tanh", torch.tanh)
emit("leaky_relu", lambda x: F.leaky_relu(x, 0.125))
emit("elu", lambda x: F.elu(x, 0.75))
emit("celu", lambda x: F.celu(x, 0.75))
emit("selu", F.selu)
emit("gelu", F.gelu)
emit("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"))
emit("silu", F.silu)
emit("mish", F.mish)
emit("softplus", F.softplus)
emit("softsign", F.softsign)
emit("logsigmoid", F.logsigmoid)
emit("hardsigmoid", lambda x: F.relu6(x + 3) / 6)  # the slope of F.hardsigmoid is 1/6 in f32
emit("hardswish", F.hardswish, 1 / 8)
emit("hardtanh", lambda x: F.hardtanh(x, -0.5, 2))
emit("relu6", F.relu6)
emit("hardshrink", lambda x: F.hardshrink(x, 0.5))
emit("softshrink", lambda x: F.softshrink(x, 0.5))
emit("tanhshrink", F.tanhshrink)
emit("gate", lambda x: F.glu(x, 0))
