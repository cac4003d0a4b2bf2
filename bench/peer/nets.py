"""The models of tools/train/models in PyTorch, of any size: for golden values and for benchmarks.

A net is a function of a Net, which holds its parameters by the names that the layers in C have, and makes them when
they are first used. Weights of a recurrent layer are a list; `flat` joins them as cuDNN does.
"""
import math

import torch
from torch.nn import functional as F


class Net:
    def __init__(self, forward, value=None, dtype=torch.float32, **sizes):
        self.forward, self.sizes, self.dtype = forward, sizes, dtype
        self.value = value or (lambda name, shape: torch.randn(shape, dtype=dtype) / max(1, math.prod(shape[1:])) ** 0.5)
        self.w, self.state = {}, {}
        self.training = self.noisy = True  # noisy: dropout, and the noise of codes

    def __call__(self, x):
        return self.forward(self, x, **self.sizes)

    def p(self, name, *shape):
        if name not in self.w:
            self.w[name] = self.value(name, shape).requires_grad_()
        return self.w[name]

    def parameters(self):
        return [p for w in self.w.values() for p in (w if isinstance(w, list) else [w])]

    # --- layers ---
    def linear(self, x, name, n, bias=True):
        w = self.p(name + ".weight", n, x.shape[-1])
        return F.linear(x, w, self.p(name + ".bias", n) if bias else None)

    def conv(self, x, name, n, k, stride=1, padding=0, groups=1, bias=True):
        w = self.p(name + ".weight", n, x.shape[1] // groups, k, k)
        return F.conv2d(x, w, self.p(name + ".bias", n) if bias else None, stride, padding, 1, groups)

    def deconv(self, x, name, n, k, stride=1, padding=0):
        return F.conv_transpose2d(x, self.p(name + ".weight", x.shape[1], n, k, k), None, stride, padding)

    def bn(self, x, name):
        n = x.shape[1]
        if name not in self.state:
            self.state[name] = torch.zeros(n, dtype=self.dtype), torch.ones(n, dtype=self.dtype)
        w, b = self.p(name + ".weight", n), self.p(name + ".bias", n)
        return F.batch_norm(x, *self.state[name], w, b, self.training)

    def ln(self, x, name):
        n = x.shape[-1]
        return F.layer_norm(x, (n,), self.p(name + ".weight", n), self.p(name + ".bias", n))

    def embedding(self, i, name, n, width):
        return F.embedding(i, self.p(name + ".weight", n, width))

    def rnn(self, kind, x, name, hidden, layers=1, bidirectional=False, state=None):
        """y [T,B,D·H] and the last states; the weights in PyTorch's order."""
        key, gates, ways = name + ".weight", 4 if kind is torch.lstm else 3, 2 if bidirectional else 1
        if key not in self.w:
            shapes = []
            for layer in range(layers):
                n_in = ways * hidden if layer else x.shape[-1]
                shapes += [(gates * hidden, n_in), (gates * hidden, hidden), (gates * hidden,), (gates * hidden,)] * ways
            self.w[key] = [self.value(f"{key}{i}", s).requires_grad_() for i, s in enumerate(shapes)]
            if x.is_cuda:  # one piece of memory, as a module's
                with torch.no_grad():
                    torch._cudnn_rnn_flatten_weight(self.w[key], 4, x.shape[-1], 2 if kind is torch.lstm else 3, hidden, 0,
                                                    layers, False, bidirectional)
        if state is None:
            h = x.new_zeros(layers * ways, x.shape[1], hidden)
            state = (h, h) if kind is torch.lstm else h
        return kind(x, state, self.w[key], True, layers, 0.0, self.training, bidirectional, False)

    def attention(self, x, name, heads, causal):
        B, T, W = x.shape
        q, k, v = (split(t, heads) for t in self.linear(x, name + ".qkv", 3 * W).chunk(3, 2))
        return self.linear(join(attend(q, k, v, causal)), name + ".out", W)

    def drop(self, x, p):
        return F.dropout(x, p, self.training and self.noisy)


def flat(parts):
    """[W, R, b, c, …] of each layer and direction as one vector: all weights, then all biases."""
    if not isinstance(parts, list):
        return parts
    return torch.cat([t.reshape(-1) for t in parts if t.dim() == 2] + [t.reshape(-1) for t in parts if t.dim() == 1])


def split(x, heads):
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)


def join(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def attend(q, k, v, causal=False, scale=None):
    score = q @ k.transpose(-2, -1) * (scale or q.shape[-1] ** -0.5)
    if causal:
        score = score.masked_fill(torch.ones(score.shape[-2:]).triu(1).bool(), -math.inf)
    return score.softmax(-1) @ v


# --- images ---
def table(net, x, n_out):
    return net.linear(x.flatten(1), "fc", n_out)


def mlp(net, x, hidden=64, classes=10):
    return net.linear(F.relu(net.linear(x.flatten(1), "fc1", hidden)), "fc2", classes)


def lenet(net, x, channels=(20, 50), hidden=500, classes=10):
    x = F.max_pool2d(F.relu(net.conv(x, "conv1", channels[0], 5)), 2)
    x = F.max_pool2d(F.relu(net.conv(x, "conv2", channels[1], 5)), 2)
    return net.linear(F.relu(net.linear(x.flatten(1), "fc1", hidden)), "fc2", classes)


def vgg_cifar(net, x, channels, hidden, classes):
    a = channels
    x = net.conv(F.relu(net.conv(x, "conv1", a, 3, 1, 1)), "conv2", a, 3, 1, 1)
    x = net.drop(F.relu(F.max_pool2d(x, 2)), 0.25)
    x = net.conv(F.relu(net.conv(x, "conv3", 2 * a, 3, 1, 1)), "conv4", 2 * a, 3, 1, 1)
    x = net.drop(F.relu(F.max_pool2d(x, 2)), 0.25)
    return net.linear(net.drop(F.relu(net.linear(x.flatten(1), "fc1", hidden)), 0.5), "fc2", classes)


def vgg16(net, x, channels, hidden, classes):
    for stage, (n, times) in enumerate(((2, 1), (2, 2), (3, 4), (3, 8), (3, 8))):
        for i in range(n):
            x = F.relu(net.conv(x, f"features.conv{stage + 1}_{i + 1}", channels * times, 3, 1, 1))
        x = F.max_pool2d(x, 2)
    x = net.drop(F.relu(net.linear(x.flatten(1), "fc1", hidden)), 0.5)
    return net.linear(net.drop(F.relu(net.linear(x, "fc2", hidden)), 0.5), "fc3", classes)


def cifar_bn(net, x, channels, hidden, classes):
    for i, c in enumerate(channels):
        x = F.relu(net.bn(net.conv(x, f"conv{i + 1}", c, 3, 1, 1, bias=False), f"bn{i + 1}"))
        x = F.max_pool2d(x, 2) if i < 2 else x
    x = F.relu(net.bn(net.linear(x.flatten(1), "fc1", hidden, bias=False), "bn4"))
    return net.linear(x, "fc2", classes)


def resnet(net, x, classes, channels, blocks, bottleneck, is_knet):
    def unit(x, name, i, n, k, stride=1):
        return net.bn(net.conv(x, f"{name}.conv{i}", n, k, stride, k // 2, bias=False), f"{name}.bn{i}")

    x = F.relu(net.bn(net.conv(x, "conv1", channels, 7, 2, 3, bias=False), "bn1"))
    x = F.max_pool2d(x, 3, 2, 0 if is_knet else 1)
    for i, n in enumerate(blocks):
        for j in range(n):
            name, width, stride = f"layer{i + 1}.{j}", channels << i, 2 if i and not j else 1
            to = 4 * width if bottleneck else width
            if bottleneck:
                a, b = (stride, 1) if is_knet else (1, stride)
                y = F.relu(unit(x, name, 1, width, 1, a))
                y = unit(F.relu(unit(y, name, 2, width, 3, b)), name, 3, to, 1)
            else:
                y = unit(F.relu(unit(x, name, 1, width, 3, stride)), name, 2, to, 3)
            if stride != 1 or x.shape[1] != to:
                x = net.conv(x, name + ".downsample.0", to, 1, stride, bias=False)
                x = net.bn(x, name + ".downsample.1")
            x = F.relu(y + x)
    return net.linear(x.mean((2, 3)), "fc", classes)


def densenet(net, x, classes, growth, channels, blocks):
    def unit(x, name, i, n, k):
        return net.conv(F.relu(net.bn(x, f"{name}.norm{i}")), f"{name}.conv{i}", n, k, 1, k // 2, bias=False)

    f = "features."
    x = F.relu(net.bn(net.conv(x, f + "conv0", channels, 7, 2, 3, bias=False), f + "norm0"))
    x = F.max_pool2d(x, 3, 2, 1)
    for i, n in enumerate(blocks):
        for j in range(n):
            name = f"{f}denseblock{i + 1}.denselayer{j + 1}"
            x = torch.cat([x, unit(unit(x, name, 1, 4 * growth, 1), name, 2, growth, 3)], 1)
        if i < 3:
            x = F.relu(net.bn(x, f"{f}transition{i + 1}.norm"))
            x = F.avg_pool2d(net.conv(x, f"{f}transition{i + 1}.conv", x.shape[1] // 2, 1, bias=False), 2)
    return net.linear(F.relu(net.bn(x, f + "norm5")).mean((2, 3)), "classifier", classes)


def mobilenet(net, x, classes, last, divisor):
    def unit(x, name, n, k, stride=1, groups=1):
        return F.relu6(net.bn(net.conv(x, name + ".0", n, k, stride, k // 2, groups, bias=False), name + ".1"))

    x, at = unit(x, "features.0", 32 // divisor, 3, 2), 0
    for expand, n, times, first in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                    (6, 160, 3, 2), (6, 320, 1, 1)):
        for j in range(times):
            at, n_in, stride = at + 1, x.shape[1], 1 if j else first
            name, y, i, wide = f"features.{at}.conv", x, 0, n_in * expand
            if expand != 1:
                y, i = unit(y, f"{name}.0", wide, 1), 1
            y = unit(y, f"{name}.{i}", wide, 3, stride, wide)
            y = net.bn(net.conv(y, f"{name}.{i + 1}", n // divisor, 1, bias=False), f"{name}.{i + 2}")
            x = x + y if stride == 1 and n_in == n // divisor else y
    x = unit(x, "features.18", last, 1).mean((2, 3))
    return net.linear(net.drop(x, 0.2), "classifier.1", classes)


# --- words ---
def gru_imdb(net, x, words, embed, hidden, classes):
    y, _ = net.rnn(torch.gru, net.embedding(x.t(), "words", words, embed), "gru", hidden)
    return net.linear(y[-1], "fc", classes)


def char_lstm(net, x, words, hidden, layers):
    y, _, _ = net.rnn(torch.lstm, F.one_hot(x.t(), words).to(net.dtype), "lstm", hidden, layers)
    return net.linear(y, "fc", words)


def char_lstm_steps(net, x, words, hidden, layers):
    x = F.one_hot(x.t(), words).to(net.dtype)
    h = [x.new_zeros(x.shape[1], hidden)] * layers
    c, out = list(h), []
    for y in x:
        for k in range(layers):
            i, f, o, g = (net.linear(y, f"i2h{k}", 4 * hidden) + net.linear(h[k], f"h2h{k}", 4 * hidden)).chunk(4, 1)
            c[k] = torch.sigmoid(f) * c[k] + torch.sigmoid(i) * torch.tanh(g)
            y = h[k] = torch.sigmoid(o) * torch.tanh(c[k])
        out.append(y)
    return net.linear(torch.stack(out), "fc", words)


def lstm_lm(net, x, words, embed, hidden):
    y, _, _ = net.rnn(torch.lstm, net.embedding(x.t(), "words", words, embed), "lstm", hidden)
    return net.linear(y, "fc", words)


def tags(net, x, hidden, mlp, tags):
    y, _, _ = net.rnn(torch.lstm, x, "lstm", hidden, bidirectional=True)
    return net.linear(torch.tanh(net.linear(y, "mlp", mlp, bias=False)), "tags", tags, bias=False)


def tagger(net, x, words, embed, hidden, mlp, tags_):
    return tags(net, net.embedding(x.t(), "words", words, embed), hidden, mlp, tags_)


def tagger_chars(net, x, words, embed, hidden, mlp, tags_, chars, char_embed):
    rows = net.embedding(x[:, :, 0].t(), "words", words, embed)
    T, B = rows.shape[:2]
    rows = list(rows.reshape(T * B, embed))
    for t in range(T):
        for b in range(B):
            spelled = x[b, t, 1:]
            if not spelled[0]:
                continue
            spelled = spelled[:(spelled != 0).sum()]
            y = net.embedding(spelled, "chars", chars, char_embed).unsqueeze(1)
            rows[t * B + b] = net.rnn(torch.lstm, y, "char_lstm", embed // 2, bidirectional=True)[1].reshape(-1)
    return tags(net, torch.stack(rows).reshape(T, B, embed), hidden, mlp, tags_)


def gpt(net, x, words, length, width, heads, blocks):
    x = net.embedding(x, "words", words, width) + net.embedding(torch.arange(x.shape[1]), "places", length, width)
    for i in range(blocks):
        a, m = f"blocks.attend{i}", f"blocks.mlp{i}"
        x = x + net.attention(net.ln(x, a + ".norm"), a + ".attention", heads, True)
        x = x + net.linear(F.gelu(net.linear(net.ln(x, m + ".norm"), m + ".fc1", 4 * width)), m + ".fc2", width)
    return net.linear(net.ln(x, "blocks.norm"), "scores", words, bias=False)


def seq2seq(net, x, words, width):
    source = net.embedding(x[:, 0].t(), "source", words, width)
    target = net.embedding(x[:, 1].t(), "target", words, width)
    e, h, c = net.rnn(torch.lstm, source, "encoder", width)
    d, _, _ = net.rnn(torch.lstm, target, "decoder", width, state=(h, c))
    q, e = net.linear(d, "attention", width, bias=False).transpose(0, 1), e.transpose(0, 1)
    y = torch.cat([attend(q, e, e, scale=1).transpose(0, 1), d], 2)
    return net.linear(torch.tanh(net.linear(y, "combine", width, bias=False)), "scores", words)


def places(T, width, dtype):
    rate = torch.exp(torch.arange(width // 2, dtype=dtype) * (-2 * math.log(10000) / width))
    angle = torch.outer(torch.arange(T, dtype=dtype), rate)
    return torch.cat([angle.sin(), angle.cos()], 1)


def transformer(net, x, words, width, heads, blocks, ff):
    def mlp(x, name):
        return x + net.linear(F.relu(net.linear(x, name + ".fc1", ff)), name + ".fc2", width)

    place = places(x.shape[2], width, net.dtype)
    m, y = (net.embedding(x[:, i], n, words, width) * width ** 0.5 + place for i, n in enumerate(("source", "target")))
    for i in range(blocks):
        b = f"encoder.{i}"
        m = net.ln(m + net.attention(m, b + ".self.attention", heads, False), b + ".norm1")
        m = net.ln(mlp(m, b + ".mlp"), b + ".norm2")
    for i in range(blocks):
        b = f"decoder.{i}"
        y = net.ln(y + net.attention(y, b + ".self.attention", heads, True), b + ".norm1")
        q = split(net.linear(y, b + ".cross.q", width), heads)
        k, v = (split(t, heads) for t in net.linear(m, b + ".cross.kv", 2 * width).chunk(2, 2))
        y = net.ln(y + net.linear(join(attend(q, k, v)), b + ".cross.out", width), b + ".norm2")
        y = net.ln(mlp(y, b + ".mlp"), b + ".norm3")
    return net.linear(y, "scores", words)


# --- games, codes ---
def connect4(net, x, channels, blocks, head):
    def unit(x, name, i, n, k):
        return net.bn(net.conv(x, f"{name}.conv{i}", n, k, 1, k // 2), f"{name}.bn{i}")

    x = F.relu(unit(x, "trunk", "", channels, 3))
    for i in range(blocks):
        b = f"trunk.block{i + 1}"
        x = F.relu(unit(F.relu(unit(x, b, 1, channels, 3)), b, 2, channels, 3) + x)
    p, v = (F.relu(unit(x, name, "", head, 1)).flatten(1) for name in ("policy", "value"))
    p = net.linear(p, "policy.fc", 7).softmax(1)
    v = torch.tanh(net.linear(F.relu(net.linear(v, "value.fc1", channels)), "value.fc2", 1))
    return torch.cat([p, v], 1)


def vae(net, x, pixels, hidden, latent):
    h = F.relu(net.linear(x.flatten(1), "fc1", hidden))
    mean, log_var = net.linear(h, "mean", latent), net.linear(h, "log_var", latent)
    net.code = mean, log_var
    code = mean + torch.randn_like(mean) * torch.exp(0.5 * log_var) if net.training and net.noisy else mean
    return net.linear(F.relu(net.linear(code, "fc2", hidden)), "fc3", pixels)


def codes(net, n, latent):
    """Drawn, or evenly spaced numbers."""
    if net.noisy:
        return torch.randn(n, latent, 1, 1, dtype=net.dtype)
    return torch.linspace(-1, 1, n * latent, dtype=net.dtype).reshape(n, latent, 1, 1)


def doublings(side):
    return (side // 4).bit_length() - 1


def dcgan_generate(net, n):
    side, colors, latent, channels = (net.sizes[k] for k in ("side", "colors", "latent", "channels"))
    x = codes(net, n, latent)
    for i in range(doublings(side)):
        a, b = (2, 1) if i else (1, 0)
        x = F.relu(net.bn(net.deconv(x, f"generator.deconv{i + 1}", channels >> i, 4, a, b), f"generator.bn{i + 1}"))
    return torch.tanh(net.deconv(x, "generator.image", colors, 4, 2, 1))


def dcgan_judge(net, x):
    n = doublings(net.sizes["side"])
    for i in range(n):
        x = net.conv(x, f"critic.conv{i + 1}", net.sizes["channels"] >> (n - 1 - i), 4, 2, 1, bias=False)
        x = F.leaky_relu(net.bn(x, f"critic.bn{i + 1}") if i else x, 0.2)
    return net.conv(x, "critic.score", 1, 4, bias=False).flatten(1)


def dcgan(net, x, side, colors, latent, channels):
    return dcgan_judge(net, x * 2 - 1)


def tree_lstm(net, x, words, width, labels):
    """x [B,N,3]: word, left and right child of each node; a node at a time, as dynet-benchmark does."""
    def cell(gates, kept):
        i, o, u = gates.chunk(3)
        c = torch.sigmoid(i) * torch.tanh(u) + kept
        return torch.sigmoid(o) * torch.tanh(c), c

    table, out = net.p("words.weight", words, width), []
    for tree in x.tolist():
        states = []
        for word, left, right in tree:
            if left < 0:
                states.append(states[0] if word < 0 else cell(net.linear(table[word], "leaf", 3 * width), 0))
                continue
            (h1, c1), (h2, c2) = states[left], states[right]
            gates = net.linear(torch.cat([h1, h2]), "node", 3 * width)
            f1 = torch.sigmoid(net.linear(h1, "forget_left", width))
            f2 = torch.sigmoid(F.linear(h2, net.p("forget_right.weight", width, width), net.w["forget_left.bias"]))
            states.append(cell(gates, f1 * c1 + f2 * c2))
        out.append(torch.stack([h for h, _ in states]))
    return net.linear(torch.stack(out), "labels", labels, bias=False)


def reinforce(net, x, hidden):
    return net.linear(F.relu(net.linear(x.flatten(1), "fc1", hidden)), "fc2", 3)


# --- losses: (net, scores, x, y) ---
def classes_loss(net, scores, x, y):
    return F.cross_entropy(scores, y)


def words_loss(net, scores, x, y):
    """Scores [T,B,V]."""
    return F.cross_entropy(scores.flatten(0, 1), y.t().flatten())


def batch_words_loss(net, scores, x, y):
    """Scores [B,T,V]."""
    return F.cross_entropy(scores.flatten(0, 1), y.flatten())


def line_loss(net, scores, x, y):
    return F.mse_loss(scores, y)


def marks_loss(net, scores, x, y):
    return F.binary_cross_entropy_with_logits(scores, y)


def vae_loss(net, scores, x, y):
    mean, log_var = net.code
    pixels = F.binary_cross_entropy_with_logits(scores, x.flatten(1), reduction="sum")
    return (pixels - 0.5 * (1 + log_var - mean * mean - log_var.exp()).sum()) / len(x)


def connect4_loss(net, out, x, y, eps=1.2e-7):
    policy, result, legal, weight = y[:, :7], y[:, 7:8], y[:, 8:15], y[:, 15:]
    p = out[:, :7] * legal
    mass = p.sum(1, keepdim=True)
    p = p / (mass + eps)
    terms = -(policy * (p + eps).log() * weight).sum() + ((out[:, 7:] - result) ** 2 * weight).sum()
    decay = sum((w * w).sum() for w in net.parameters() if w.dim() > 1)
    return (terms + ((1 - mass) * weight).sum()) / weight.sum() + 1e-4 * decay


def dcgan_critic_loss(net, fake, x):
    """Turn 0: of images and generated ones, which are a constant."""
    real, fake = dcgan_judge(net, x * 2 - 1), dcgan_judge(net, fake.detach())
    return (F.binary_cross_entropy_with_logits(real, torch.ones_like(real))
            + F.binary_cross_entropy_with_logits(fake, torch.zeros_like(fake)))


def dcgan_generator_loss(net, fake):
    """Turn 1."""
    scores = dcgan_judge(net, fake)
    return F.binary_cross_entropy_with_logits(scores, torch.ones_like(scores))


def tree_loss(net, scores, x, y):
    return F.cross_entropy(scores.flatten(0, 1), y.flatten(), ignore_index=-1)


def reinforce_loss(net, scores, x, y):
    """Plays catch: x [B,rows,columns] is the first board, y [B,rows-1] draws the moves."""
    n, rows, columns = x.shape
    at, ball, paddle = torch.arange(n), x[:, 0].argmax(1), x[:, -1].argmax(1)
    boards, moves = [], []
    with torch.no_grad():
        for t in range(rows - 1):
            board = torch.zeros_like(x)
            board[at, t, ball] = board[at, rows - 1, paddle] = 1
            p = net(board).softmax(1)
            move = (y[:, t] >= p[:, 0]).long() + (y[:, t] >= p[:, 0] + p[:, 1]).long()
            paddle = (paddle + move - 1).clamp(0, columns - 1)
            boards.append(board)
            moves.append(move)
    gain = torch.where(paddle == ball, 1.0, -1.0).to(x.dtype)
    terms = F.cross_entropy(net(torch.cat(boards)), torch.cat(moves), reduction="none").reshape(rows - 1, n)
    return (terms * (gain - gain.mean())).sum() / n
