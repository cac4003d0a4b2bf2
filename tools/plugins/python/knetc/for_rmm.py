"""knetc.install("rmm")"""
from ._lib import Error, Pool


def handle_of(stream):
    """The handle of an RMM stream, by CUDA's protocol for Python."""
    if not hasattr(stream, "__cuda_stream__"):
        raise Error("this version of RMM doesn't tell its streams' handles (__cuda_stream__); use <knet/rmm.hpp> from C++")
    return stream.__cuda_stream__()[1] or None


def install(device=0):
    """Makes the pool of a device RMM's current device resource; returns the resource. In C++ include <knet/rmm.hpp>."""
    import rmm

    pool = Pool(device)
    number = pool.cuda_number("install", "RMM")

    def allocate(size, stream):
        return pool.alloc(size, handle_of(stream))

    def deallocate(address, size, stream):
        pool.end_use(address, handle_of(stream))  # the stream of the last use, if it is another one
        pool.free(address)

    resource = rmm.mr.CallbackMemoryResource(allocate, deallocate)
    rmm.mr.set_per_device_resource(number, resource)
    return resource
