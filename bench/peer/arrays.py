"""The other side of bench/arrays: each case's function in PyTorch, under the name that bench/arrays/*.c gives it.

    arrays.py THREADS [DEVICE [strict|tf32]]

Reads lines "name fwd|both budget_ns input…" from standard input and answers each with the least time of one call in
nanoseconds; "nan" where CASES has no such name, or PyTorch no gradient. An input is "kind:dtype:lo:hi:shape"
(bench/cases/cases.h). "both" is forward, sum, and backward to every real input
but constants. Other scripts import this one and put their own cases in its place.
"""
import gc
import math
import sys
import time

import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "f64": torch.float64, "i64": torch.int64, "i32": torch.int32, "u8": torch.uint8,
          "bool": torch.bool}

EYES = {}


def near_identity(x):
    n = x.shape[-1]
    if n not in EYES:
        EYES[n] = torch.eye(n)
    return x + EYES[n]


CASES = {
    # pointwise
    "identity": lambda x: x,
    "bias_add": torch.add,
    "relu": F.relu,
    "sigm": torch.sigmoid,
    "elu": F.elu,
    "selu": F.selu,
    "relu_1m": F.relu,
    "add_1m": torch.add,
    "mul_1m": torch.mul,
    "affine_1m": lambda x: x * 2 + 1,
    "abs_1m": torch.abs,
    "div_1m": torch.div,
    "exp_1m": torch.exp,
    "log_1m": torch.log,
    "sqrt_1m": torch.sqrt,
    "tanh_1m": torch.tanh,
    "gelu_1m": F.gelu,
    "pow_3": lambda x: x ** 3,
    "pow_half": lambda x: x ** 0.5,
    "pow_1m": torch.pow,
    "maximum_1m": torch.maximum,
    "where_1m": torch.where,
    "lt_1m": torch.lt,
    "clamp_1m": lambda x: torch.clamp(x, -1, 1),
    "square_1m": torch.square,
    "rsqrt_1m": torch.rsqrt,
    "floor_1m": torch.floor,
    "round_1m": torch.round,
    "isnan_1m": torch.isnan,
    "exp2_1m": torch.exp2,
    "expm1_1m": torch.expm1,
    "log2_1m": torch.log2,
    "log10_1m": torch.log10,
    "log1p_1m": torch.log1p,
    "sin_1m": torch.sin,
    "cos_1m": torch.cos,
    "erf_1m": torch.erf,
    "erfc_1m": torch.erfc,
    "gelu_tanh_1m": lambda x: F.gelu(x, approximate="tanh"),
    "silu_1m": F.silu,
    "mish_1m": F.mish,
    "softplus_1m": F.softplus,
    "logsigmoid_1m": F.logsigmoid,
    "hardswish_1m": F.hardswish,
    "remainder_1m": torch.remainder,
    "hypot_1m": torch.hypot,
    "lgamma_1m": torch.lgamma,
    "erfinv_1m": torch.erfinv,
    "tan_1m": torch.tan,
    "asin_1m": torch.asin,
    "atan_1m": torch.atan,
    "atan2_1m": torch.atan2,
    "sinh_1m": torch.sinh,
    "asinh_1m": torch.asinh,
    "sin_f64_1m": torch.sin,
    "logaddexp_1m": torch.logaddexp,
    "celu_1m": lambda x: F.celu(x, 1.5),
    "digamma_1m": torch.digamma,
    "broadcast_scalar_128": lambda x: x + 3,
    "broadcast_row_128": torch.add,
    "broadcast_column_128": torch.add,
    "broadcast_scalar_2048": lambda x: x + 3,
    "broadcast_row_2048": torch.add,
    "broadcast_column_2048": torch.add,
    "broadcast_column_narrow": torch.mul,
    # reduce
    "sum": torch.sum,
    "sum_all": torch.sum,
    "sum_axis0": lambda x: x.sum(0),
    "sum_rows": lambda x: x.sum(1),
    "mean_rows": lambda x: x.mean(1),
    "max_rows": lambda x: x.amax(1),
    "min_axis0": lambda x: x.amin(0),
    "argmax_rows": lambda x: x.argmax(1),
    "softmax_rows": lambda x: F.softmax(x, 1),
    "logsumexp": lambda x: x.logsumexp(0),
    "argmin_axis0": lambda x: x.argmin(0),
    "argmax_all": lambda x: x.argmax(),
    "max_all": lambda x: x.max(),
    "mean_axis0": lambda x: x.mean(0),
    "prod_rows": lambda x: x.prod(1),
    "var_all": lambda x: x.var(),
    "var_rows": lambda x: x.var(1),
    "std_axis0": lambda x: x.std(0),
    "norm_all": lambda x: torch.linalg.vector_norm(x),
    "norm_rows": lambda x: torch.linalg.vector_norm(x, dim=1),
    "norm1_axis0": lambda x: torch.linalg.vector_norm(x, 1, dim=0),
    "logsumexp_rows": lambda x: x.logsumexp(1),
    "any_rows": lambda x: x.any(1),
    "all_axis0": lambda x: x.all(0),
    "count_nonzero": torch.count_nonzero,
    "count_nonzero_bool": torch.count_nonzero,
    "sum_i64": lambda x: x.sum(1),
    "sum_few_columns": lambda x: x.sum(0),
    "max_few_rows": lambda x: x.amax(0),
    "max_short_rows": lambda x: x.amax(1),
    "argmax_short_rows": lambda x: x.argmax(1),
    "cumsum_1m": lambda x: x.cumsum(0),
    "cumsum_rows": lambda x: x.cumsum(1),
    "cumsum_axis0": lambda x: x.cumsum(0),
    "cumprod_rows": lambda x: x.cumprod(1),
    "sort_1m": torch.sort,
    "sort_rows": torch.sort,
    "argsort_rows": torch.argsort,
    "topk_1m": lambda x: torch.topk(x, 100),
    "topk_rows": lambda x: torch.topk(x, 10),
    "median_rows": lambda x: x.median(1)[0],
    "quantile_all": lambda x: x.quantile(0.9),
    "nan_median_rows": lambda x: x.nanmedian(1)[0],
    "nan_sum_rows": lambda x: x.nansum(1),
    "cummax_rows": lambda x: torch.cummax(x, 1)[0],
    "logcumsumexp_rows": lambda x: x.logcumsumexp(1),
    "diff_rows": lambda x: x.diff(),
    "bincount_1m": lambda x: torch.bincount(x, minlength=1000),
    "histogram_1m": lambda x: torch.histc(x, 100, -3, 3),
    "search_sorted": lambda x, line=torch.linspace(-3, 3, 10000): torch.searchsorted(line, x),
    "unique_100k": lambda x: torch.unique(x, return_inverse=True)[0],
    # movement: what PyTorch answers with a view is made contiguous, as ours is
    "getindex": lambda x: x[0, 0],
    "mat": lambda x: x.view(x.shape[0], -1),
    "transpose_2048": lambda x: x.t().contiguous(),
    "concat_axis0": lambda x, y: torch.cat((x, y), 0),
    "concat_axis1": lambda x, y: torch.cat((x, y), 1),
    "slice_columns": lambda x: x[:, 100:900].contiguous(),
    "broadcast_to": lambda x: x.expand(1000, 1000).contiguous(),
    "cast_f64": lambda x: x.double(),
    "cast_i64": lambda x: x.long(),
    "cast_i64_i32": lambda x: x.int(),
    "cast_bool_u8": lambda x: x.byte(),
    "permute_768x512x16": lambda x: x.permute(1, 0, 2).contiguous(),
    "permute_heads": lambda x: x.permute(0, 2, 1, 3).contiguous(),
    "permute_reverse": lambda x: x.permute(2, 1, 0).contiguous(),
    "permute_last_first": lambda x: x.permute(3, 0, 1, 2).contiguous(),
    "permute_nchw_nhwc": lambda x: x.permute(0, 2, 3, 1).contiguous(),
    "zeropad": lambda x: F.pad(x, (1, 1, 1, 1)),
    "pad_reflect": lambda x: F.pad(x, (1, 1, 1, 1), "reflect"),
    "stack": lambda x, y: torch.stack((x, y), 1),
    "flip_last": lambda x: x.flip(1),
    "flip_first": lambda x: x.flip(0),
    "roll": lambda x: x.roll(100, 1),
    "repeat": lambda x: x.repeat_interleave(4, 0),
    "repeat_elements": lambda x: x.repeat_interleave(3, 1),
    "slice_narrow": lambda x: x[:, 1:2].contiguous(),
    "pad_narrow": lambda x: F.pad(x, (1, 1)),
    "tile": lambda x: x.tile((2, 2)),
    "tril": torch.tril,
    "diagonal": lambda x: x.diagonal().contiguous(),
    "steps": lambda x: x[:, ::2].contiguous(),
    "arange_1m": lambda: torch.arange(0, 1000000, dtype=torch.float32),
    "one_hot": lambda i: F.one_hot(i, 1000).float(),
    "embedding": lambda w, i: F.embedding(i, w),
    "take_columns": lambda x, i: x.index_select(1, i),
    "take_elements": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(1, i),
    "gather_one": lambda x, i: x.gather(1, i),
    "scatter": lambda x, i, y: x.scatter(1, i, y),
    "scatter_add": lambda x, i, y: x.scatter_add(1, i, y),
    "index_add": lambda x, i, y: x.index_add(0, i, y),
    "masked_select": lambda x, mask: x[mask],
    "nonzero": torch.nonzero,
    # product
    "matmul": torch.matmul,
    "bmm": torch.bmm,
    "linear_add_512": lambda x, w, b, r: F.linear(x, w, b) + r,
    "linear_relu_512": lambda x, w, b: F.relu(F.linear(x, w, b)),
    "linear_silu_512": lambda x, w, b: F.silu(F.linear(x, w, b)),
    "matmul_shared": torch.matmul,
    "bmm_small": torch.bmm,
    "bmm_3x3": torch.bmm,
    "mv_1024": torch.mv,
    "mv_3": torch.mv,
    "dot_1m": torch.dot,
    "outer_1024": torch.outer,
    "geam_1024": lambda a, b: torch.add(2 * a, b.t(), alpha=-1),
    "kron_32": torch.kron,
    "trace_1024": torch.trace,
    "block_diag": torch.block_diag,
    "einsum_batch": lambda a, b: torch.einsum("bij,bjk->bik", a, b),
    "einsum_swapped": lambda a, b: torch.einsum("bij,kbj->kib", a, b),
    "einsum_all": lambda a, b: torch.einsum("ij,ij->", a, b),
    "cholesky_512": lambda x: torch.linalg.cholesky(near_identity(x)),
    "cholesky_many": lambda x: torch.linalg.cholesky(near_identity(x)),
    "triangular_512": lambda x, b: torch.linalg.solve_triangular(near_identity(x), b, upper=False),
    "solve_512": torch.linalg.solve,
    "solve_many": torch.linalg.solve,
    "inverse_512": torch.linalg.inv,
    "inverse_many": torch.linalg.inv,
    "det_256": lambda x: torch.linalg.det(x * 0.06),
    "logdet_256": lambda x: torch.linalg.slogdet(near_identity(x))[1],
    "qr_512": lambda x: torch.linalg.qr(x)[0],
    "svd_128": torch.linalg.svdvals,
    "eigh_128": torch.linalg.eigvalsh,
    "linear_512": F.linear,
    # random
    "uniform_1m": lambda: torch.rand(1000000),
    "normal_1m": lambda: torch.randn(1000000),
    "zeros_1m": lambda: torch.zeros(1000000),
    "bernoulli_1m": lambda: torch.empty(1000000).bernoulli_(0.3),
    "integers_1m": lambda: torch.randint(1000, (1000000,)),
    "randperm_1m": lambda: torch.randperm(1000000),
    "truncated_normal_1m": lambda: torch.nn.init.trunc_normal_(torch.empty(1000000)),
    "orthogonal_256": lambda: torch.nn.init.orthogonal_(torch.empty(256, 256)),
    "dropout_1m": lambda x: F.dropout(x, 0.5),
}


def update(optimiser):
    """A million parameters in ten tensors, with gradients."""
    params = [torch.randn(100, 1000).requires_grad_() for _ in range(10)]
    for p in params:
        p.grad = torch.zeros_like(p)
    return optimiser(params).step


# Cases with a state: a function that makes the function to time.
MAKERS = {
    "update_sgd": lambda: update(lambda p: torch.optim.SGD(p, 0.1)),
    "update_momentum": lambda: update(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
    "update_adam": lambda: update(torch.optim.Adam),
}


def tensor_of(text):
    kind, dtype, lo, hi, shape = text.split(":")
    lo, hi, shape = float(lo), float(hi), [int(n) for n in shape.split(",") if n]
    if kind == "n":
        return torch.randn(shape, dtype=DTYPES[dtype])
    if kind in "uc":
        return torch.empty(shape, dtype=DTYPES[dtype]).uniform_(lo, hi)
    return torch.randint(int(lo), int(hi), shape).to(DTYPES[dtype])


def with_gradients(f, xs, inputs):
    wanted = [x.requires_grad_() for x, text in zip(xs, inputs) if x.is_floating_point() and text[0] in "nu"]

    def run(*xs):
        for x in wanted:
            x.grad = None
        f(*xs).sum().backward()

    return run


def least_ns(f, xs, budget_ns):
    """As cases_least in bench/cases/measure.c."""
    on_gpu = torch.empty(0).is_cuda
    least, total, n, sample_ns = math.inf, 0, 1, 2e6 if on_gpu else 2e5
    while total < budget_ns:
        turns = range(n)
        start = time.perf_counter_ns()
        for _ in turns:
            f(*xs)
        if on_gpu:
            torch.cuda.synchronize()
        ns = time.perf_counter_ns() - start
        total += ns
        least = min(least, ns / n)
        if ns < sample_ns / 2:
            n = int(min(n * 10, math.ceil(sample_ns / (ns / n))))
    return least


class Case:
    """The function of a line and its inputs, kept for the next rounds."""

    def __init__(self, name, mode, inputs):
        self.key = name, mode, inputs
        self.f = MAKERS[name]() if name in MAKERS else CASES.get(name)
        self.xs = [tensor_of(text) for text in inputs]
        self.records = mode == "both"
        if self.f and self.records:
            self.f = with_gradients(self.f, self.xs, inputs)

    def time(self, budget_ns):
        if not self.f:
            return math.nan
        with torch.set_grad_enabled(self.records):
            return least_ns(self.f, self.xs, budget_ns)


def use_device(name, tf32):
    """New tensors are made there; without the mode of set_default_device, which every call would go through."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    if name.startswith("cuda"):
        torch.set_default_tensor_type(torch.cuda.FloatTensor)


def main():
    torch.set_num_threads(int(sys.argv[1]))
    use_device(*(sys.argv[2:] + ["cpu"])[:1], sys.argv[3:] == ["tf32"])
    torch.manual_seed(1)
    gc.disable()
    case = None
    for line in sys.stdin:
        name, mode, budget_ns, *inputs = line.split()
        if case is None or case.key != (name, mode, inputs):
            case = None  # frees the last one's tensors first
            case = Case(name, mode, inputs)
        print(case.time(float(budget_ns)), flush=True)


if __name__ == "__main__":
    main()
