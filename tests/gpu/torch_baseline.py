"""The same machine's ceilings and PyTorch's figures: one JSON line each, medians by CUDA events.

ceilings: large copies and matrix products, what the card can do; an allocate-free pair. ops: the ops of
bench_gpu_ops.c under the same names, in runs of 20 calls; products and convolutions with TF32 and without.
"""
import json
import statistics
import sys
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


def allocation_pair_ns(size, repeats=20000):
    for _ in range(100):
        torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(size))
    begin = time.perf_counter_ns()
    for _ in range(repeats):
        torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(size))
    return (time.perf_counter_ns() - begin) / repeats


def rand(*shape):
    return torch.rand(*shape, device="cuda") * 0.9 + 0.1


def ops():
    """name, call, whether TF32 changes it. One at a time, so that its inputs are freed."""
    nn, square = torch.nn.functional, (4096, 4096)
    yield "matmul_1024", lambda a=rand(1024, 1024), b=rand(1024, 1024): a @ b, True
    yield "matmul_4096", lambda a=rand(*square), b=rand(*square): a @ b, True
    yield "linear_mlp", lambda x=rand(100, 784), w=rand(64, 784), b=rand(64): nn.linear(x, w, b), True
    yield "linear_4096", lambda x=rand(*square), w=rand(*square), b=rand(4096): nn.linear(x, w, b), True
    yield "conv_lenet1", lambda x=rand(128, 1, 28, 28), w=rand(20, 1, 5, 5), b=rand(20): nn.conv2d(x, w, b), True
    yield "conv_lenet2", lambda x=rand(128, 20, 12, 12), w=rand(50, 20, 5, 5), b=rand(50): nn.conv2d(x, w, b), True
    yield ("conv_3x3_64", lambda x=rand(32, 64, 56, 56), w=rand(64, 64, 3, 3), b=rand(64):
           nn.conv2d(x, w, b, padding=1), True)
    yield "relu", lambda x=rand(*square): torch.relu(x), False
    yield "sigm", lambda x=rand(*square): torch.sigmoid(x), False
    yield "tanh", lambda x=rand(*square): torch.tanh(x), False
    yield "exp", lambda x=rand(*square): torch.exp(x), False
    yield "affine", lambda x=rand(*square): torch.add(1, x, alpha=2), False
    yield "add", lambda a=rand(*square), b=rand(*square): a + b, False
    yield "add_row", lambda a=rand(*square), b=rand(4096): a + b, False
    yield "mul", lambda a=rand(*square), b=rand(*square): a * b, False
    yield "gt", lambda a=rand(*square), b=rand(*square): a > b, False
    yield "sum_all", lambda x=rand(*square): x.sum(), False
    yield "sum_rows", lambda x=rand(*square): x.sum(1), False
    yield "sum_columns", lambda x=rand(*square): x.sum(0), False
    yield "max_rows", lambda x=rand(*square): x.amax(1), False
    yield "argmax_rows", lambda x=rand(*square): x.argmax(1), False
    yield "softmax_1000", lambda x=rand(4096, 1000): torch.softmax(x, 1), False
    yield "softmax_10", lambda x=rand(65536, 10): torch.softmax(x, 1), False
    yield "logsoftmax_1000", lambda x=rand(4096, 1000): torch.log_softmax(x, 1), False
    yield "maxpool", lambda x=rand(128, 20, 24, 24): nn.max_pool2d(x, 2), False
    yield "avgpool", lambda x=rand(128, 20, 24, 24): nn.avg_pool2d(x, 2), False
    yield "transpose", lambda x=rand(*square): x.t().contiguous(), False
    yield "concat", lambda a=rand(*square), b=rand(*square): torch.cat((a, b), 1), False
    yield "slice_columns", lambda x=rand(*square): x[:, 1024:3072].contiguous(), False
    yield "dropout", lambda x=rand(*square): nn.dropout(x, 0.5), False
    yield "uniform", lambda: torch.rand(*square, device="cuda"), False
    yield "add_small", lambda a=rand(64), b=rand(64): a + b, False


def allow_tf32(on):
    torch.backends.cuda.matmul.allow_tf32 = on
    torch.backends.cudnn.allow_tf32 = on


def measure_ops(calls=20):
    for name, call, has_tf32 in ops():
        def run(call=call):
            for _ in range(calls):
                call()
        for tf32 in (False, True) if has_tf32 else (False,):
            allow_tf32(tf32)
            emit(f"torch_{name}_us" + ("_tf32" if tf32 else ""), median_ms(run, warmup=2) * 1e3 / calls, "us")
    allow_tf32(False)


def measure_ceilings():
    copy_ceiling()
    matmul_ceiling("f32", torch.float32, False)
    matmul_ceiling("tf32", torch.float32, True)
    matmul_ceiling("bf16", torch.bfloat16, False)
    for size in (1000, 20 << 20):
        emit(f"alloc_pair_{size}_ns", allocation_pair_ns(size), "ns")


def main():
    if torch is None or not torch.cuda.is_available():
        print("torch_baseline: no PyTorch with a GPU here")
        raise SystemExit(77)
    with torch.no_grad():
        {"ceilings": measure_ceilings, "ops": measure_ops}[sys.argv[1]]()


if __name__ == "__main__":
    main()
