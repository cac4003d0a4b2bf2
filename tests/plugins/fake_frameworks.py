"""Stand-ins for torch, cupy and rmm: what the package calls of them, as they do it themselves."""
import ctypes
import sys
import types


class _Setters:
    """torch._C's object: setters take addresses."""

    def __init__(self, alloc, free):
        self.functions = {"alloc": alloc, "free": free}

    def __getattr__(self, name):
        if not name.startswith("set_"):
            raise AttributeError(name)
        return lambda address: self.functions.__setitem__(name, address)


class CUDAPluggableAllocator:
    def __init__(self, path, alloc_name, free_name):
        library = ctypes.CDLL(path)
        alloc = ctypes.cast(getattr(library, alloc_name), ctypes.c_void_p).value
        free = ctypes.cast(getattr(library, free_name), ctypes.c_void_p).value
        self._allocator = _Setters(alloc, free)

    def allocator(self):
        return self._allocator


def torch():
    module, cuda, memory = (types.ModuleType(name) for name in ("torch", "torch.cuda", "torch.cuda.memory"))
    module.__version__, module.cuda, cuda.memory = "2.9.0", cuda, memory
    cuda.is_available, cuda.current_device = lambda: True, lambda: 0
    memory.CUDAPluggableAllocator, memory.current = CUDAPluggableAllocator, None

    def change_current_allocator(allocator):
        if memory.current:
            raise RuntimeError("Can't swap an already initialized allocator")
        memory.current = allocator

    memory.change_current_allocator = change_current_allocator
    sys.modules["torch"] = module
    return module


class _CupyMemory:
    """As PythonFunctionAllocatorMemory: frees when it is collected."""

    def __init__(self, malloc, free, size, device):
        self.free, self.device, self.ptr = free, device, 0
        self.ptr = malloc(size, device) if size else 0

    def __del__(self):
        if self.ptr:
            self.free(self.ptr, self.device)


class PythonFunctionAllocator:
    def __init__(self, malloc, free):
        self._malloc, self._free = malloc, free

    def malloc(self, size):
        return _CupyMemory(self._malloc, self._free, size, 0)


def cupy():
    module, cuda, memory = (types.ModuleType(name) for name in ("cupy", "cupy.cuda", "cupy.cuda.memory"))

    class OutOfMemoryError(MemoryError):
        def __init__(self, size, total, limit=0):
            super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes).")

    memory.OutOfMemoryError = OutOfMemoryError
    module.cuda, cuda.memory, cuda.PythonFunctionAllocator = cuda, memory, PythonFunctionAllocator
    cuda.Device = lambda: types.SimpleNamespace(id=0)
    cuda.stream = types.SimpleNamespace(ptr=0)
    cuda.get_current_stream = lambda: cuda.stream
    cuda.set_allocator = lambda allocator: setattr(cuda, "alloc", allocator)
    sys.modules["cupy"] = module
    return module


class Stream:
    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


def rmm():
    module, mr = types.ModuleType("rmm"), types.ModuleType("rmm.mr")
    module.mr, mr.by_device = mr, {}

    class CallbackMemoryResource:
        def __init__(self, allocate, deallocate):
            self.allocate, self.deallocate = allocate, deallocate

    mr.CallbackMemoryResource = CallbackMemoryResource
    mr.set_per_device_resource = mr.by_device.__setitem__
    sys.modules["rmm"] = module
    return module
