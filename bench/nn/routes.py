#!/usr/bin/env python3
"""Fits the model by which ops/src/host/conv/conv_route.c chooses a convolution's route.

    routes.py DIRECTORY…         fits, prints the table for conv_route.c, and what wrong choices cost in each
    routes.py measure DIRECTORY  runs build/bench/bin/conv_routes by each route

A directory has the times of a machine, one file a route: ours.txt, onednn.txt, winograd.txt; of several runs the least.
A route's time is a sum of products of the features below and coefficients that are not negative, fitted to the least
square of relative errors. Of several machines all fit one table, in the first one's nanoseconds.
"""
import math
import os
import subprocess
import sys

import numpy as np

ROUTES = ("ours", "onednn", "winograd")
PROGRAM = os.environ.get("CONV_ROUTES", "build/bench/bin/conv_routes")


def load(path):
    if not os.path.exists(path):
        return {}
    rows = (line.split() for line in open(path))
    return {tuple(map(int, row[:14])): float(row[14]) for row in rows}


def save(path, times):
    with open(path, "w") as out:
        for key, time in times.items():
            print(*key, f"{time:.1f}", file=out)


def outputs(key):
    _, _, _, _, *rest = key
    inside, window, stride, padding, dilation = rest[:3], rest[3:6], *rest[6:9]
    n = 3 if inside[0] > 1 else 2 if inside[1] > 1 else 1
    out = []
    for i in range(3):
        used = i >= 3 - n
        p, s = (padding, stride) if used else (0, 1)
        out.append((inside[i] + 2 * p - ((window[i] - 1) * dilation + 1)) // s + 1)
    return out


def kind(key):
    """Sums over all channels, over fewer than 8 (first layers, small groups), of each plane for itself."""
    channels, outs = key[2:4]
    return "each" if channels == 1 and outs == 1 else "few" if min(channels, outs) < 8 else "all"


def features(key, route, block):
    """As in conv_route.c; in millions, of the whole batch."""
    batch, groups, channels, outs = key[:4]
    window, stride, which = key[7:10], key[10], key[13]
    out = outputs(key)
    size, out_plane = math.prod(window), math.prod(out)
    unit = 8 if groups > 1 else block
    up = lambda n: n if n <= 8 else -(-n // unit) * unit
    c, o = up(channels), up(outs)
    images = batch * groups * (channels * math.prod(key[4:7]) + outs * out_plane)
    sums = batch * groups * channels * outs * size * out_plane
    if route == "ours":
        wide = size > 1 and stride == 1 and out[2] >= 8
        copies = 0 if wide or size == 1 and stride == 1 else sums / outs
        row = -(-out[2] // 8) * 8 / out[2] if wide else -(-out_plane // 8) * 8 / out_plane
        direct = wide if which == 1 else size > 1 and out_plane >= 16
        if which and direct and batch * groups == 1:
            row *= 2  # by one thread
        return np.array([sums * row, images, copies]) / 1e6
    if route == "winograd":
        plane, step = (key[4:7], 4 * stride) if which == 1 else (out, 4)
        tiles = batch * -(-plane[1] // step) * -(-plane[2] // step)
        c, o = -(-channels // 16) * 16, -(-outs // 16) * 16
        first, to = (o, c) if which == 1 else (c, o)
        numbers, phases = (3 + -(-window[1] // stride)) ** 2, stride * stride
        panel = 2 * block
        most = max((8 << 20) // (4 * numbers * phases * (outs if which == 1 else channels)), panel)
        parts = -(-(-(-to // panel) * panel) // most)
        made = phases * first * parts + (phases if which == 1 else 1) * to
        pairs = numbers * phases * c * o
        return np.array([pairs * tiles, numbers * made * tiles, pairs]) / 1e6
    runs = min(batch, 16)
    spread = -(-runs // 2) * 2 / runs
    return spread * np.array([batch * groups * c * o * size * out_plane, images, groups * c * o * size * runs]) / 1e6


def possible(key, route, block):
    """Whether the model asks for the route at all."""
    batch, groups, channels, outs = key[:4]
    if kind(key) == "each":
        return route == "onednn"  # always
    if route == "winograd":
        fits = key[7] == 1 and -(-key[8] // key[10]) in (2, 3) and key[8] == key[9] and key[10] <= 2 and key[12] == 1
        return groups == 1 and key[4] == 1 and fits and min(channels, outs) >= 8
    if route == "onednn":
        return groups == 1 or channels % 8 == 0 and outs % 8 == 0
    return groups == 1 or key[13] == 0 or channels % 8 or outs % 8


def solve(a, b):
    """The least squares with coefficients >= 0, by descent along one coefficient at a time; far off rows count less."""
    x, weight = np.zeros(a.shape[1]), np.ones(len(b))
    for _ in range(40):
        for _ in range(500):
            for j in range(len(x)):
                rest = b - a @ x + a[:, j] * x[j]
                x[j] = max(0, (weight * a[:, j]) @ rest / max((weight * a[:, j]) @ a[:, j], 1e-30))
        weight = 1 / np.maximum(0.05, np.abs(b - a @ x))
    return x


def best(times, key):
    return min(times[route][key] for route in ROUTES if key in times[route])


def fit(machines, block):
    """One model of all machines, whose times are scaled to the first one's."""
    first, model = machines[0], {}
    direct = lambda m, k: min(m[route][k] for route in ("ours", "onednn") if k in m[route])
    shared = lambda m: [math.log(direct(first, k) / direct(m, k)) for k in m["ours"] if k in first["ours"]]
    scales = [math.exp(np.mean(shared(m))) for m in machines]
    for route in ROUTES:
        for which in range(3):
            for of in ("all", "few", "each"):
                rows = [features(k, route, block) / (scale * times[route][k]) for times, scale in zip(machines, scales)
                        for k in times[route] if k[13] == which and possible(k, route, block) and kind(k) == of]
                if rows:
                    model[route, of, which] = solve(np.array(rows), np.ones(len(rows)))
    return model


def report(where, times, model, block):
    lost = []
    for key in times["ours"]:
        routes = [r for r in ROUTES if key in times[r] and possible(key, r, block)]
        guess = {r: float(features(key, r, block) @ model[r, kind(key), key[13]]) for r in routes}
        chosen = min(guess, key=guess.get)
        lost.append((times[chosen][key] / best(times, key), key, chosen, {r: round(times[r][key]) for r in routes},
                     {r: round(g) for r, g in guess.items()}))
    lost.sort(reverse=True)
    mean = np.mean([row[0] for row in lost])
    print(f"{where}: {len(lost)} convolutions, {mean:.3f} times the best route's time on average")
    for row in lost[:25]:
        if row[0] > 1.05:
            print("  %.2f %s %s %s %s" % row)


def measure(where):
    os.makedirs(where, exist_ok=True)
    for route in ROUTES:
        path = f"{where}/{route}.txt"
        before = load(path)
        with open(path + ".new", "w") as out:
            subprocess.run([PROGRAM], check=True, stdout=out, env={**os.environ, "KNET_CONV_ROUTE": route})
        now = load(path + ".new")
        save(path, {key: min(time, before.get(key, time)) for key, time in now.items()})
        os.remove(path + ".new")


def main():
    if sys.argv[1] == "measure":
        measure(sys.argv[2])
        return
    machines = [{route: load(f"{where}/{route}.txt") for route in ROUTES} for where in sys.argv[1:]]
    block = 8 if "avx2" in sys.argv[1] else 16
    model = fit(machines, block)
    for route in ROUTES:
        for of in ("all", "few"):
            rows = [model[route, of, which] for which in range(3) if (route, of, which) in model]
            if rows:
                print(f"{route} {of}: " + ", ".join("{" + ", ".join(f"{10 * v:.0f}" for v in row) + "}" for row in rows))
    for where, times in zip(sys.argv[1:], machines):
        report(where, times, model, block)


if __name__ == "__main__":
    main()
