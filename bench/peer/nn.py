"""The other side of bench/nn: operators of neural networks in PyTorch, by the names of bench/nn/*.c.

    nn.py THREADS

Speaks as arrays.py does.
"""
import torch
import torch.nn.functional as F

import arrays


def running(x):
    """Running statistics, one a channel."""
    return torch.zeros(x.shape[1]), torch.ones(x.shape[1])


def parts(w, inputs, hidden, gates):
    """W, R and the biases of one layer, as views."""
    rows, at, out = gates * hidden, 0, []
    for shape in ((rows, inputs), (rows, hidden), (rows,), (rows,)):
        n = rows * (shape[1] if len(shape) == 2 else 1)
        out.append(w[at:at + n].view(shape))
        at += n
    return out


def recurrent(kind, hidden, gates, x, w):
    h = torch.zeros(1, x.shape[1], hidden)
    state = (h, h) if kind is torch.lstm else h
    return kind(x, state, parts(w, x.shape[2], hidden, gates), True, 1, 0.0, False, False, False)[0]


def both_ways(x, w):
    h, half = torch.zeros(2, x.shape[1], 128), w.shape[0] // 2
    weights = parts(w[:half], x.shape[2], 128, 4) + parts(w[half:], x.shape[2], 128, 4)
    return torch.lstm(x, (h, h), weights, True, 1, 0.0, False, True, False)[0]


def two_layers(x, w):
    """The weights of each layer and direction, one after the other; a fifth of the layers' inputs dropped."""
    h, at, weights = torch.zeros(4, x.shape[1], 128), 0, []
    for inputs in (x.shape[2], x.shape[2], 256, 256):
        n = 4 * 128 * (inputs + 128 + 2)
        weights += parts(w[at:at + n], inputs, 128, 4)
        at += n
    return torch.lstm(x, (h, h), weights, True, 2, 0.2, True, True, False)[0]


def attention(q, k, v, causal=False, mask=None, dropout=0.0):
    scores = q @ k.transpose(2, 3) * q.shape[3] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -float("inf"))
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[2:], dtype=torch.bool).triu(1), -float("inf"))
    weights = F.softmax(scores, 3)
    return (F.dropout(weights, dropout) if dropout else weights) @ v


def block(x, weights, wide, narrow):
    """A block of a transformer encoder of 8 heads."""
    def normed(x):
        return F.layer_norm(x, x.shape[2:])
    qkv = F.linear(normed(x), weights[:768]).view(8, 128, 3, 8, 32).permute(2, 0, 3, 1, 4)
    y = attention(qkv[0], qkv[1], qkv[2]).transpose(1, 2).reshape(8, 128, 256)
    x = x + F.linear(y, weights[768:])
    return x + F.linear(F.gelu(F.linear(normed(x), wide)), narrow)


def angles(steps, width):
    rates = 10000.0 ** (-torch.arange(0, width, 2) / width)
    both = torch.outer(torch.arange(steps), rates).repeat(1, 2)
    return both.cos(), both.sin()


TURNS = angles(1024, 64)  # made once


def rotary(x):
    half = x.shape[3] // 2
    return x * TURNS[0] + torch.cat((-x[..., half:], x[..., :half]), 3) * TURNS[1]


PLACES = {}  # of maxima in windows of 2 x 2, made once


def maxunpool(x):
    if x.shape not in PLACES:
        wide = torch.randn(*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3])
        PLACES[x.shape] = F.max_pool2d(wide, 2, return_indices=True)[1]
    return F.max_unpool2d(x, PLACES[x.shape], 2)


arrays.CASES = {
    # activation
    "leaky_relu_1m": F.leaky_relu,
    "hardsigmoid_1m": F.hardsigmoid,
    "softsign_1m": F.softsign,
    "hardtanh_1m": F.hardtanh,
    "relu6_1m": F.relu6,
    "hardshrink_1m": F.hardshrink,
    "softshrink_1m": F.softshrink,
    "tanhshrink_1m": F.tanhshrink,
    "gate_1m": lambda a, b: a * torch.sigmoid(b),
    # sequence
    "lstm": lambda x, w: recurrent(torch.lstm, 128, 4, x, w),
    "gru_t150_b64_h100": lambda x, w: recurrent(torch.gru, 100, 3, x, w),
    "lstm_256": lambda x, w: recurrent(torch.lstm, 256, 4, x, w),
    "tanh_128": lambda x, w: recurrent(torch.rnn_tanh, 128, 1, x, w),
    "relu_128": lambda x, w: recurrent(torch.rnn_relu, 128, 1, x, w),
    "lstm_both_ways": both_ways,
    "lstm_two_layers": two_layers,
    "attention_masked": lambda q, k, v, mask: attention(q, k, v, mask=mask),
    "attention_dropout": lambda q, k, v: attention(q, k, v, dropout=0.1),
    "attention_grouped": lambda q, k, v: attention(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1)),
    "transformer_block": block,
    "attention_t1024": attention,
    "attention_t1": attention,
    "attention_causal_t1024": lambda q, k, v: attention(q, k, v, True),
    # conv
    "conv_1d": lambda x, w: F.conv1d(x, w, padding=2),
    "conv_3d": lambda x, w: F.conv3d(x, w, padding=1),
    "conv_dilated": lambda x, w: F.conv2d(x, w, padding=2, dilation=2),
    "conv_add": lambda x, w, r: F.relu(F.conv2d(x, w, padding=1) + r),
    "conv_patches": lambda x, w: F.conv2d(x, w, stride=16),
    "conv64": lambda x, w: F.conv2d(x, w, padding=1),
    "conv_group8": lambda x, w: F.conv2d(x, w, padding=1, groups=8),
    "conv_512_7": lambda x, w: F.conv2d(x, w, padding=1),
    "conv_first": lambda x, w: F.conv2d(x, w, padding=1),
    "conv_first_s2": lambda x, w: F.conv2d(x, w, stride=2, padding=3),
    "conv_3x3_s2": lambda x, w: F.conv2d(x, w, stride=2, padding=1),
    "conv_4x4_s2": lambda x, w: F.conv2d(x, w, stride=2, padding=1),
    "deconv_4x4_s2": lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
    "conv_1x1": lambda x, w: F.conv2d(x, w),
    "conv_each": lambda x, w: F.conv2d(x, w, padding=1, groups=64),
    # image
    "conv4": lambda x, w: F.conv2d(x, w),
    "deconv4": lambda x, w: F.conv_transpose2d(x, w),
    "pool": lambda x: F.max_pool2d(x, 2),
    "unpool": lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
    "dropout": lambda x: F.dropout(x, 0.5, True),
    "maxpool_3x3_s2": lambda x: F.max_pool2d(x, 3, 2, 1),
    "maxpool_3x3_s1": lambda x: F.max_pool2d(x, 3, 1, 1),
    "maxpool_line": lambda x: F.max_pool1d(x, 2),
    "maxunpool": maxunpool,
    "dropout_1m": lambda x: F.dropout(x, 0.5, True),
    "ctc_t150_b32": lambda x, labels: F.ctc_loss(
        F.log_softmax(x, 2), labels, torch.full((32,), 150), torch.full((32,), 30)),
    "rotary_t1024": rotary,
    "resize_nearest": lambda x: F.interpolate(x, (112, 112)),
    "resize_linear": lambda x: F.interpolate(x, (112, 112), mode="bilinear", align_corners=False),
    "resize_down": lambda x: F.interpolate(x, (40, 40), mode="bilinear", align_corners=False),
    "resize_exact": lambda x: F.interpolate(x, (112, 112), mode="nearest-exact"),
    "resize_corners": lambda x: F.interpolate(x, (112, 112), mode="bilinear", align_corners=True),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "unfold": lambda x: F.unfold(x, 3, padding=1),
    "fold": lambda x: F.fold(x, (56, 56), 3, padding=1),
    "grid_sample": lambda x, grid: F.grid_sample(x, grid, align_corners=False),
    "grid_sample_nearest": lambda x, grid: F.grid_sample(x, grid, mode="nearest", align_corners=False),
    # norm
    "batchnorm": lambda x, w, b: F.batch_norm(x, *running(x), w, b, training=True),
    "batchnorm_train": lambda x, w, b: F.batch_norm(x, *running(x), w, b, training=True),
    "batchnorm_eval": lambda x, w, b: F.batch_norm(x, *running(x), w, b),
    "batchnorm_2d": lambda x, w, b: F.batch_norm(x, *running(x), w, b, training=True),
    "batchnorm_activation": lambda x, w, b: F.batch_norm(
        x.flatten(1), *running(x.flatten(1)), w.flatten(), b.flatten(), training=True),
    "layernorm_8192x512": lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
    "lrn": lambda x: F.local_response_norm(x, 5),
    "groupnorm": lambda x, w, b: F.group_norm(x, 8, w, b),
    "instancenorm": lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
    "layernorm_1024x768": lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
    "rmsnorm_8192x512": lambda x, w: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w,
    # loss
    "nll": lambda x, labels: F.cross_entropy(x, labels),
    "bce": F.binary_cross_entropy_with_logits,
    "logistic": F.soft_margin_loss,
    "softmax": lambda x: F.softmax(x, 1),
    "logsoftmax": lambda x: F.log_softmax(x, 1),
    "accuracy": lambda x, labels: (x.argmax(1) == labels).float().mean(),
    "mse_1m": F.mse_loss,
    "mae_1m": F.l1_loss,
    "huber_1m": F.huber_loss,
    "smooth_l1_1m": F.smooth_l1_loss,
    "bce_1m": F.binary_cross_entropy,
    "bce_logits_1m": F.binary_cross_entropy_with_logits,
    "hinge_1m": lambda x, y: torch.clamp(1 - x * y, min=0).mean(),
    "kl_div_1m": lambda x, y: F.kl_div(x, y, reduction="mean"),
    "cross_entropy_smoothed": lambda x, labels: F.cross_entropy(x, labels, label_smoothing=0.1, ignore_index=0),
    "topk_accuracy": lambda x, labels: (x.topk(5, 1)[1] == labels[:, None]).any(1).float().mean(),
    "adaptive_avgpool": lambda x: F.adaptive_avg_pool2d(x, 7),
    "adaptive_uneven": lambda x: F.adaptive_avg_pool2d(x, 6),
    "adaptive_maxpool": lambda x: F.adaptive_max_pool2d(x, 7),
    "adaptive_maxpool_one": lambda x: F.adaptive_max_pool2d(x, 1),
    "global_maxpool": lambda x: F.adaptive_max_pool2d(x, 1),
    "avgpool_2x2": lambda x: F.avg_pool2d(x, 2),
    "avgpool_3x3_s2": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "global_avgpool": lambda x: F.adaptive_avg_pool2d(x, 1),
    "softmax_axis1": lambda x: F.softmax(x, 1),
    "logsoftmax_axis1": lambda x: F.log_softmax(x, 1),
    "cross_entropy_8192x512": lambda x, labels: F.cross_entropy(x, labels),
    "nll_narrow": lambda x, labels: F.nll_loss(x, labels),
}
arrays.MAKERS = {}

if __name__ == "__main__":
    arrays.main()
