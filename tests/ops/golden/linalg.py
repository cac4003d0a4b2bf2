#!/usr/bin/python3
"""Writes linalg.h: results of NumPy for matrices of integers over 37.

The numbers in the repository are from Debian 12's python3-numpy 1.24.2:
    /usr/bin/python3 tests/ops/golden/linalg.py > tests/ops/golden/linalg.h
"""
import numpy as np


def numbers(shape, m, k):
    n = int(np.prod(shape))
    return np.array([(i * i * m + i + k) % 37 / 37 - 0.5 for i in range(n)]).reshape(shape)


def show(name, x):
    x = np.asarray(x, dtype=float).ravel()
    print(f"static const double {name}[] = {{")
    for i in range(0, len(x), 4):
        print("    " + ", ".join(f"{v:.17g}" for v in x[i:i + 4]) + ",")
    print("};")


print("/* Made by linalg.py. */")
print("/* clang-format off */")
a, b, tall = numbers((5, 5), 7, 3), numbers((5, 2), 5, 1), numbers((6, 4), 11, 2)
show("golden_det", np.linalg.det(a))
show("golden_slogdet", np.linalg.slogdet(a))
show("golden_inverse", np.linalg.inv(a))
show("golden_solve", np.linalg.solve(a, b))
show("golden_solve_trans", np.linalg.solve(a.T, b))
show("golden_cholesky", np.linalg.cholesky(a @ a.T + np.eye(5)))
q, r = np.linalg.qr(tall)
show("golden_qr_q", q)
show("golden_qr_r", r)
show("golden_singular", np.linalg.svd(tall, compute_uv=False))
show("golden_eigenvalues", np.linalg.eigvalsh(a + a.T))
show("golden_kron", np.kron(numbers((2, 3), 3, 1), numbers((3, 2), 5, 4)))
x, y, z = numbers((2, 3, 4), 7, 1), numbers((2, 4, 3), 5, 2), numbers((3, 3), 3, 3)
for name, spec, of in [("product", "bij,bjk->bik", (x, y)), ("swapped", "bij,bjk->kib", (x, y)),
                       ("implicit", "bij,bjk", (x, y)), ("all", "bij,bji->", (x, y)),
                       ("summed", "bij,kl->jb", (x, z)), ("diagonal", "ii->i", (z,)),
                       ("trace", "ii", (z,)), ("chain", "bij,bjk,kl->bl", (x, y, z)),
                       ("outer", "ij,kl->ikjl", (z, z)), ("same", "bij,bij->bi", (x, x)),
                       ("dots_summed", "bij,bij->b", (x, x)),
                       ("dots_broadcast", "...ij,...i->j...", (x[:, None], z[None]))]:
    show(f"golden_einsum_{name}", np.einsum(spec, *of))
