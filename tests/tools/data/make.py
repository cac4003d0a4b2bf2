#!/usr/bin/python3
"""Writes imdb.npz, in the form of Keras's file, and its pickles: python3 tests/tools/data/make.py

Arrays of lists of numbers, of several protocols of pickle. Made with NumPy 1.24."""
import io
import pathlib
import pickle
import sys
import zipfile

import numpy

here = pathlib.Path(__file__).parent
corpus = here.parent.parent / "fuzz" / "corpus"
TRAIN = [[1, 14, 22, 300], [5], [70000, 2, 2, 2, 9, 1], []]
TEST = [[7, 8], [9, 10, 11]]


def objects(lists):
    out = numpy.empty(len(lists), object)
    out[:] = lists
    return out


def member(array, protocol=None):
    out = io.BytesIO()
    if array.dtype == object:
        numpy.lib.format.write_array_header_1_0(out, numpy.lib.format.header_data_from_array_1_0(array))
        pickle.dump(array, out, protocol=protocol)
    else:
        numpy.save(out, array)
    return out.getvalue()


with zipfile.ZipFile(here / "imdb.npz", "w", zipfile.ZIP_DEFLATED) as z:
    for name, array in {"x_train": objects(TRAIN), "x_test": objects(TEST), "y_train": numpy.array([1, 0, 1, 0]),
                        "y_test": numpy.array([0, 1])}.items():
        z.writestr(zipfile.ZipInfo(name + ".npy"), member(array, 3))
(corpus / "lists").mkdir(parents=True, exist_ok=True)
for protocol in (2, 3, 4, 5):
    (corpus / "lists" / f"protocol{protocol}").write_bytes(pickle.dumps(objects(TRAIN), protocol=protocol))
(corpus / "lists" / "plain").write_bytes(pickle.dumps(TRAIN, protocol=2))
