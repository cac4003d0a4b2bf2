"""knetc.install("torch")"""
import ctypes

from ._lib import Error, load, path_of

# The setters of PyTorch, and what they are given. Older versions lack some.
_SETTERS = {
    "set_init_fn": "knet_torch_init",
    "set_reset_fn": "knet_torch_reset",
    "set_memory_fraction_fn": "knet_torch_memory_fraction",
    "set_base_alloc_fn": "knet_torch_base_alloc",
    "set_record_stream_fn": "knet_torch_record_stream",
    "set_begin_allocate_to_pool": "knet_torch_begin_pool",
    "set_end_allocate_to_pool_fn": "knet_torch_end_pool",
    "set_release_pool": "knet_torch_release_pool",
}


def install():
    """Makes PyTorch allocate CUDA memory from the pools; returns PyTorch's allocator object. PyTorch refuses after its
    first use of CUDA."""
    import torch

    memory = torch.cuda.memory
    if not hasattr(memory, "CUDAPluggableAllocator"):
        raise Error(f"PyTorch {torch.__version__} has no pluggable allocators; 2.0 and later have")
    lib = load("torch")
    allocator = memory.CUDAPluggableAllocator(path_of("torch"), "knet_torch_alloc", "knet_torch_free")
    for setter, function in _SETTERS.items():
        call = getattr(allocator.allocator(), setter, None)
        if call:
            call(ctypes.cast(getattr(lib, function), ctypes.c_void_p).value)
    memory.change_current_allocator(allocator)
    return allocator
