#!/usr/bin/python3
"""Writes ctc.h: the CTC loss and its gradient by the logits, by PyTorch.

The numbers in the repository are from Debian 12's python3-torch 1.13.1 (CPU):
    /usr/bin/python3 tests/ops/golden/ctc.py > tests/ops/golden/ctc.h
Inputs are made of integers so that the C test makes the same ones. All parts come one after the
other: losses or the loss, then the gradient of their sum by the logits.
"""
import torch
import torch.nn.functional as F

T, B, C, S = 9, 4, 5, 3
x = torch.tensor([((i * 37 + 5) % 101) / 16 - 3 for i in range(T * B * C)], dtype=torch.float64).reshape(T, B, C)
labels = torch.tensor([[1, 2, 2], [3, 1, 3], [4, 4, 4], [2, 1, 1]])


def run(reduction, steps, lengths, blank, zero=False):
    y = x.clone().requires_grad_()
    targets = (labels - 1) if blank == C - 1 else labels
    loss = F.ctc_loss(y.log_softmax(2), targets, torch.tensor(steps), torch.tensor(lengths), blank=blank,
                      reduction=reduction, zero_infinity=zero)
    loss.sum().backward()
    return torch.cat([loss.detach().flatten(), y.grad.flatten()])


print(f"/* Made by ctc.py with PyTorch {torch.__version__}; see there. */\n/* clang-format off */")
for name, arguments in {
    "mean": ("mean", [T] * B, [S] * B, 0),
    "sum": ("sum", [T] * B, [S] * B, C - 1),
    "lengths": ("none", [9, 5, 8, 7], [3, 2, 3, 0], 0),
    "mean_lengths": ("mean", [9, 5, 8, 7], [3, 2, 3, 0], 0),
    "short": ("none", [9, 2, 4, 7], [3, 3, 3, 1], 0, True),
}.items():
    values = [f"{v:.12g}" for v in run(*arguments).tolist()]
    lines = [", ".join(values[i:i + 6]) for i in range(0, len(values), 6)]
    print(f"static const double golden_{name}[] = {{\n    " + ",\n    ".join(lines) + "};")
