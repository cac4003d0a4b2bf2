"""events.py DIR METRICS: reads TensorBoard's event file in DIR, checksums included, and compares it with the JSON lines of
the same training. Where Python has TensorBoard, its own reader must agree."""
import glob
import json
import math
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283  # the check value of the algorithm


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        length, crc = struct.unpack_from("<QI", data, at)
        assert crc == masked(data[at:at + 8]), f"the checksum of the length at byte {at}"
        body = data[at + 12:at + 12 + length]
        (crc,) = struct.unpack_from("<I", data, at + 12 + length)
        assert crc == masked(body), f"the checksum of the record at byte {at}"
        yield body
        at += length + 16


def fields(message):
    """(number, value) of a protocol buffer."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
        elif kind == 2:
            n = varint()
            yield key >> 3, message[at:at + n]
            at += n
        else:
            n, code = {1: (8, "<d"), 5: (4, "<f")}[kind]
            yield key >> 3, struct.unpack_from(code, message, at)[0]
            at += n


def read(path):
    events = [dict(fields(r)) for r in records(open(path, "rb").read())]
    assert events[0][3] == b"brain.Event:2" and events[0][1] > 1e9
    steps = {}
    for event in events[1:]:
        values = [dict(fields(v)) for n, v in fields(event[5]) if n == 1]
        steps[event[2]] = {v[1].decode(): v[2] for v in values}
    return steps


def main(folder, metrics):
    (path,) = glob.glob(folder + "/events.out.tfevents.*")
    steps = read(path)
    lines = [json.loads(line) for line in open(metrics)]
    assert len(lines) == len(steps) > 0, (lines, steps)
    for line in lines:
        step = steps[line["epoch"]]
        for tag, key in (("loss/train", "loss"), ("loss/test", "test_loss"), ("accuracy/test", "test_accuracy"),
                         ("seconds/train", "train_seconds")):
            assert math.isclose(step[tag], line[key], rel_tol=1e-5, abs_tol=1e-6), (tag, step, line)
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    except ImportError:
        return
    assert len(list(EventFileLoader(path).Load())) == len(steps) + 1


main(*sys.argv[1:])
