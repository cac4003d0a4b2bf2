#!/usr/bin/python3
"""Writes reduce.h: reductions, scans and sorts of one array by PyTorch.

The numbers in the repository are from Debian 12's python3-torch 1.13.1 (CPU):
    /usr/bin/python3 tests/ops/golden/reduce.py > tests/ops/golden/reduce.h
The array is made of integers so that the C test makes the same one; it has ties and zeros.
"""
import torch

D0, D1, D2 = 4, 5, 6
x = torch.tensor([(i * 7 + 3) % 23 / 8 - 1.25 for i in range(D0 * D1 * D2)], dtype=torch.float64)
x = x.reshape(D0, D1, D2)
nan = x.clone()
nan[1, 2, 3] = float("nan")
nan[3, 0, 0] = float("inf")


def emit(name, t):
    values = [("NAN" if v != v else "INFINITY" if v == float("inf") else f"{v:.17g}")
              for v in t.double().flatten().tolist()]
    lines = [", ".join(values[i:i + 4]) for i in range(0, len(values), 4)]
    print(f"static const double golden_{name}[] = {{\n    " + ",\n    ".join(lines) + "};")


print(f"/* Made by reduce.py with PyTorch {torch.__version__}; see there. */\n/* clang-format off */")
emit("sum", x.sum((0, 2)))
emit("prod", x.prod(1))
emit("mean", x.mean((1, 2)))
emit("var", x.var(1))
emit("var_population", x.var((0, 2), unbiased=False))
emit("std", x.std((0, 1)))
for name, p in [("0", 0), ("1", 1), ("2", 2), ("3", 3), ("max", float("inf")), ("min", -float("inf"))]:
    emit(f"norm_{name}", torch.linalg.vector_norm(x, p, (0, 2)))
emit("logsumexp", x.logsumexp((0, 1)))
emit("count_nonzero", torch.count_nonzero(x, (0, 1)))
emit("any", (x == 0).any(0))
emit("all", (x != 0).all(0))
emit("argmax", x.argmax(1))
emit("argmin", x.argmin(2))
emit("argmax_all", x.argmax())
emit("cumsum", x.cumsum(1))
emit("cumprod", x.cumprod(2))
values, places = x.sort(dim=2, stable=True)
emit("sorted", values)
emit("sorted_places", places)
values, places = x.sort(dim=1, descending=True, stable=True)
emit("falling", values)
emit("falling_places", places)
emit("topk", x.topk(3, 2)[0])
emit("nan_max", nan.amax(2))
emit("nan_min", nan.amin((0, 1)))
emit("nan_sum", nan.sum((1, 2)))
emit("nan_argmax", nan.argmax(1))
emit("nan_sorted", nan.sort(0)[0])
emit("nan_falling", nan.sort(2, descending=True)[0])
emit("nan_logsumexp", nan.logsumexp((1, 2)))
emit("integer_sum", torch.arange(200, dtype=torch.uint8).reshape(10, 20).sum(1))
emit("integer_cumprod", torch.arange(1, 11, dtype=torch.int32).cumprod(0))
