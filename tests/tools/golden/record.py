#!/usr/bin/python3
"""Writes record_MODEL.npz for small configurations of the models of the record: what test_record_golden.c compares with.

The files in the repository are from Debian 12's python3-torch 1.13.1 (CPU):
    /usr/bin/python3 tests/tools/golden/record.py tests/tools/golden
Each file has x and y; the weights "w/NAME"; the scores and the loss of a step of training without dropout and noise;
its gradients "g/NAME". All in float64. Sizes are those of small_models.c.
"""
import math
import os
import sys
import zlib

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../bench/peer"))
import nets  # noqa: E402

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


def made(seed, *shape):
    """Numbers of a fixed pattern, without a generator, in -1 … 1."""
    n = int(numpy.prod(shape))
    return torch.tensor([((i * 37 + i * i * 11 + seed * 101) % 211) / 105 - 1 for i in range(n)]).reshape(shape)


def value(name, shape):
    seed = zlib.crc32(name.encode()) % 1000
    if len(shape) > 1:
        return made(seed, *shape) / math.prod(shape[1:]) ** 0.5
    is_norm = name.endswith(".weight")
    return made(seed, *shape) * 0.3 + 1 if is_norm else made(seed, *shape) * 0.1


def words(n, *shape):
    return torch.tensor([(i * 7 + i * i * 3 + 1) % n for i in range(int(numpy.prod(shape)))]).reshape(shape)


def spelled():
    """[2,5,1+4]: words, some with characters."""
    x = torch.zeros(2, 5, 5, dtype=torch.int64)
    x[:, :, 0] = words(13, 2, 5)
    for b, t, n in ((0, 1, 4), (0, 4, 2), (1, 0, 1), (1, 3, 3)):
        x[b, t, 1:1 + n] = 1 + words(6, n)
    return x


def boards():
    y = torch.zeros(4, 16)
    y[:, :7] = made(3, 4, 7).abs() + 0.1
    y[:, :7] /= y[:, :7].sum(1, keepdim=True)
    y[:, 7] = torch.tensor([1.0, -1.0, 0.0, 1.0])
    y[:, 8:15] = torch.tensor([[float((i + j) % 4 != 0) for j in range(7)] for i in range(4)])
    y[:, 15] = torch.tensor([1.0, 2.0, 0.5, 1.5])
    return y


def trees():
    """[2,9,3] and labels: a tree of five leaves, and one of three with padding."""
    nodes = [[3, -1, -1], [7, -1, -1], [-1, 0, 1], [1, -1, -1], [12, -1, -1], [5, -1, -1], [-1, 4, 5], [-1, 3, 6],
             [-1, 2, 7]]
    small = [[2, -1, -1], [9, -1, -1], [4, -1, -1], [-1, 1, 2], [-1, 0, 3]] + [[-1, -1, -1]] * 4
    return torch.tensor([nodes, small]), torch.tensor([[0, 1, 1, 1, 0, 2, 2, 2, 2], [2, 0, 1, 1, 2, -1, -1, -1, -1]])


def games():
    """[4,5,3] and dice."""
    x = torch.zeros(4, 5, 3)
    x[torch.arange(4), 0, torch.tensor([0, 2, 1, 2])] = 1
    x[:, 4, 1] = 1
    return x, made(7, 4, 4).abs()


IMAGES, FOUR = made(9, 4, 3, 32, 32), torch.tensor([2, 0, 3, 1])
SMALL = made(8, 4, 3, 8, 8)
FIVE_TAGS = dict(words=13, embed=6, hidden=3, mlp=4, tags_=3)
PAIRS = torch.stack([words(11, 3, 5), words(11, 3, 5).flip(1)], 1)
RESNET = dict(classes=4, channels=2, blocks=(1, 2, 1, 1))
MODELS = {
    "linear": (nets.table, nets.line_loss, made(1, 6, 5), made(2, 6, 1), dict(n_out=1)),
    "softmax": (nets.table, nets.classes_loss, made(1, 4, 1, 3, 4), FOUR, dict(n_out=5)),
    "mlp": (nets.mlp, nets.classes_loss, made(1, 4, 1, 3, 4), FOUR, dict(hidden=6, classes=5)),
    "lenet": (nets.lenet, nets.classes_loss, made(7, 4, 1, 16, 16), FOUR, dict(channels=(3, 5), hidden=8, classes=4)),
    "vgg_cifar": (nets.vgg_cifar, nets.classes_loss, SMALL, FOUR, dict(channels=2, hidden=6, classes=4)),
    "vgg16": (nets.vgg16, nets.classes_loss, IMAGES, FOUR, dict(channels=2, hidden=24, classes=4)),
    "cifar_bn": (nets.cifar_bn, nets.classes_loss, SMALL, FOUR, dict(channels=(2, 3, 4), hidden=5, classes=4)),
    "resnet18": (nets.resnet, nets.classes_loss, IMAGES, FOUR, dict(bottleneck=False, is_knet=False, **RESNET)),
    "resnet50": (nets.resnet, nets.classes_loss, IMAGES, FOUR, dict(bottleneck=True, is_knet=False, **RESNET)),
    "resnet50_knet": (nets.resnet, nets.classes_loss, IMAGES, FOUR, dict(bottleneck=True, is_knet=True, **RESNET)),
    "densenet121": (nets.densenet, nets.marks_loss, IMAGES, (made(4, 4, 3) > 0).double(),
                    dict(classes=3, growth=2, channels=4, blocks=(2, 1, 2, 1))),
    "mobilenet_v2": (nets.mobilenet, nets.classes_loss, made(9, 16, 3, 32, 32), words(4, 16),
                     dict(classes=4, last=16, divisor=16)),
    "gru_imdb": (nets.gru_imdb, nets.classes_loss, words(11, 3, 7), torch.tensor([1, 0, 1]),
                 dict(words=11, embed=5, hidden=6, classes=2)),
    "char_lstm": (nets.char_lstm, nets.words_loss, words(9, 3, 6), words(9, 3, 6).flip(1),
                  dict(words=9, hidden=5, layers=2)),
    "char_lstm_steps": (nets.char_lstm_steps, nets.words_loss, words(9, 3, 6), words(9, 3, 6).flip(1),
                        dict(words=9, hidden=5, layers=2)),
    "lstm_lm": (nets.lstm_lm, nets.words_loss, words(13, 3, 6), words(13, 3, 6).flip(1),
                dict(words=13, embed=4, hidden=5)),
    "tagger": (nets.tagger, nets.words_loss, words(13, 2, 5), words(3, 2, 5), FIVE_TAGS),
    "tagger_chars": (nets.tagger_chars, nets.words_loss, spelled(), words(3, 2, 5),
                     dict(chars=7, char_embed=3, **FIVE_TAGS)),
    "connect4": (nets.connect4, nets.connect4_loss, made(5, 4, 3, 6, 7), boards(), dict(channels=3, blocks=1, head=2)),
    "gpt": (nets.gpt, nets.batch_words_loss, words(9, 3, 6), words(9, 3, 6).flip(1),
            dict(words=9, length=6, width=8, heads=2, blocks=2)),
    "vae": (nets.vae, nets.vae_loss, made(6, 4, 1, 3, 4).abs(), FOUR, dict(pixels=12, hidden=6, latent=2)),
    "seq2seq": (nets.seq2seq, nets.words_loss, PAIRS, words(11, 3, 5), dict(words=11, width=4)),
    "transformer": (nets.transformer, nets.batch_words_loss, PAIRS, words(11, 3, 5),
                    dict(words=11, width=8, heads=2, blocks=2, ff=12)),
    "dcgan": (nets.dcgan, None, made(9, 4, 3, 16, 16), FOUR, dict(side=16, colors=3, latent=2, channels=4)),
    "tree_lstm": (nets.tree_lstm, nets.tree_loss, *trees(), dict(words=13, width=6, labels=3)),
    "reinforce": (nets.reinforce, nets.reinforce_loss, *games(), dict(hidden=8)),
}


def run(forward, loss_fn, x, y, sizes):
    net = nets.Net(forward, value, torch.float64, **sizes)
    net.noisy = False
    scores = net(x)
    loss = loss_fn(net, scores, x, y)
    loss.backward()
    out = {"x": x, "y": y, "scores": scores.detach(), "loss": loss.detach()}
    for name, w in net.w.items():
        parts = w if isinstance(w, list) else [w]
        out["w/" + name] = nets.flat([p.detach() for p in parts] if isinstance(w, list) else w.detach())
        out["g/" + name] = nets.flat([p.grad for p in parts] if isinstance(w, list) else w.grad)
    return {k: v.numpy() for k, v in out.items()}


def run_turns(x, y, sizes):
    """Of dcgan: the loss and the gradients of each turn."""
    net = nets.Net(nets.dcgan, value, torch.float64, **sizes)
    net.noisy = False
    out = {"x": x, "y": y, "scores": net(x).detach()}
    nets.dcgan_generate(net, 1)  # makes its parameters
    turns = (("critic.", lambda: nets.dcgan_critic_loss(net, nets.dcgan_generate(net, len(x)), x)),
             ("generator.", lambda: nets.dcgan_generator_loss(net, nets.dcgan_generate(net, len(x)))))
    for i, (prefix, loss_fn) in enumerate(turns):
        loss = loss_fn()
        for w in net.w.values():
            w.grad = None
        loss.backward()
        out[f"loss{i}"] = loss.detach()
        out.update({"g/" + k: w.grad.clone() for k, w in net.w.items() if k.startswith(prefix)})
    out.update({"w/" + k: w.detach() for k, w in net.w.items()})
    return {k: v.numpy() for k, v in out.items()}


def main(folder):
    for name, (forward, loss_fn, *data) in MODELS.items():
        values = run(forward, loss_fn, *data) if loss_fn else run_turns(*data)
        numpy.savez_compressed(f"{folder}/record_{name}.npz", **values)


main(sys.argv[1] if len(sys.argv) > 1 else ".")
