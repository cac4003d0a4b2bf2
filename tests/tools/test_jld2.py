"""test_jld2.py SCRIPT: the converter of Knet.jl's files, on a file with the structure that JLD2 gives structs.
Skipped (77) without h5py."""
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy
except ImportError:
    print("h5py is missing (apt-get install python3-h5py)")
    sys.exit(77)

script = sys.argv[1]
os.chdir(tempfile.mkdtemp())


def run(*words, code=0):
    done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True)
    assert done.returncode == code, (words, done)
    return done.stdout + done.stderr


def julia(array):
    """What Julia stores of an array: its dimensions are reversed in HDF5."""
    return numpy.asarray(array).T


def read(path):
    data = open(path, "rb").read()
    (n,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8:8 + n])
    kinds = {"F32": "f4", "F64": "f8", "I64": "i8"}
    return {name: numpy.frombuffer(data[8 + n:][slice(*e["data_offsets"])], kinds[e["dtype"]]).reshape(e["shape"])
            for name, e in head.items() if name != "__metadata__"}


dense = numpy.arange(6, dtype="f4").reshape(2, 3)  # Knet's w of 3 inputs and 2 outputs
conv = numpy.arange(2 * 3 * 4 * 5, dtype="f4").reshape(2, 3, 4, 5)  # (W,H,in,out)
bias = numpy.arange(5, dtype="f4").reshape(1, 1, 5, 1)
layer = numpy.dtype([("w", h5py.ref_dtype), ("b", h5py.ref_dtype), ("stride", "i8")])
with h5py.File("model.jld2", "w", userblock_size=512) as f:
    f.create_group("_types")["00000001"] = numpy.dtype("f4")
    hidden = f.create_group("_refs")
    hidden["w"], hidden["b"] = julia(conv), julia(bias)
    one = numpy.zeros((), layer)
    one["w"], one["b"] = hidden["w"].ref, hidden["b"].ref
    hidden.create_dataset("layer", data=one, dtype=layer)
    f.create_dataset("model", data=numpy.array([hidden["layer"].ref], object), dtype=h5py.ref_dtype)
    f["dense"] = julia(dense)
    f["steps"] = numpy.arange(3)
    f["name"] = "lenet"
    f["rate"] = 0.1
    f.move("_refs", "zzz")  # found through the references first

listed = run("model.jld2", "--list")
assert "dense float32 [2, 3]\n" in listed and "model/1/w float32 [5, 4, 3, 2]\n" in listed, listed
run("model.jld2", "out.safetensors", "--rename", "model/1/w=conv.weight", "--rename", "model/1/b=conv.bias")
out = read("out.safetensors")
assert set(out) == {"dense", "conv.weight", "conv.bias", "steps"}, set(out)
assert (out["dense"] == dense).all()
turned = out["conv.weight"]
assert all(turned[o, i, 2 - h, 1 - w] == conv[w, h, i, o] for w in range(2) for h in range(3) for i in range(4) for o in range(5))
assert (out["conv.bias"] == numpy.arange(5)).all() and out["conv.bias"].shape == (5,)
assert (out["steps"] == [0, 1, 2]).all()
run("model.jld2", "kept.safetensors", "--keep-conv")
assert (read("kept.safetensors")["model/1/w"] == conv.T).all()
assert "no array has the name x" in run("model.jld2", "out.safetensors", "--rename", "x=y", code=1)
assert "is missing" in run("model.jld2", code=2)
