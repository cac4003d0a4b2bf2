"""The other side of bench/train: the same training steps in PyTorch.

Reads lines "model steps" from standard input, runs that many steps, and answers with their median in nanoseconds.
Tensors are made beforehand, so no loader is in the figures; the optimiser is plain SGD, as on our side.
"""
import gc
import statistics
import sys
import time

import torch
from torch import nn


def lenet():
    model = nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))
    return model, torch.rand(128, 1, 28, 28), 128, 0.1


def mlp():
    return nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10)), torch.rand(100, 784), 100, 0.5


def step_of(make):
    model, x, batch, rate = make()
    y = torch.randint(10, (batch,))
    optimiser = torch.optim.SGD(model.parameters(), rate)

    def step():
        optimiser.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()

    return step


def main():
    torch.set_num_threads(int(sys.argv[1]))
    torch.manual_seed(1)
    steps = {"lenet": step_of(lenet), "mlp": step_of(mlp)}
    gc.disable()
    for line in sys.stdin:
        name, count = line.split()
        times = []
        for _ in range(int(count)):
            start = time.perf_counter_ns()
            steps[name]()
            times.append(time.perf_counter_ns() - start)
        print(int(statistics.median(times)), flush=True)


main()
