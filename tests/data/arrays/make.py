#!/usr/bin/env python3
"""Writes the files of this folder with NumPy, and the safetensors file from the format's description:
/usr/bin/python3 tests/data/arrays/make.py. Every array holds 0, 1, 2 … in row-major order, bools 0, 1, 0, …"""
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
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open("all.safetensors", "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text + data + bytes(4))
