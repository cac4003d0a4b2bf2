#!/usr/bin/env python3
"""Turns the arrays of a JLD2 file, as Knet.jl's `save` writes it, into a safetensors file.

    tools/convert/jld2.py model.jld2 model.safetensors [--list] [--rename OLD=NEW]... [--keep-conv]

JLD2 is HDF5; needs h5py (python3-h5py) and NumPy. Names are the paths in the file: "model/layers/1/w". Fields of
structs and elements of tuples and vectors are followed through their references. `--list` prints names and shapes
and writes nothing.

Julia stores columns first, so that all dimensions are reversed here; then
- matrices [in,out] are transposed to [out,in], as kn_linear and PyTorch have them;
- a convolution's weights [out,in,H,W] are right already, but Knet's conv4 turns its windows by 180 degrees where
  kn_conv and PyTorch don't: windows are turned. --keep-conv leaves them, for models made with mode=1;
- biases such as [1,C,1,1] become vectors [C].
"""
import argparse
import json
import struct
import sys

DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
          "uint8": "U8", "bool": "BOOL"}


def arrays(file):
    """(name, array) of each numeric array, in the order of the file; each object once."""
    import h5py
    import numpy

    seen = set()

    def follow(name, value):
        if isinstance(value, h5py.Reference):
            if value:
                yield from item(name, file[value])
        elif isinstance(value, numpy.void) and value.dtype.names:
            for field in value.dtype.names:
                yield from follow(f"{name}/{field}", value[field])
        elif isinstance(value, numpy.ndarray) and value.dtype == object:
            for i, element in enumerate(value.ravel()):
                yield from follow(f"{name}/{i + 1}", element)
        elif isinstance(value, numpy.ndarray) and value.dtype.names:
            for i, element in enumerate(value.ravel()):
                yield from follow(f"{name}/{i + 1}" if value.size > 1 else name, element)

    def item(name, object_):
        if object_.id in seen or isinstance(object_, h5py.Datatype):
            return
        seen.add(object_.id)
        if isinstance(object_, h5py.Group):
            for key in object_:
                if key != "_types":
                    yield from item(f"{name}/{key}" if name else key, object_[key])
        elif object_.dtype.kind in "fiub" and object_.ndim:
            yield name, object_[()]
        else:
            yield from follow(name, object_[()])

    yield from item("", file)


def converted(array, keep_conv):
    long = [d for d in array.shape if d != 1]
    if array.ndim > 2 and len(long) <= 1:
        return array.reshape(-1)
    if array.ndim == 2:
        return array.T
    if array.ndim > 3 and not keep_conv:
        return array[(slice(None), slice(None)) + (slice(None, None, -1),) * (array.ndim - 2)]
    return array


def write(path, tensors):
    """safetensors: eight bytes of length, JSON, the bytes of all."""
    import numpy

    head, at = {"__metadata__": {"format": "pt"}}, 0
    order = sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    for name, t in order:
        head[name] = {"dtype": DTYPES[t.dtype.name], "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, t in order:
            out.write(numpy.ascontiguousarray(t).tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("out", nargs="?")
    parser.add_argument("--list", action="store_true", help="print names and shapes, write nothing")
    parser.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", help="a name in the result")
    parser.add_argument("--keep-conv", action="store_true", help="don't turn the windows of convolutions")
    options = parser.parse_args()
    if not options.list and not options.out:
        parser.error("the name of the safetensors file is missing")
    try:
        import h5py
    except ImportError:
        sys.exit("jld2.py: h5py is missing (apt-get install python3-h5py)")
    names = dict(pair.split("=", 1) for pair in options.rename)
    tensors = {}
    with h5py.File(options.file, "r") as file:
        for name, array in arrays(file):
            if array.dtype.name not in DTYPES:
                print(f"jld2.py: {name}: left out, its type is {array.dtype}", file=sys.stderr)
                continue
            array = converted(array, options.keep_conv)
            name = names.pop(name, name)
            if name in tensors:
                sys.exit(f"jld2.py: two arrays have the name {name}")
            tensors[name] = array
            if options.list:
                print(name, array.dtype.name, list(array.shape))
    if names:
        sys.exit(f"jld2.py: no array has the name {', '.join(names)}; --list prints them")
    if not tensors:
        sys.exit(f"jld2.py: {options.file} has no arrays of numbers")
    if not options.list:
        write(options.out, tensors)


main()
