"""The other side of bench/train: the same training steps in PyTorch.

    steps.py THREADS [DEVICE [f32|tf32]]

Reads lines "model steps" from standard input, runs that many steps, and answers with their median in nanoseconds; on a
GPU with the mean, the wait for the last step included. Tensors are made beforehand, so no loader is in the figures; the
optimiser is plain SGD, as on our side. lenet_tuned is LeNet with channels last; "MODEL_peak 1" asks for the most bytes
that live in a step.
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


def vgg():
    def block(n, to):
        return [nn.Conv2d(n, to, 3, padding=1), nn.ReLU(), nn.Conv2d(to, to, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),
                nn.Dropout(0.25)]

    model = nn.Sequential(*block(3, 50), *block(50, 100), nn.Flatten(), nn.Linear(6400, 512), nn.ReLU(), nn.Dropout(0.5),
                          nn.Linear(512, 10))
    return model, torch.rand(64, 3, 32, 32), 64, 0.01


def step_of(make, device, **layout):
    model, x, batch, rate = make()
    model, x = model.to(device, **layout), x.to(device).contiguous(**layout)
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


def start_of(event):
    """PyTorch 2 counts nanoseconds."""
    return event.start_ns() if hasattr(event, "start_ns") else event.start_us()


def peak_bytes(make):
    """The most bytes that live at once in a step, by PyTorch's profiler, with parameters, batch and labels."""
    model, x, batch, rate = make()
    y = torch.randint(10, (batch,))
    optimiser = torch.optim.SGD(model.parameters(), rate)
    live = sum(p.numel() * p.element_size() for p in [*model.parameters(), x, y])
    for _ in range(2):
        optimiser.zero_grad(set_to_none=True)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            nn.functional.cross_entropy(model(x), y).backward()
            optimiser.step()
    now = most = live
    changes = [(start_of(e), i, e.nbytes()) for i, e in enumerate(profile.profiler.kineto_results.events())
               if e.name() == "[memory]"]
    for _, _, nbytes in sorted(changes):
        now += nbytes
        most = max(most, now)
    return most


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
        if name.endswith("_peak"):
            print(peak_bytes({"lenet": lenet, "mlp": mlp, "vgg": vgg}[name[:-5]]), flush=True)
            continue
        if name == "lenet_tuned" and name not in steps:
            steps[name] = step_of(lenet, device, memory_format=torch.channels_last)
        print(measure(steps[name], int(count)), flush=True)


main()
