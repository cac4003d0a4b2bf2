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
table = numpy.arange(9, dtype="f4").reshape(3, 3)  # Knet's (width,words): column k is word k
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
    f["embed"] = julia(table)
    f["dense_bias"] = julia(numpy.arange(3, dtype="f4").reshape(3, 1))
    f["one_output"] = julia(numpy.arange(3, dtype="f4").reshape(1, 3))
    for group in "narrow", "plain":
        f[f"{group}/w/value"] = julia(numpy.arange(4, dtype="f4").reshape(4, 1))  # one input
        f[f"{group}/1"] = julia(numpy.arange(6, dtype="f4").reshape(1, 1, 6, 1))
    f["conv1x1/w"] = julia(numpy.arange(6, dtype="f4").reshape(1, 1, 6, 1))
    f["steps"] = numpy.arange(3)
    f["name"] = "lenet"
    f["rate"] = 0.1
    f.move("_refs", "zzz")  # found through the references first

listed = run("model.jld2", "--list")
assert "dense float32 [2, 3]\n" in listed and "model/1/w float32 [5, 4, 3, 2]\n" in listed, listed
run("model.jld2", "out.safetensors", "--rename", "model/1/w=conv.weight", "--rename", "model/1/b=conv.bias")
out = read("out.safetensors")
assert set(out) == {"dense", "conv.weight", "conv.bias", "steps", "embed", "dense_bias", "one_output", "narrow/w/value",
                    "narrow/1", "plain/w/value", "plain/1", "conv1x1/w"}, set(out)
assert (out["embed"] == table).all()  # taken for the w of a layer
assert out["dense_bias"].shape == (3,) and out["one_output"].shape == (1, 3)
assert out["narrow/w/value"].shape == (4, 1) and out["conv1x1/w"].shape == (1, 6, 1, 1) and out["plain/1"].shape == (6,)
assert (out["dense"] == dense).all()
turned = out["conv.weight"]
assert all(turned[o, i, 2 - h, 1 - w] == conv[w, h, i, o] for w in range(2) for h in range(3) for i in range(4) for o in range(5))
assert (out["conv.bias"] == numpy.arange(5)).all() and out["conv.bias"].shape == (5,)
assert (out["steps"] == [0, 1, 2]).all()
run("model.jld2", "kept.safetensors", "--keep-conv")
assert (read("kept.safetensors")["model/1/w"] == conv.T).all()
assert "no array has the name x" in run("model.jld2", "out.safetensors", "--rename", "x=y", code=1)
assert "is missing" in run("model.jld2", code=2)

run("model.jld2", "kept.safetensors", "--keep", "embed", "--rename", "embed=words", "--keep", "dense_bias", "--weights", "plain/1")
kept = read("kept.safetensors")
assert all((kept["words"][k] == table[:, k]).all() for k in range(3))  # the rows of kn_embedding
assert kept["dense_bias"].shape == (1, 3) and kept["plain/1"].shape == (1, 6, 1, 1) and kept["narrow/1"].shape == (6,)
assert "no array has the name x" in run("model.jld2", "out.safetensors", "--keep", "x", code=1)
assert "must be OLD=NEW" in run("model.jld2", "out.safetensors", "--rename", "x", code=2)


def fails(path, why, data=None, out="out.safetensors"):
    """One line with the name of the file."""
    if data is not None:
        open(path, "wb").write(data)
    said = run(path, out, code=1)
    assert said.count("\n") == 1 and said.startswith("jld2.py: ") and why in said, said


fails("text.jld2", "text.jld2 is not an HDF5 file", b"no HDF5\n" * 100)
fails("none.jld2", "none.jld2: No such file or directory")
fails("cut.jld2", "cut.jld2: ", open("model.jld2", "rb").read()[:3000])
fails("model.jld2", "no/out: No such file or directory", out="no/out")
