"""gdb commands for records of Knet.c: in gdb, `source tools/gdb/knet.py`, then

    knet pools            every pool: device, live, reserved, requested, waiting, limit
    knet blocks [POOL]    every block in address order: state, stream, epoch, who waits
    knet epochs [POOL]    every stream: the open epoch, the finished one, events out, free bytes
    knet tensor TENSOR    its dtype, shape, owners, storage, call site, and what its gradient leads to
    knet tape TENSOR      every node of the tape that recorded the tensor: op, place, call site, results, edges, saved

POOL is an expression (a kn_pool *) or a pool's name; without it, all pools. TENSOR is a kn_tensor *. Needs debug
information of the libraries. The commands read memory only: they work in a core file, and while a lock is held.
"""
import gdb

STATES = ("?", "free", "live", "slab", "waiting", "hole")


def bytes_text(n):
    n = int(n)
    if n >= 2**63:
        return "none"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 999.5 or unit == "GiB":
            digits = 0 if unit == "B" or n >= 99.95 else 1 if n >= 9.995 else 2
            return f"{n:.{digits}f} {unit}"
        n /= 1024


def linked(first, link):
    """The records of a list, by the name of their link."""
    while first:
        yield first
        first = first[link]


def all_pools():
    for device in linked(gdb.parse_and_eval("kn__devices"), "next"):
        yield from linked(device["pools"], "link")


def name_of(pool):
    return pool["name"].string()


def wanted(argument):
    argument = argument.strip()
    named = [pool for pool in all_pools() if name_of(pool) == argument]
    if not argument or named:
        return named or list(all_pools())
    return [gdb.parse_and_eval(argument).cast(gdb.lookup_type("kn_pool").pointer())]


def live(pool):
    """The pool's counter, and what threads have not folded into it."""
    return int(pool["live"]) + sum(int(cache["live"]) for cache in linked(pool["caches"], "next"))


def streams(pool):
    for i in range(int(pool["n_streams"])):
        yield pool["streams"][i]


def stream_text(pool, stream):
    if stream == pool["idle"]:
        return "any stream"
    return f"stream {int(stream['handle']):#x}"


def blocks(pool):
    yield from linked(pool["range"]["first"], "right")
    for segment in linked(pool["segments"], "next"):
        yield from linked(segment["first"], "right")


def bins_bytes(stream):
    """Free blocks and their bytes, in the bins that are not empty."""
    n, total, bins = 0, 0, stream["bins"]
    for word in range(bins["words"].type.range()[1]):
        bits = int(bins["words"][word])
        while bits:
            for block in linked(bins["head"][word * 64 + (bits & -bits).bit_length() - 1], "next"):
                n, total = n + 1, total + int(block["size"])
            bits &= bits - 1
    return n, total


class Knet(gdb.Command):
    """Records of Knet.c: knet pools, blocks [POOL], epochs [POOL], tensor TENSOR, tape TENSOR."""

    def __init__(self):
        super().__init__("knet", gdb.COMMAND_DATA, gdb.COMPLETE_NONE, True)


class Pools(gdb.Command):
    """knet pools: every pool, with its counters."""

    def __init__(self):
        super().__init__("knet pools", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        for pool in wanted(argument):
            print(f"pool {name_of(pool)} on {pool['device']['name'].string()}, {int(pool):#x}:"
                  f" live {bytes_text(live(pool))}, reserved {bytes_text(pool['reserved'])},"
                  f" waiting {bytes_text(pool['waiting_bytes'])}, limit {bytes_text(pool['limit'])},"
                  f" {int(pool['n_streams'])} streams{', dead' if pool['dead'] else ''}")


class Blocks(gdb.Command):
    """knet blocks [POOL]: every block in address order."""

    def __init__(self):
        super().__init__("knet blocks", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        for pool in wanted(argument):
            print(f"pool {name_of(pool)}")
            for block in blocks(pool):
                state = int(block["state"])
                print(f"  {int(block['ptr']):#x} {bytes_text(block['size']):>10}"
                      f" {STATES[state] if state < len(STATES) else '?':8}"
                      f"{stream_text(pool, block['stream'])}{self.more(block, state)}")

    def more(self, block, state):
        if STATES[state] == "slab":
            slab = block["slab"]
            return f", slots of {int(slab['slot_bytes'])}: {int(slab['n_free'])} of {int(slab['n_slots'])} in the slab"
        if STATES[state] == "live":
            return f", requested {int(block['size']) - int(block['slack'])}"
        if STATES[state] == "waiting":
            return ", waits for " + ", ".join(
                f"epoch {int(use['epoch'])} of {int(use['stream']['handle']):#x}"
                for use in linked(block["waiter"]["uses"], "next"))
        return f", epoch {int(block['epoch'])}" if STATES[state] == "free" and int(block["epoch"]) else ""


class Epochs(gdb.Command):
    """knet epochs [POOL]: every stream of a pool and its epochs."""

    def __init__(self):
        super().__init__("knet epochs", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        for pool in wanted(argument):
            n, total = bins_bytes(pool["idle"])
            print(f"pool {name_of(pool)}: {n} blocks of {bytes_text(total)} free for any stream")
            for stream in streams(pool):
                n, total = bins_bytes(stream)
                flags = [flag for flag in ("retired", "lost", "hidden", "graph") if stream[flag]]
                events = [int(stream["events"][i]["epoch"]) for i in range(int(stream["n_events"]))]
                print(f"  {stream_text(pool, stream)}: epoch {int(stream['epoch'])} is open with"
                      f" {bytes_text(stream['open_bytes'])}, {int(stream['done'])} is finished, events of {events},"
                      f" {n} free blocks of {bytes_text(total)}{', ' if flags else ''}{', '.join(flags)}")


# --- tensors and tapes ---

STATE_TEXTS = ("", ", consumed by backward", ", ended", ", pending", ", forgotten until backward")
SPECIAL_NODES = ("watch", "apply", "special")


def pointer_to(name):
    return gdb.lookup_type(name).pointer()


def string_of(value):
    return value.string() if value else ""


def tensor_of(argument):
    if not argument.strip():
        raise gdb.GdbError("which tensor? an expression of type kn_tensor * is missing")
    tensor = gdb.parse_and_eval(argument).cast(pointer_to("kn_tensor"))
    if not tensor:
        raise gdb.GdbError(f"{argument.strip()} is NULL")
    return tensor


def site_text(record):
    file = string_of(record["file"])
    return f", {file}:{int(record['line'])}" if file else ""


def dtype_text(value):
    return str(value.cast(gdb.lookup_type("kn_dtype"))).removeprefix("KN_").lower()


def shape_text(record):
    dims = ",".join(str(int(record["dim"][i])) for i in range(int(record["n_dims"])))
    return f"{dtype_text(record['dtype'])} [{dims}]"


def op_text(node):
    count = int(gdb.parse_and_eval("(int)KN_OP_COUNT"))
    op = int(node["op"])
    if op >= count:
        return SPECIAL_NODES[op - count]
    return gdb.parse_and_eval(f"kn_op_table[{op}]")["name"].string()


def edge_node(edge):
    """The node that an edge leads to; None: a parameter, or nothing."""
    edge = int(edge)
    return None if edge & 1 or not edge else gdb.Value(edge & ~15).cast(pointer_to("kn__node"))


def edge_text(edge, numbers=None):
    edge = int(edge)
    if not edge:
        return "none"
    if edge & 1:
        parameter = gdb.Value(edge & ~1).cast(pointer_to("kn__param"))
        return f"parameter {string_of(parameter['name'])}"
    node = edge_node(edge)
    number = f"#{numbers[int(node)]}" if numbers else f"{int(node):#x}"
    return f"result {edge >> 1 & 3} of {op_text(node)} {number}"


def atomic(value):
    return int(value.cast(gdb.lookup_type("unsigned int")))


def tensor_text(tensor):
    storage = tensor["storage"]
    text = f"{shape_text(tensor)}, {atomic(tensor['refs'])} references{STATE_TEXTS[int(tensor['state'])]}{site_text(tensor)}"
    if not storage:
        return text + ", no storage"
    device = storage["device"]
    return (f"{text}, {bytes_text(storage['size_bytes'])} at {int(storage['data']):#x}"
            f" on {device['name'].string() if device else 'the host'}, version {int(storage['version'])}")


class Tensor(gdb.Command):
    """knet tensor TENSOR: what it is, who owns it, and what its gradient leads to."""

    def __init__(self):
        super().__init__("knet tensor", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        tensor = tensor_of(argument)
        print(f"tensor {int(tensor):#x}: {tensor_text(tensor)}; gradient to {edge_text(tensor['grad'])}")


class Tape(gdb.Command):
    """knet tape TENSOR: every node of the tape that recorded the tensor."""

    def __init__(self):
        super().__init__("knet tape", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        node = edge_node(tensor_of(argument)["grad"])
        if node is None:
            raise gdb.GdbError("no tape recorded this tensor")
        tape = node["tape"]
        nodes = list(linked(tape["first"], "next"))
        numbers = {int(n): i for i, n in enumerate(nodes)}
        print(f"tape {int(tape):#x}: {int(tape['n_nodes'])} nodes")
        for i, n in enumerate(nodes):
            place = n["place"]["label"].address.cast(pointer_to("char")).string() if n["place"] else ""
            print(f"  #{i} {op_text(n)}{f' in {place}' if place else ''}{site_text(self.site(n))}: "
                  + self.results(n) + "; inputs " + (", ".join(self.edges(n, numbers)) or "none")
                  + f"; {int(n['n_saved'])} saved")

    def site(self, node):
        first = (node + 1).cast(pointer_to("kn__result"))["out"]
        return first if first else node

    def results(self, node):
        results = (node + 1).cast(pointer_to("kn__result"))
        return ", ".join(shape_text(results[i]) for i in range(int(node["n_out"])))

    def edges(self, node, numbers):
        edges = ((node + 1).cast(pointer_to("kn__result")) + int(node["n_out"])).cast(pointer_to("kn_edge"))
        return [edge_text(edges[i], numbers) for i in range(int(node["n_in"]))]


for command in (Knet, Pools, Blocks, Epochs, Tensor, Tape):
    command()
