"""Files and DLPack tried with NumPy itself: test_neighbours.py LIBKNET_OPS. 77: NumPy is missing."""
import ctypes as c
import io
import os
import random
import struct
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    sys.exit(77)

ops = c.CDLL(sys.argv[1])
DTYPES = {1: "f4", 2: "f8", 3: "f2", 5: "i8", 6: "i4", 7: "u1", 8: "?"}
CODES = {np.dtype(text): code for code, text in DTYPES.items()}


class Shape(c.Structure):
    _fields_ = [("dim", c.c_int64 * 8), ("n_dims", c.c_int)]


class Frame(c.Structure):
    _fields_ = [("depth", c.c_uint32), ("serial", c.c_uint32)]


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("line", c.c_int), ("file", c.c_char_p), ("op", c.c_char_p),
                ("message", c.c_char * 2048)]


class Named(c.Structure):
    _fields_ = [("name", c.c_char_p), ("tensor", c.c_void_p)]


class Zip(c.Structure):
    _fields_ = [("compress", c.c_int), ("reserved", c.c_uint64 * 4)]


class Print(c.Structure):
    _fields_ = [(name, c.c_int) for name in ("precision", "threshold", "edge_items", "width", "bare")]
    _fields_ += [("reserved", c.c_uint64 * 4)]


def declare(name, result, *args):
    f = getattr(ops, name)
    f.restype, f.argtypes = result, args
    return f


P, S = c.c_void_p, c.c_char_p
begin = declare("kn_frame_begin", Frame, P)
end = declare("kn_frame_end", None, P)
make = declare("kn_tensor_from", P, P, c.c_int, Shape)
shape_of = declare("kn_tensor_shape", Shape, P)
dtype_of = declare("kn_tensor_dtype", c.c_int, P)
copy_out = declare("kn_copy_out", c.c_int, P, c.c_size_t, P)
last_error = declare("kn_last_error", c.POINTER(Error))
check = declare("kn_check", c.c_int)
npy_save = declare("kn_npy_save", c.c_int, S, P)
npy_load = declare("kn_npy_load", P, S)
npz_save = declare("kn_npz_save", c.c_int, S, P, c.c_int, P)
file_open = declare("kn_file_open", c.c_int, P, S)
file_read = declare("kn_file_read", P, P, S)
file_close = declare("kn_file_close", None, P)
print_text = declare("kn_print_text", c.c_int, P, c.c_size_t, P, P, P)
dl_export = declare("kn_dlpack_export", c.c_int, P, P)
dl_import = declare("kn_dlpack_import", P, P)
mul = declare("kn_mul", P, P, P)


def must(ok):
    assert ok, last_error().contents.message.decode()


def tensor(array):
    array = np.ascontiguousarray(array) if array.ndim else array
    shape = Shape((c.c_int64 * 8)(*array.shape), array.ndim)
    t = make(array.ctypes.data, CODES[array.dtype], shape)
    must(t)
    return t


def array(t):
    must(t)
    shape = shape_of(t)
    out = np.empty(list(shape.dim[:shape.n_dims]), DTYPES[dtype_of(t)])
    must(copy_out(out.ctypes.data, out.nbytes, t) == 0)
    return out


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, a.shape, b.dtype, b.shape)
    assert a.tobytes() == b.tobytes(), (a, b)


def samples():
    rng = np.random.default_rng(1)
    for dtype in DTYPES.values():
        for shape in ((), (0,), (1,), (7,), (3, 4), (2, 0, 3), (2, 3, 5, 1), (1,) * 8, (300, 7)):
            a = np.asarray(rng.standard_normal(shape) * 50)
            yield a.astype(dtype) if dtype != "?" else np.asarray(a > 0)


def npy(folder):
    for i, a in enumerate(samples()):
        path = f"{folder}/{i}.npy"
        must(npy_save(path.encode(), tensor(a)) == 0)
        same(np.load(path), np.asarray(a))
        for b in (a, np.asfortranarray(a), np.asarray(a).astype(np.asarray(a).dtype.newbyteorder(">"))):
            np.save(path, b)
            same(array(npy_load(path.encode())), np.asarray(b).astype(a.dtype))


def npz(folder):
    arrays = {f"a/{i} é": np.asarray(a) for i, a in enumerate(samples())}
    arrays["large"] = np.arange(3_000_000, dtype="f4") % 1000
    named = (Named * len(arrays))(*[Named(k.encode(), tensor(v)) for k, v in arrays.items()])
    for compress in (0, 1):
        path = f"{folder}/ours.npz"
        must(npz_save(path.encode(), named, len(arrays), c.byref(Zip(compress))) == 0)
        with np.load(path) as back:
            assert sorted(back.files) == sorted(arrays)
            for k, v in arrays.items():
                same(back[k], v)
        path = f"{folder}/theirs.npz"
        (np.savez_compressed if compress else np.savez)(path, **arrays)
        f = P()
        must(file_open(c.byref(f), path.encode()) == 0)
        for k, v in arrays.items():
            same(array(file_read(f, k.encode())), v)
        file_close(f)


def integers(folder):
    """Integers that no kn_dtype fits are read as wider ones."""
    rng = np.random.default_rng(3)
    for theirs, ours in {"i1": "i4", "i2": "i4", "u2": "i4", "u4": "i8", "u8": "i8"}.items():
        info = np.iinfo(theirs)
        for shape in ((), (0,), (7,), (2, 0, 3), (40, 75), (5, 3, 401), (1,) * 8):
            a = np.asarray(rng.integers(info.min, min(int(info.max), 2**63 - 1), shape, theirs, endpoint=True))
            path = f"{folder}/integers.npy"
            for b in (a, np.asfortranarray(a), a.astype(a.dtype.newbyteorder(">"))):
                np.save(path, b)
                same(array(npy_load(path.encode())), b.astype(ours))
                for save in (np.savez, np.savez_compressed):
                    save(path + ".npz", b=b)
                    f = P()
                    must(file_open(c.byref(f), (path + ".npz").encode()) == 0)
                    same(array(file_read(f, b"b")), b.astype(ours))
                    file_close(f)


def strangers(folder):
    """Arrays that no tensor holds leave the others of a file readable."""
    path, w = f"{folder}/strangers.npz", np.arange(3, dtype="f4")
    fields = [(f"a rather long name of field {i}", "f4") for i in range(400)]
    for save in (np.savez, np.savez_compressed):
        save(path, w=w, log=np.zeros(2, [("step", "i8"), ("loss", "f4", (2,))]), wide=np.zeros(2, fields), deep=np.zeros((1,) * 9))
        f = P()
        must(file_open(c.byref(f), path.encode()) == 0)
        same(array(file_read(f, b"w")), w)
        for name in (b"log", b"wide", b"deep"):
            assert file_read(f, name) is None and check() < 0
        file_close(f)


# --- printing ---

def printed(a, **options):
    text = c.create_string_buffer(1 << 16)
    must(print_text(text, len(text), None, tensor(a), c.byref(Print(bare=1, **options))) == 0)
    return text.value.decode()


def printing(_):
    rng = np.random.default_rng(2)
    cases = list(samples())
    for dtype in ("f4", "f8", "f2"):
        cases += [np.array(x, dtype) for x in (
            [1, 2.5, -3], [np.nan, 1, 2], [np.inf, -1.5], [-np.inf, 0.25, np.nan], [0.0, -0.0], [1e-5, 1],
            [6e4, 1e-3], [0.1, 0.2, 0.3], [1 / 3, 2 / 3], [[1e-7]], [np.nan, np.nan], 1.5, -0.1, 65504)]
        for _ in range(60):
            shape = [int(n) for n in rng.integers(1, 9, rng.integers(1, 4))]
            scale = 10.0 ** rng.integers(-6, 5)
            cases.append((rng.standard_normal(shape) * scale).astype(dtype))
    for dtype in ("f4", "f8"):
        cases += [np.array(x, dtype) for x in ([1e10, 1], [1e-30, 2e30], [123456789.0], 1e300 if dtype == "f8" else 1e30)]
        cases += [rng.standard_normal(shape).astype(dtype) for shape in ((1001,), (40, 40), (11, 12, 13), (2, 2000))]
    for dtype in ("f4", "f8", "f2"):   # about half of the last of 3 places
        half = np.array([[0.0005, 0.00051], [0.00049, 1], [-0.0005, 2]], dtype)
        cases += [half, np.nextafter(half, half.dtype.type(1)), np.nextafter(half, half.dtype.type(-1)), half[:1], half[2:]]
    for dtype in ("f4", "f2"):   # ratios about 1000
        for x in rng.random(40).astype(dtype):
            cases += [np.array([x, y]) for y in (x * x.dtype.type(1000), np.nextafter(x * x.dtype.type(1000), x.dtype.type(2000)))]
    cases += [np.array([-2**63, 2**63 - 1]), np.arange(2000), np.arange(300).reshape(3, 100)]
    for a in cases:
        a = np.asarray(a)
        assert printed(a) == np.array2string(a), f"ours:\n{printed(a)}\nNumPy's:\n{a}\n{a.dtype}"
        options = dict(precision=3, threshold=10, edge_items=2, width=40)
        theirs = np.array2string(a, precision=3, threshold=10, edgeitems=2, max_line_width=40)
        assert printed(a, **options) == theirs, f"ours:\n{printed(a, **options)}\nNumPy's:\n{theirs}\n{a.dtype}"
        for width in (1, 2, 7):
            options, theirs = dict(threshold=10, width=width), np.array2string(a, threshold=10, max_line_width=width)
            assert printed(a, **options) == theirs, f"ours:\n{printed(a, **options)}\nNumPy's:\n{theirs}\n{a.dtype}"


# --- DLPack: NumPy's capsules ---

api = c.pythonapi
capsule_new = api.PyCapsule_New
capsule_new.restype, capsule_new.argtypes = c.py_object, (P, S, P)
capsule_pointer = api.PyCapsule_GetPointer
capsule_pointer.restype, capsule_pointer.argtypes = P, (c.py_object, S)
capsule_rename = api.PyCapsule_SetName
capsule_rename.argtypes = (c.py_object, S)
NAME, USED = b"dltensor", b"used_dltensor"


class Ours:
    """What np.from_dlpack takes."""

    def __init__(self, t):
        self.t = t

    def __dlpack__(self, stream=None):
        m = P()
        must(dl_export(c.byref(m), self.t) == 0)
        return capsule_new(m, NAME, None)

    def __dlpack_device__(self):
        return 1, 0


def imported(a):
    capsule = a.__dlpack__()
    t = dl_import(capsule_pointer(capsule, NAME))
    must(t)
    capsule_rename(capsule, USED)
    return t


def dlpack(_):
    for a in samples():
        a = np.asarray(a)
        if a.dtype == bool:
            continue  # NumPy learned it in 1.25
        frame = begin(None)
        theirs = np.from_dlpack(Ours(tensor(a)))
        end(c.byref(frame))  # the memory outlives the frame
        same(theirs, a)
        references = sys.getrefcount(a)
        frame = begin(None)
        same(array(imported(a)), a)
        end(c.byref(frame))
        assert sys.getrefcount(a) == references, "the deleter was not called"
    a = np.arange(24, dtype="f4").reshape(2, 3, 4)
    for b in (a.T, a[:, ::2], a[::-1], a[:, :, 1], np.broadcast_to(np.float32(3), (2, 2)).copy()):
        same(array(imported(b)), b)
    t = imported(a)
    a[0, 0, 0] = 100  # shared
    same(array(mul(t, t)), a * a)


def main():
    frame = begin(None)
    with tempfile.TemporaryDirectory() as folder:
        for test in (npy, npz, integers, strangers, printing, dlpack):
            test(folder)
            assert check() == 0
            print("ok", test.__name__)
    end(c.byref(frame))


main()
