"""snapshot() in the form of torch.cuda.memory._snapshot(), for PyTorch's memory viewer."""
import json
import os
import pickle
import shutil
import tempfile

from . import history
from ._lib import Pool, check, load, quoted


def _pool_json(pool):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "pool.json")
        check(load().kn_pool_snapshot(pool.handle, quoted(path)))
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def _frames(live, stacks):
    """The viewer shows frames: the stack, if it is known, then the tag and the owner."""
    names = [{"name": f"{what}: {live[what]}", "filename": "", "line": 0} for what in ("owner", "tag") if what in live]
    return stacks.get(live.get("stack"), []) + names


def _block(address, size, state, live=None):
    requested = live["requested"] if live else size
    return {"address": address, "size": size, "requested_size": requested, "state": state,
            "frames": live["frames"] if live else []}


def _slots(block):
    """A slab's slots: live ones, and runs of the others."""
    out, slot, at = [], block["slot_bytes"], block["address"]
    end = block["address"] + block["size"]
    for live in block["live"]:
        start = block["address"] + live["slot"] * slot
        if start > at:
            out.append(_block(at, start - at, "inactive"))
        out.append(_block(start, slot, "active_allocated", live))
        at = start + slot
    if at < end:
        out.append(_block(at, end - at, "inactive"))
    return out


def _blocks(block):
    state = block["state"]
    if state == "slab":
        return _slots(block)
    if state == "live":
        return [_block(block["address"], block["size"], "active_allocated", block)]
    return [_block(block["address"], block["size"], "active_awaiting_free" if state == "waiting" else "inactive")]


def _segment(device, run, expandable):
    blocks = [b for block in run for b in _blocks(block)]
    allocated = sum(b["size"] for b in blocks if b["state"] == "active_allocated")
    active = sum(b["size"] for b in blocks if b["state"] != "inactive")
    return {"device": device, "address": run[0]["address"], "total_size": sum(b["size"] for b in run), "stream": 0,
            "segment_type": "large", "segment_pool_id": (0, 0), "allocated_size": allocated, "active_size": active,
            "requested_size": sum(b["requested_size"] for b in blocks if b["state"] == "active_allocated"),
            "is_expandable": expandable, "frames": [], "blocks": blocks}


def _segments(device, data):
    """A range of virtual memory is cut at its holes, which have no memory."""
    out, stacks = [], {stack["id"]: stack["frames"] for stack in data.get("stacks", [])}
    for segment in data["segments"]:
        run = []
        for block in segment["blocks"]:
            for live in block.get("live", [block]):
                live["frames"] = _frames(live, stacks)
        for block in segment["blocks"] + [{"state": "hole"}]:
            if block["state"] != "hole":
                run.append(block)
            elif run:
                out.append(_segment(device, run, segment["kind"] == "range"))
                run = []
    return out


def _traces(device_count, segments):
    """The events since record_history(). Those that allocated a block that is live have its frames."""
    traces = history.traces()
    out = [traces.get(f"cuda:{device}", []) for device in range(device_count)]
    live = {(segment["device"], block["address"]): block["frames"]
            for segment in segments for block in segment["blocks"] if block["state"] == "active_allocated"}
    for device, trace in enumerate(out):
        for entry in reversed(trace):
            if entry["action"] == "alloc":
                entry["frames"] = live.pop((device, entry["addr"]), [])
            elif entry["action"] == "oom":
                entry["device_free"] = Pool(device).info()[1]
    return out


def _pools(devices):
    """{N: pool of cuda:N} of a device or several."""
    several = hasattr(devices, "__iter__") and not isinstance(devices, (str, bytes))
    pools = [Pool(device) for device in (devices if several else [devices])]
    return {pool.cuda_number("snapshot", "PyTorch's viewer"): pool for pool in pools}


def snapshot(devices=0):
    """Segments and blocks of the pools of a device, or of a list of devices, and the events since record_history(), as
    torch.cuda.memory._snapshot() returns them. Blocks have the stack frames that record_stacks() keeps, then their
    owner and tag."""
    segments, pools = [], _pools(devices)
    for device, pool in pools.items():
        segments += _segments(device, _pool_json(pool))
    return {"segments": segments, "device_traces": _traces(max(pools, default=-1) + 1, segments),
            "allocator_settings": {"expandable_segments": True}, "external_annotations": []}


def _replace(path, data):
    """Writes a file that appears when it is complete: until then, and on errors, the old one stays."""
    path = os.path.realpath(os.fsdecode(path))
    with tempfile.TemporaryDirectory(prefix=".knetc-", dir=os.path.dirname(path)) as folder:
        beside = os.path.join(folder, "new")
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(path):
            shutil.copymode(path, beside)
        os.replace(beside, path)


def dump(path, devices=0):
    """Writes snapshot() as the pickle that PyTorch's memory viewer reads. On errors an older file stays."""
    data = pickle.dumps(snapshot(devices))
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device
        with open(path, "wb") as file:
            file.write(data)
        return
    try:
        _replace(path, data)
    except OSError as error:  # it names a file of _replace
        raise OSError(error.errno, error.strerror, os.fsdecode(path)) from None
