#!/usr/bin/env python3
"""Writes the files of this folder with NumPy, and the safetensors file from the format's description:
/usr/bin/python3 tests/data/arrays/make.py. Every array holds 0, 1, 2 … in row-major order, bools 0, 1, 0, …; those of
integers* have the least and the greatest numbers of their dtype too."""
import json
import os
import struct

import numpy as np

os.chdir(os.path.dirname(os.path.abspath(__file__)))


def count(shape, dtype):
    n = int(np.prod(shape))
    return (np.arange(n) % 2 == 1 if dtype == "?" else np.arange(n)).astype(dtype).reshape(shape)


ARRAYS = {"f32": count((2, 3), "<f4"), "f64": count((3,), "<f8"), "f16": count((2, 2), "<f2"), "i64": count((), "<i8"),
          "i32": count((4, 1), "<i4"), "u8": count((5,), "u1"), "bool": count((4,), "?"), "empty": count((2, 0, 3), "<f4"),
          "fortran": np.asfortranarray(count((2, 3), "<f4")), "big_endian": count((2, 3), ">f4")}

np.save("f32.npy", ARRAYS["f32"])
np.save("fortran.npy", ARRAYS["fortran"])
np.save("complex.npy", count((2,), "<c8"))
np.savez("stored.npz", **ARRAYS)
np.savez_compressed("deflated.npz", **ARRAYS)

WORDS = {"f32": "F32", "f64": "F64", "f16": "F16", "i64": "I64", "i32": "I32", "u8": "U8", "bool": "BOOL", "empty": "F32"}
header, data = {"__metadata__": {"made by": "é"}}, b""
for name, word in WORDS.items():
    raw = ARRAYS[name].tobytes()
    header[name] = {"dtype": word, "shape": list(ARRAYS[name].shape), "data_offsets": [len(data), len(data) + len(raw)]}
    data += raw
header["u16"] = {"dtype": "U16", "shape": [2], "data_offsets": [len(data), len(data) + 4]}


def write_safetensors(path, header, data):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


write_safetensors("all.safetensors", header, data + bytes(4))

# --- integers that no kn_dtype fits ---


def ends(dtype):
    """The least two, two between, the greatest two; of uint64 the greatest that int64 has too."""
    least, most = int(np.iinfo(dtype).min), min(int(np.iinfo(dtype).max), 2**63 - 1)
    return np.array([[least, least + 1, 2], [3, most - 1, most]], dtype)


INTEGERS = {}
for name, word in {"u8": "U64", "u4": "U32", "i2": "I16", "u2": "U16", "i1": "I8"}.items():
    INTEGERS[name] = ends(name)
    INTEGERS[name + "_fortran"] = np.asfortranarray(ends(name))
    INTEGERS[name + "_big"] = ends(name).astype(">" + name)
    INTEGERS[name + "_one"] = np.array(7, name)
    INTEGERS[name + "_none"] = np.zeros((2, 0), name)
    WORDS[name] = word
INTEGERS["above"] = np.array([1, 2**63], "u8")
INTEGERS["above_big"] = np.array([1, 2**64 - 1], ">u8")
WORDS["above"] = "U64"

np.savez("integers.npz", **INTEGERS)
np.savez_compressed("integers_deflated.npz", **INTEGERS, long_i1=(np.arange(2500) % 256 - 128).astype("i1"),
                    long_u4=np.arange(2500, dtype="u4") + 2**31, long_u2_big=(np.arange(2500) + 63000).astype(">u2"))
np.save("u2.npy", INTEGERS["u2"])
np.save("u8.npy", INTEGERS["u8"])
np.save("above.npy", INTEGERS["above"])
header, data = {}, b""
for name, array in INTEGERS.items():
    word, raw = WORDS[name.split("_")[0]], array.tobytes()
    if "big" not in name and "fortran" not in name:
        header[name] = {"dtype": word, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
write_safetensors("integers.safetensors", header, data)
