#!/usr/bin/python3
"""Writes recurrent.h: recurrent networks of two layers by PyTorch, and their gradients.

The numbers in the repository are from Debian 12's python3-torch 1.13.1 (CPU):
    /usr/bin/python3 tests/ops/golden/recurrent.py > tests/ops/golden/recurrent.h
Inputs are made of integers so that the C test makes the same ones. All parts of a network's results
come one after the other: y, h_n, c_n, then the gradients of Σ result·weight by x, w, h0, c0.
"""
import torch

T, B, I, H, L = 3, 2, 3, 2, 2


def made(seed, *shape):
    n = 1
    for d in shape:
        n *= d
    values = [((i * 7 + seed * 5) % 23) / 16 - 0.6875 for i in range(n)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def network(kind, both):
    if kind in ("tanh", "relu"):
        return torch.nn.RNN(I, H, L, nonlinearity=kind, bidirectional=both).double()
    return {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](I, H, L, bidirectional=both).double()


def run(kind, both, lengths):
    net = network(kind, both)
    weights = [p for n, p in net.named_parameters() if "weight" in n]
    params = weights + [p for n, p in net.named_parameters() if "bias" in n]
    flat, at = made(3, sum(p.numel() for p in params)), 0
    for p in params:
        p.data = flat[at:at + p.numel()].reshape(p.shape).clone()
        at += p.numel()
    D = 2 if both else 1
    x, h0 = made(1, T, B, I).requires_grad_(), made(4, L * D, B, H).requires_grad_()
    c0 = made(5, L * D, B, H).requires_grad_()
    state = (h0, c0) if kind == "lstm" else h0
    if lengths:
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
        y, last = net(packed, state)
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, total_length=T)
    else:
        y, last = net(x, state)
    results = [y, *last] if kind == "lstm" else [y, last]
    loss = sum((r * made(6 + i, *r.shape)).sum() for i, r in enumerate(results))
    loss.backward()
    out = results + [x.grad, torch.cat([p.grad.flatten() for p in params]), h0.grad]
    if kind == "lstm":
        out.append(c0.grad)
    return torch.cat([t.detach().flatten() for t in out])


print(f"/* Made by recurrent.py with PyTorch {torch.__version__}; see there. */\n/* clang-format off */")
for kind in ("lstm", "gru", "tanh", "relu"):
    for both in (False, True):
        for lengths in (None, [2, 3]):
            values = [f"{v:.10g}" for v in run(kind, both, lengths).tolist()]
            lines = [", ".join(values[i:i + 8]) for i in range(0, len(values), 8)]
            name = f"{kind}_{int(both)}_{'packed' if lengths else 'whole'}"
            print(f"static const double golden_{name}[] = {{\n    " + ",\n    ".join(lines) + "};")
