"""memory_stats() with the keys of torch.cuda.memory_stats()."""
import json
import os
import tempfile

from ._lib import Pool, check, load, quoted

KINDS = ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
         "inactive_split_bytes", "requested_bytes")
POOLS = ("all", "small_pool", "large_pool")
_seen = {}  # by device: the largest values that were read since the last reset


def report(pool):
    """The pool's report, as the dict of kn_pool_print."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "pool.json")
        check(load().kn_pool_print(pool.handle, quoted(path)))
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def _now(r):
    """{kind: (all, small, large)} at this moment: small blocks are slots of slabs, large ones the others."""
    slots = sum(c["live"] for c in r["classes"])
    small_bytes = sum(c["live"] * c["bytes"] for c in r["classes"])
    blocks, large = slots + r["large_blocks"], r["large_blocks"]
    live = r["live_bytes"]
    slabs = sum(c["slots"] * c["bytes"] for c in r["classes"])
    waiting = r["waiting_bytes"]
    reserved = r["reserved_bytes"]
    segments = r["n_device_allocs"] - r["n_device_frees"]
    return {
        "allocation": (blocks, slots, large),
        "segment": (segments, 0, segments),
        "active": (blocks, slots, large),
        "inactive_split": (r["free_blocks"], 0, r["free_blocks"]),
        "allocated_bytes": (live, small_bytes, r["large_bytes"]),
        "reserved_bytes": (reserved, slabs, max(reserved - slabs, 0)),
        "active_bytes": (live + waiting, small_bytes, r["large_bytes"] + waiting),
        "inactive_split_bytes": (max(reserved - live - waiting, 0), max(slabs - small_bytes, 0), r["free_bytes"]),
        "requested_bytes": (r["requested_bytes"], 0, 0),
    }


def memory_stats(device=0):
    """The pool's counters under the keys of torch.cuda.memory_stats().

    Exact: `current`, but for requested_bytes of the small and the large pool, which is 0; `peak` of allocated_bytes.all and
    of reserved_bytes.all; allocation.all.allocated and .freed; the counters without a dot. The other peaks are the largest
    values that this function has returned since reset_peaks(); the other `allocated` and `freed` are 0."""
    pool = Pool(device)
    r = report(pool)
    seen = _seen.setdefault(pool.name, {})
    stats = {}
    for kind, values in _now(r).items():
        for name, value in zip(POOLS, values):
            key = f"{kind}.{name}"
            seen[key] = max(seen.get(key, 0), value)
            stats[f"{key}.current"], stats[f"{key}.peak"] = value, seen[key]
            stats[f"{key}.allocated"] = stats[f"{key}.freed"] = 0
    stats["allocated_bytes.all.peak"] = r["live_bytes_max"]
    stats["reserved_bytes.all.peak"] = r["reserved_bytes_max"]
    stats["allocation.all.allocated"] = r["n_allocs"]
    stats["allocation.all.freed"] = r["n_allocs"] - stats["allocation.all.current"]
    stats["segment.all.allocated"], stats["segment.all.freed"] = r["n_device_allocs"], r["n_device_frees"]
    stats["num_alloc_retries"] = next(rung["tried"] for rung in r["ladder"] if rung["rung"] == "give back")
    stats["num_ooms"], stats["num_sync_all_streams"] = r["n_ooms"], r["n_syncs"]
    stats["num_device_alloc"], stats["num_device_free"] = r["n_device_allocs"], r["n_device_frees"]
    for kind in ("oversize_allocations", "oversize_segments"):
        for what in ("current", "peak", "allocated", "freed"):
            stats[f"{kind}.{what}"] = 0
    stats["max_split_size"] = -1
    return dict(sorted(stats.items()))


def memory_allocated(device=0):
    """Live bytes."""
    return Pool(device).stat("live_bytes")


def memory_reserved(device=0):
    """Bytes taken from the device."""
    return Pool(device).stat("reserved_bytes")


def reset_peaks(device=0):
    """Starts the peaks of memory_stats() again at the values of this moment."""
    pool = Pool(device)
    _seen.pop(pool.name, None)
    pool.lib.kn_pool_peaks_reset(pool.handle)
