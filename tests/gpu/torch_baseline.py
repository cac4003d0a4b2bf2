"""The same machine's ceilings and PyTorch's figures: one JSON line each, medians by CUDA events.

Large copies and matrix products say what the card can do; LeNet and MLP steps (batch 128 and 100, eager, the same
optimisers as `knet train`) and an allocate-free pair are what Knet.c's own figures stand beside.
"""
import json
import statistics
import time

try:
    import torch
except ImportError:
    torch = None


def emit(metric, value, unit):
    print(json.dumps({"bench": "torch", "metric": metric, "value": value, "unit": unit, "baseline": None,
                      "ratio": None}), flush=True)


def median_ms(fn, repeats=15, warmup=5):
    for _ in range(warmup):
        fn()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        fn()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def copy_ceiling():
    source = torch.ones(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    ms = median_ms(lambda: target.copy_(source))
    emit("device_copy_GBps", 2 * source.numel() / ms / 1e6, "GB/s")


def matmul_ceiling(name, dtype, tf32, n=8192):
    torch.backends.cuda.matmul.allow_tf32 = tf32
    a = torch.randn(n, n, device="cuda", dtype=dtype)
    b = torch.randn(n, n, device="cuda", dtype=dtype)
    ms = median_ms(lambda: torch.mm(a, b), repeats=7, warmup=2)
    emit(f"matmul_{name}_TFLOPs", 2 * n**3 / ms / 1e9, "TFLOP/s")
    torch.backends.cuda.matmul.allow_tf32 = False


def lenet():
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))


def mlp():
    nn = torch.nn
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


def step_ms(model, batch, steps=200):
    """Wall time of a training step over many, the host's work included."""
    model = model.cuda()
    x = torch.randn(batch, 1, 28, 28, device="cuda")
    y = torch.randint(10, (batch,), device="cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    for _ in range(30):
        step()
    samples = []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - begin) * 1e3 / steps)
    return statistics.median(samples)


def allocation_pair_ns(size, repeats=20000):
    for _ in range(100):
        torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(size))
    begin = time.perf_counter_ns()
    for _ in range(repeats):
        torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(size))
    return (time.perf_counter_ns() - begin) / repeats


def main():
    if torch is None or not torch.cuda.is_available():
        print("torch_baseline: no PyTorch with a GPU here")
        raise SystemExit(77)
    copy_ceiling()
    matmul_ceiling("f32", torch.float32, False)
    matmul_ceiling("tf32", torch.float32, True)
    matmul_ceiling("bf16", torch.bfloat16, False)
    emit("lenet_step_ms", step_ms(lenet(), 128), "ms")
    emit("mlp_step_ms", step_ms(mlp(), 100), "ms")
    for size in (1000, 20 << 20):
        emit(f"alloc_pair_{size}_ns", allocation_pair_ns(size), "ns")


if __name__ == "__main__":
    main()
