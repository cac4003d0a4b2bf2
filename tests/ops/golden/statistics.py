#!/usr/bin/python3
"""Writes statistics.h: quantiles, counts, searches, covariances, scans and linear algebra by NumPy and PyTorch.

The numbers in the repository are from Debian 12's python3-numpy 1.24.2 and python3-torch 1.13.1 (CPU):
    /usr/bin/python3 tests/ops/golden/statistics.py > tests/ops/golden/statistics.h
The arrays are made of integers so that the C test makes the same ones; they have ties.
"""
import numpy as np
import torch

D0, D1, D2 = 4, 5, 6
x = np.array([(i * 7 + 3) % 23 / 8 - 1.25 for i in range(D0 * D1 * D2)]).reshape(D0, D1, D2)
nan = x.copy()
nan[1, 2, 3] = np.nan
nan[3, 0, 0] = np.inf
nan[2, :, 1] = np.nan
t = torch.tensor(x)


def emit(name, values):
    values = [("NAN" if v != v else "INFINITY" if v == np.inf else "-INFINITY" if v == -np.inf else f"{v:.17g}")
              for v in np.asarray(values, dtype=np.float64).flatten().tolist()]
    lines = [", ".join(values[i:i + 6]) for i in range(0, len(values), 6)]
    print(f"static const double golden_{name}[] = {{\n    " + ",\n    ".join(lines) + "};")


print(f"/* Made by statistics.py with NumPy {np.__version__} and PyTorch {torch.__version__}; see there. */")
print("/* clang-format off */")
emit("median", np.median(x, axis=1))
emit("median_two", np.median(x, axis=(0, 2)))
emit("quantile", np.quantile(x, 0.3, axis=-1))
emit("quantile_all", np.quantile(x, 0.77))
emit("nan_median", np.median(nan, axis=1))
emit("nan_sum", np.nansum(nan, axis=1))
emit("nan_mean", np.nanmean(nan, axis=(1, 2)))
emit("nan_max", np.nanmax(nan, axis=(0, 1)))
emit("nan_min", np.array([[np.nan if np.isnan(c).all() else np.nanmin(c) for c in m.T] for m in nan]))
emit("nan_quantile", np.nanquantile(nan, 0.3, axis=2))
emit("nan_median_1", np.nanmedian(nan, axis=1))
emit("nan_var", np.nanvar(nan[:2], axis=(1, 2), ddof=1))
emit("nan_std", np.nanstd(nan, axis=1))
emit("nan_to_num", np.nan_to_num(nan, nan=7.0, posinf=8.0, neginf=9.0))
rows = x.reshape(D0, D1 * D2)
emit("cov", np.cov(rows))
emit("corrcoef", np.corrcoef(rows))
whole = (np.arange(60) * 7 + 3) % 11
emit("bincount", np.bincount(whole, minlength=13))
emit("bincount_weights", np.bincount(whole, weights=np.arange(60) / 8.0, minlength=13))
emit("histogram", np.histogram(x, bins=7, range=(-1.25, 1.5))[0])
emit("histogram_narrow", np.histogram(x, bins=5, range=(-0.5, 0.75))[0])
line = np.sort(x.flatten())[::2]
values = np.arange(-12, 16) / 8.0
emit("search_left", np.searchsorted(line, values))
emit("search_right", np.searchsorted(line, values, side="right"))
knots = np.array([-1.0, -0.5, 0.25, 0.5, 1.25])
emit("interp", np.interp(x, knots, np.array([2.0, -3.0, 0.5, 0.75, 4.0])))
unique, inverse, counts = np.unique(nan, return_inverse=True, return_counts=True)
emit("unique", unique)
emit("inverse", inverse)
emit("counts", counts)
emit("is_in", np.isin(x, np.array([0.0, 0.25, -1.25, 9.0])))
emit("cummax", torch.cummax(t, 1)[0])
emit("cummax_places", torch.cummax(t, 1)[1])
emit("cummin", torch.cummin(t, 2)[0])
emit("cummin_places", torch.cummin(t, 2)[1])
emit("logcumsumexp", torch.logcumsumexp(t * 300, 1))
emit("diff", np.diff(x, axis=1))
emit("diff_twice", np.diff(x, 2, axis=0))
emit("move_axis", np.moveaxis(x, 0, -1))
emit("move_axis_back", np.moveaxis(x, 2, 1))
emit("swap_axes", np.swapaxes(x, 0, 2))
emit("tensordot", np.tensordot(x, x[:, 1:4, :], axes=([2, 0], [2, 0])))
emit("cross", np.cross(x[:, :3, :], x[:, 2:, :], axis=1))
tall = x.reshape(-1)[:48].reshape(2, 6, 4) + np.eye(6, 4) * 3
right = x.reshape(-1)[40:76].reshape(2, 6, 3)
emit("lstsq_tall", np.stack([np.linalg.lstsq(a, b, rcond=None)[0] for a, b in zip(tall, right)]))
wide = tall.transpose(0, 2, 1)
emit("lstsq_wide", np.stack([np.linalg.lstsq(a, b, rcond=None)[0] for a, b in zip(wide, right[:, :4])]))
emit("pinv", np.linalg.pinv(tall))
low = tall.copy()
low[1, :, 3] = low[1, :, 0] + 2 * low[1, :, 1]
emit("pinv_low", np.linalg.pinv(low, rcond=1e-10))
emit("matrix_rank", np.linalg.matrix_rank(low, tol=1e-9))
square = x.reshape(-1)[:50].reshape(2, 5, 5) + np.eye(5) * 2
emit("power_5", np.linalg.matrix_power(square, 5))
emit("power_minus_3", np.linalg.matrix_power(square, -3))
emit("logspace", np.logspace(-2, 3, 7, base=2.5))
emit("floor_div", np.array([-7.5, 7.5, -7.5, 7.5, 0.0, 1e-3]) // np.array([2.0, -2.0, -2.0, 2.0, 3.0, -5.0]))
