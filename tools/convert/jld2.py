#!/usr/bin/env python3
"""Turns the arrays of a JLD2 file, as Knet.jl's `save` writes it, into a safetensors file.

    tools/convert/jld2.py model.jld2 model.safetensors [--list] [--rename OLD=NEW]... [--keep NAME]... [--weights NAME]... [--keep-conv]

JLD2 is HDF5; needs h5py (python3-h5py) and NumPy. Names are the paths in the file: "model/layers/1/w". Fields of
structs and elements of tuples and vectors are followed through their references. `--list` prints names and shapes
and writes nothing.

Julia stores columns first, so that all dimensions are reversed here; then
- matrices [in,out] are transposed to [out,in], as kn_linear and PyTorch have them;
- a convolution's weights [out,in,H,W] are right already, but Knet's conv4 turns its windows by 180 degrees where
  kn_conv and PyTorch don't: windows are turned. --keep-conv leaves them, for models made with mode=1;
- biases, Julia's (C,1) and (1,1,C,1), become vectors [C].

An embedding must not be transposed: Julia's (width,words), reversed, is [words,width], which kn_embedding takes. A shape
doesn't tell it from other matrices, so name it: --keep model/embed/w. Such an array has the reversed dimensions and no
other change.

The weights of a layer with one input, (out,1), and of a convolution of size 1 with one output, (1,1,C,1), have the
shape of a bias. An array is taken for weights, [out,1] and [1,C,1,1], if its name is w, weight or weights, as a
field w of a struct is; name others: --weights model/3.
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


def named_weights(name):
    """A parameter of AutoGrad has its array in the field `value`."""
    fields = name.lower().split("/")
    if len(fields) > 1 and fields[-1] == "value":
        fields.pop()
    return fields[-1] in ("w", "weight", "weights")


def converted(array, is_weights, keep_conv):
    long = [d for d in array.shape if d != 1]
    is_bias = array.shape[0] == 1 if array.ndim == 2 else array.ndim > 2 and len(long) <= 1
    if is_bias and not is_weights:
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


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("out", nargs="?")
    parser.add_argument("--list", action="store_true", help="print names and shapes, write nothing")
    parser.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", help="a name in the result")
    parser.add_argument("--keep", action="append", default=[], metavar="NAME",
                        help="neither transpose nor flatten this array, such as an embedding")
    parser.add_argument("--weights", action="append", default=[], metavar="NAME",
                        help="this array, of the shape of a bias, has weights")
    parser.add_argument("--keep-conv", action="store_true", help="don't turn the windows of convolutions")
    options = parser.parse_args()
    if not options.list and not options.out:
        parser.error("the name of the safetensors file is missing")
    for pair in options.rename:
        if "=" not in pair:
            parser.error(f"--rename {pair}: must be OLD=NEW")
    return options


def opened(path):
    try:
        import h5py
    except ImportError:
        sys.exit("jld2.py: h5py is missing (apt-get install python3-h5py)")
    with open(path, "rb"):
        pass  # h5py's errors name no reason
    if not h5py.is_hdf5(path):
        sys.exit(f"jld2.py: {path} is not an HDF5 file, which a JLD2 file is")
    return h5py.File(path, "r")


def read(options):
    """The arrays of the result, by name."""
    names = dict(pair.split("=", 1) for pair in options.rename)
    unseen = set(names) | set(options.keep) | set(options.weights)
    tensors = {}
    with opened(options.file) as file:
        for name, array in arrays(file):
            unseen.discard(name)
            if array.dtype.name not in DTYPES:
                print(f"jld2.py: {name}: left out, its type is {array.dtype}", file=sys.stderr)
                continue
            if name not in options.keep:
                array = converted(array, name in options.weights or named_weights(name), options.keep_conv)
            name = names.get(name, name)
            if name in tensors:
                sys.exit(f"jld2.py: two arrays have the name {name}")
            tensors[name] = array
            if options.list:
                print(name, array.dtype.name, list(array.shape))
    if unseen:
        sys.exit(f"jld2.py: no array has the name {', '.join(sorted(unseen))}; --list prints them")
    return tensors


def main():
    options = parse()
    try:
        tensors = read(options)
    except (OSError, KeyError, RuntimeError, ValueError) as error:  # h5py's, of a damaged file
        sys.exit(f"jld2.py: {options.file}: {getattr(error, 'strerror', None) or error}")
    if not tensors:
        sys.exit(f"jld2.py: {options.file} has no arrays of numbers")
    if options.list:
        return
    try:
        write(options.out, tensors)
    except OSError as error:
        sys.exit(f"jld2.py: {options.out}: {error.strerror or error}")


main()
