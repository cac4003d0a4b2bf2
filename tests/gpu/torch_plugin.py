"""A training step of PyTorch with the plug-in beside PyTorch's own allocator with expandable segments: the same losses, step
time and reserved memory; CuPy with the plug-in, where it is installed.

    torch_plugin.py LIBRARIES PACKAGE            # the folders of libknet_torch.so.0 and of knetc; starts itself for each side

Without PyTorch on a GPU the exit code is 77.
"""
import json
import os
import statistics
import subprocess
import sys
import time

STEPS, TIMED = 40, 20


def losses_and_times(torch):
    """Trains a small transformer on sequences whose length changes."""
    torch.manual_seed(1)
    # Other kernels of attention add in any order.
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses, times = [], []
    for step in range(STEPS):
        x = torch.randn(16, 128 + 64 * (step % 4), 512, device="cuda")
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
        losses.append(loss.item().hex())
    return losses, statistics.median(times[-TIMED:]) * 1e6


def side(name):
    import torch

    if not torch.cuda.is_available():
        return 77
    torch.use_deterministic_algorithms(True, warn_only=True)
    if name == "knet":
        import knetc
        knetc.install("torch")
    losses, step_us = losses_and_times(torch)
    stats = knetc.memory_stats() if name == "knet" else torch.cuda.memory_stats()
    print(json.dumps({"losses": losses, "step_us": step_us, "reserved": stats["reserved_bytes.all.peak"],
                      "device_calls": stats["num_device_alloc"] + stats["num_device_free"]}))
    return 0


def cupy_side():
    try:
        import cupy
    except ImportError:
        print("torch_plugin: no CuPy here")
        return 0
    import knetc
    knetc.install("cupy")
    total = sum(int(cupy.arange(n, dtype=cupy.int64).sum()) for n in (10, 1000, 10**6))
    assert total == 45 + 499500 + 499999500000, total
    return 0


def run(name, libraries, package):
    env = dict(os.environ, KNET_LIB=libraries, PYTHONPATH=package, CUBLAS_WORKSPACE_CONFIG=":4096:8")
    if name == "torch":
        env["PYTORCH_CUDA_ALLOC_CONF"] = env["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    done = subprocess.run([sys.executable, __file__, "--side", name], env=env, stdout=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    lines = done.stdout.strip().splitlines()
    return json.loads(lines[-1]) if name != "cupy" else None


def emit(metric, value, unit, baseline):
    print(json.dumps({"bench": "gpu_plugin", "metric": metric, "value": value, "unit": unit, "baseline": baseline,
                      "ratio": round(value / baseline, 4)}))


def main(libraries, package):
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        print("torch_plugin: no PyTorch with a GPU here")
        return 77
    theirs, ours = run("torch", libraries, package), run("knet", libraries, package)
    emit("torch_step_us", ours["step_us"], "us", theirs["step_us"])
    emit("torch_reserved", ours["reserved"], "bytes", theirs["reserved"])
    emit("torch_device_calls", ours["device_calls"], "calls", max(1, theirs["device_calls"]))
    run("cupy", libraries, package)
    if ours["losses"] != theirs["losses"]:
        print("torch_plugin: the losses differ: " + ", ".join(f"{a} {b}" for a, b in zip(theirs["losses"], ours["losses"])))
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        sys.exit(cupy_side() if sys.argv[2] == "cupy" else side(sys.argv[2]))
    sys.exit(main(*sys.argv[1:]))
