"""The other side of bench/train: the same training steps in PyTorch.

    steps.py THREADS [DEVICE [f32|tf32]]

Reads lines "model steps" from standard input, runs that many steps, and answers with their median in nanoseconds; on a
GPU with the mean, the wait for the last step included. Tensors are made beforehand, so no loader is in the figures; the
optimiser is plain SGD, as on our side.
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


def step_of(make, device):
    model, x, batch, rate = make()
    model, x = model.to(device), x.to(device)
    y = torch.randint(10, (batch,), device=device)
    optimiser = torch.optim.SGD(model.parameters(), rate)

    def step():
        optimiser.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()

    return step


def median_ns(step, count):
    times = []
    for _ in range(count):
        start = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - start)
    return int(statistics.median(times))


def mean_ns(step, count):
    start = time.perf_counter_ns()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter_ns() - start) // count


def main():
    device = sys.argv[2] if len(sys.argv) > 2 else "cpu"
    tf32 = sys.argv[3:] == ["tf32"]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.set_num_threads(int(sys.argv[1]))
    torch.manual_seed(1)
    steps = {"lenet": step_of(lenet, device), "mlp": step_of(mlp, device)}
    measure = median_ns if device == "cpu" else mean_ns
    gc.disable()
    for line in sys.stdin:
        name, count = line.split()
        print(measure(steps[name], int(count)), flush=True)


main()
