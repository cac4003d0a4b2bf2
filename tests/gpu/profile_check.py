"""What must be true of a profile that was taken on a card. Each check returns its complaints."""
import json

UNATTRIBUTED_MAX = 1e-4  # of all GPU time
QUIET = ("cudaGetLastError", "cudaPeekAtLastError", "__cudaPush", "__cudaPop")  # no wrapper opens a scope for them
BEFORE = "(captured before the timer was on)"


def load(path):
    with open(path, encoding="utf-8") as file:
        profile = json.load(file)
    if profile.get("schema") != "knet.prof":
        raise ValueError(f"{path} is no profile")
    return profile


def last_json(path):
    """The last line of a log that is a JSON object."""
    found = None
    with open(path, errors="replace") as file:
        for line in file:
            if line.startswith("{"):
                found = json.loads(line)
    if found is None:
        raise ValueError(f"{path} has no JSON object")
    return found


def rows(profile):
    """All rows: (path of labels, row)."""
    stack = [((), row) for row in reversed(profile["scopes"])]
    while stack:
        path, row = stack.pop()
        path += (row["label"],)
        yield path, row
        stack += [(path, child) for child in reversed(row["children"])]


def user_gpu_ns(profile):
    return sum(row["gpu_ns"] for row in profile["scopes"] if not row.get("extra"))


def gpu(profile):
    """The balance, the source, the column: true of every profile with GPU work."""
    balance, wrong = profile.get("gpu"), []
    if not balance:
        return ["the profile has no GPU part"]
    counted = balance["timed"] + balance["pending"] + balance["dropped"] + balance["untimed"]
    if not balance["source"].startswith("cupti"):
        wrong.append(f"the source of records is {balance['source']}: {balance.get('notice', '')}")
    if balance["launched"] == 0:
        wrong.append("nothing was launched")
    if balance["launched"] != counted:
        wrong.append(f"launched {balance['launched']} is not timed + pending + dropped + untimed = {counted}")
    for name in ("pending", "dropped", "untimed", "n_lost"):
        if balance[name]:
            wrong.append(f"{name} {balance[name]}")
    known = user_gpu_ns(profile)
    if known == 0:
        wrong.append("no scope has GPU time")
    if balance["unattributed_ns"] > UNATTRIBUTED_MAX * (known + balance["unattributed_ns"]):
        wrong.append(f"{balance['unattributed_ns']} ns of {known} are under no scope")
    if "GPU" not in profile["table"] or " launched " not in profile["table"]:
        wrong.append("the table has no GPU column")
    return wrong


def scopes_have_gpu_time(profile, labels):
    seen = {path[-1] for path, row in rows(profile) if row.get("gpu_ns") and not row.get("kernel")}
    return [f"scope {label} has no GPU time" for label in labels if label not in seen]


def calls_have_rows(profile):
    """The full tier: a row for each call, none for the quiet ones; CUPTI's own time stands apart."""
    labels = {path[-1] for path, row in rows(profile) if not row.get("kernel")}
    wrong = [] if any(label.startswith("cudaLaunchKernel") for label in labels) else ["no row for cudaLaunchKernel"]
    wrong += [f"a row for the quiet call {label}" for label in sorted(labels) if label.startswith(QUIET)]
    wrong += [f"{path[-1]} is under a user's scope" for path, _ in rows(profile)
              if path[-1].startswith("CUPTI ") and path[0] != "~profiler~"]
    if "~profiler~" not in labels:
        wrong.append("no row for the profiler's own time")
    return wrong


def memory_outside_pools(profile):
    """What runtime and libraries took past the pools is at most what the card has lost beyond the pools."""
    pools = [pool for pool in profile["memory"]["pools"] if pool.get("device_total_bytes")]
    if not pools:
        return ["no pool of the card is in the profile"]
    most = max(pool["device_used_bytes"] for pool in pools) - sum(pool["reserved_bytes"] for pool in pools)
    held = sum(row["held_bytes"] for row in profile["scopes"] if row["label"] == "~outside pool~")
    return [f"{held} bytes outside the pools; the card has lost {most} beside them"] if held > most else []


def n_gpu(profile, label):
    return sum(row["n_gpu"] for path, row in rows(profile) if path[-1] == label)


GRAPHS = (("captured step", "launch"), ("second step", "second launch"))


def captured_kernels(profile, plain, n_steps):
    """Each launch of a graph gives the kernels of a plain step, under the scope that it was captured in."""
    wrong = [] if n_gpu(profile, BEFORE) == 0 else [f"{n_gpu(profile, BEFORE)} kernels of an unknown graph"]
    due = n_gpu(plain, "plain step")
    if due == 0 or due % n_steps:
        wrong.append(f"{due} kernels in {n_steps} plain steps")
    for step, launch in GRAPHS:
        under = sum(row["n_gpu"] for path, row in rows(profile) if path[-3:] == (launch, "[captured]", step))
        if under != due:
            wrong.append(f"{under} kernels under the {step}; {n_steps} plain steps have {due}")
    return wrong


def graph_is_one_row(profile, _, n_steps):
    wrong = []
    for _, launch in GRAPHS:
        under = sum(row["n_gpu"] for path, row in rows(profile) if path[-2:] == (launch, "[graph]"))
        if under != n_steps:
            wrong.append(f"{under} graphs under {launch}, not {n_steps}")
    return wrong


def paused_work_is_absent(profile, plain):
    """The same work as `plain`, and as much again in a pause."""
    wrong = []
    if profile["gpu"]["launched"] != plain["gpu"]["launched"]:
        wrong.append(f"launched {profile['gpu']['launched']} with a pause, {plain['gpu']['launched']} without")
    if any(path[-1] == "paused step" for path, _ in rows(profile)):
        wrong.append("the paused step has a row")
    if n_gpu(profile, "plain step") != n_gpu(plain, "plain step"):
        wrong.append("the steps beside the pause have other kernels")
    return wrong


def same_training(cpu, cuda):
    """The last epochs of two runs of `knet train --json`."""
    wrong = []
    a, b = cpu["epochs"][-1], cuda["epochs"][-1]
    for name, most in (("loss", 0.02), ("test_accuracy", 0.02)):
        if not abs(a[name] - b[name]) <= most:
            wrong.append(f"{name} differs: {a[name]} on the CPU, {b[name]} on the card")
    return wrong
