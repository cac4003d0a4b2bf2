#!/usr/bin/python3
"""Writes mlp.h: ten training losses of a small MLP by PyTorch, for each optimiser.

The numbers in the repository are from Debian 12's python3-torch 1.13.1 (CPU, one thread):
    /usr/bin/python3 tests/autograd/golden/mlp.py > tests/autograd/golden/mlp.h
Inputs are made of integers so that the C test makes the same ones.
"""
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
B, I, H, O, STEPS = 20, 30, 16, 5, 10


def numbers(n, m, k):
    return torch.tensor([(i * m + k) % 37 / 37 - 0.5 for i in range(n)], dtype=torch.float32)


def optimisers(params):
    return {
        "sgd": torch.optim.SGD(params, lr=0.1),
        "momentum": torch.optim.SGD(params, lr=0.05, momentum=0.9),
        "adam": torch.optim.Adam(params, lr=0.01),
        "adamw": torch.optim.AdamW(params, lr=0.01, weight_decay=0.1),
    }


def losses(name):
    w1 = numbers(H * I, 7, 3).reshape(H, I).requires_grad_()
    b1 = numbers(H, 5, 1).requires_grad_()
    w2 = numbers(O * H, 11, 2).reshape(O, H).requires_grad_()
    b2 = numbers(O, 3, 4).requires_grad_()
    params = [w1, b1, w2, b2]
    optim = optimisers(params)[name]
    clip = 0.5 if name == "adam" else None
    out = []
    for step in range(STEPS):
        x = numbers(B * I, 13, step).reshape(B, I)
        y = torch.tensor([(i * i + step) % O for i in range(B)])
        loss = F.cross_entropy(F.linear(torch.relu(F.linear(x, w1, b1)), w2, b2), y)
        optim.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(params, clip)
        optim.step()
        out.append(loss.item())
    return out


print(f"/* Made by mlp.py with PyTorch {torch.__version__}; see there. */\n/* clang-format off */")
for name in ["sgd", "momentum", "adam", "adamw"]:
    rows = [f"{loss:.9g}" for loss in losses(name)]
    rows = ", ".join(rows[:5]) + ",\n    " + ", ".join(rows[5:])
    print(f"static const double golden_{name}[] = {{\n    {rows}}};")
