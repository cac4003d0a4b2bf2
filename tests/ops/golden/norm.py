#!/usr/bin/python3
"""Writes norm.h: normalization with its gradients, and losses, by PyTorch.

The numbers in the repository are from Debian 12's python3-torch 1.13.1 (CPU):
    /usr/bin/python3 tests/ops/golden/norm.py > tests/ops/golden/norm.h
The arrays are made of integers so that the C test makes the same ones.
"""
import torch
import torch.nn.functional as F

B, C, S = 3, 4, 6
N = B * C * S


def array(a, b, m, scale, shift, shape):
    n = 1
    for d in shape:
        n *= d
    return torch.tensor([(i * a + b) % m * scale + shift for i in range(n)], dtype=torch.float64).reshape(shape)


x = array(7, 3, 23, 0.125, -1.25, (B, C, S))
g = array(5, 1, 17, 0.25, -2, (B, C, S))
weight = array(3, 1, 7, 0.25, 0.5, (C,))
bias = array(2, 1, 5, 0.5, -1, (C,))
wide = array(3, 2, 7, 0.25, 0.5, (C, S))
low = array(2, 3, 5, 0.5, -1, (C, S))
mean = array(1, 0, 5, 0.25, -0.5, (C,))
var = array(1, 0, 5, 0.25, 0.5, (C,))


def emit(name, t):
    values = [f"{v:.17g}" for v in t.detach().double().flatten().tolist()]
    lines = [", ".join(values[i:i + 4]) for i in range(0, len(values), 4)]
    print(f"static const double golden_{name}[] = {{\n    " + ",\n    ".join(lines) + "};")


def with_gradients(name, f, w, b):
    inputs = [t.clone().requires_grad_() for t in (x, w, b)]
    y = f(*inputs)
    emit(name, y)
    for what, d in zip(("dx", "dw", "db"), torch.autograd.grad(y, inputs, g, allow_unused=True)):
        if d is not None:
            emit(f"{name}_{what}", d)


print(f"/* Made by norm.py with PyTorch {torch.__version__}; see there. */\n/* clang-format off */")
running = [mean.clone(), var.clone()]
with_gradients("batchnorm", lambda x, w, b: F.batch_norm(x, *running, w, b, True, 0.2, 1e-3), weight, bias)
emit("running_mean", running[0])
emit("running_var", running[1])
with_gradients("batchnorm_eval", lambda x, w, b: F.batch_norm(x, mean, var, w, b, False, 0.2, 1e-3), weight, bias)
flat = [mean.repeat(S), var.repeat(S)]
with_gradients("batchnorm_activation",
               lambda x, w, b: F.batch_norm(x.reshape(B, C * S), *flat, w.flatten(), b.flatten(), True).reshape(B, C, S),
               wide, low)
emit("activation_var", flat[1])
with_gradients("layernorm", lambda x, w, b: F.layer_norm(x, (S,), w, b, 1e-3), wide[0], low[0])
with_gradients("layernorm_two", lambda x, w, b: F.layer_norm(x, (C, S), w, b), wide, low)
with_gradients("rmsnorm", lambda x, w, b: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-3) * w, wide[0], low[0])
with_gradients("groupnorm", lambda x, w, b: F.group_norm(x, 2, w, b, 1e-3), weight, bias)
with_gradients("instancenorm", lambda x, w, b: F.instance_norm(x, weight=w, bias=b, eps=1e-3), weight, bias)

with_gradients("lrn", lambda x, w, b: F.local_response_norm(x, 3, 0.5, 0.75, 1.5), weight, bias)
emit("lrn_even", F.local_response_norm(x, 2))

# --- losses: predictions and targets of [B, C·S] ---
p, q = torch.sigmoid(x).reshape(B, -1), torch.sigmoid(g).reshape(B, -1)
a, t = x.reshape(B, -1), g.reshape(B, -1)
sign = torch.where(t > 0, 1.0, -1.0).double()
logs, target = F.log_softmax(a, 1), F.softmax(t, 1)
edge = torch.tensor([0.0, 1.0, 0.0, 1.0]).double(), torch.tensor([0.0, 1.0, 1.0, 0.25]).double()
for how in ("mean", "sum", "none"):
    emit(f"mse_{how}", F.mse_loss(a, t, reduction=how))
emit("mae", F.l1_loss(a, t))
emit("huber", F.huber_loss(a, t, delta=0.7))
emit("smooth_l1", F.smooth_l1_loss(a, t, beta=0.7))
emit("bce", F.binary_cross_entropy(p, q))
emit("bce_edge", F.binary_cross_entropy(*edge, reduction="none"))
emit("bce_logits", F.binary_cross_entropy_with_logits(a * 40, q))
emit("logistic", F.soft_margin_loss(a, sign))
emit("hinge", torch.clamp(0.8 - a * sign, min=0).mean())
emit("kl_div", F.kl_div(logs, target, reduction="batchmean"))
emit("kl_div_log", F.kl_div(logs, target.log(), reduction="sum", log_target=True))
labels = torch.tensor([3, 0, 7])
classes = array(3, 1, 7, 0.25, 0.5, (C * S,))
emit("ce_smoothed", F.cross_entropy(a, labels, label_smoothing=0.1))
emit("ce_ignored", F.cross_entropy(a, labels, ignore_index=0))
emit("ce_ignored_none", F.cross_entropy(a, labels, ignore_index=7, reduction="none", label_smoothing=0.2))
emit("ce_weighted", F.cross_entropy(a, labels, weight=classes, ignore_index=3))
emit("ce_weighted_smoothed", F.cross_entropy(a, labels, weight=classes, label_smoothing=0.3))
emit("ce_sum", F.cross_entropy(a, labels, reduction="sum"))
shares = array(5, 1, 17, 0.25, 0, tuple(a.shape))
shares = shares / shares.sum(1, keepdim=True)
emit("ce_shares", F.cross_entropy(a, shares))
emit("ce_shares_weighted", F.cross_entropy(a, shares, weight=classes, label_smoothing=0.3))
emit("ce_shares_none", F.cross_entropy(a, shares, reduction="none", label_smoothing=0.2))
places = [t.reshape(B, C, S) for t in (a, shares)]
emit("ce_shares_places", F.cross_entropy(*places, weight=classes[:C]))
