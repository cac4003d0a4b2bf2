"""The other side of bench/models: steps of the models of the record in PyTorch, as people write them.

    models.py THREADS [DEVICE strict|tf32|bf16]

Reads lines "MODEL train|tuned|infer|frozen|captured COUNT BATCH" from standard input and answers with the median of COUNT
steps in nanoseconds, after two to warm up (none where one step is asked for again); "nan" if a step fails on a GPU.
tuned: training of images in layout channels_last; captured: training in a CUDA graph.
"MODEL peak 1 BATCH" asks for the most bytes that live in a training step. Sizes,
batches and optimisers are those of tools/train/models. Batches are made beforehand. One model lives at a time.
"""
import contextlib
import gc
import math
import random
import statistics
import sys
import time

import torch

import arrays
import nets

RESNET = dict(classes=1000, channels=64)
TAGS = dict(words=10000, embed=128, hidden=50, mlp=32, tags_=9)
CHARS = dict(words=65, hidden=128, layers=2)
IMAGE, CIFAR, DIGIT = (3, 224, 224), (3, 32, 32), (1, 28, 28)


def sgd(lr):
    return lambda p: torch.optim.SGD(p, lr)


def momentum(lr, gamma=0.9):
    return lambda p: torch.optim.SGD(p, lr, momentum=gamma)


def adam(lr):
    return lambda p: torch.optim.Adam(p, lr)


def images(*shape, classes=10):
    return lambda n: (torch.rand(n, *shape), torch.randint(classes, (n,)))


def words(number, length, wanted=None):
    """Words and their successors; or `wanted` classes of each."""
    return lambda n: (torch.randint(2, number, (n, length)), torch.randint(wanted or number, (n, length)))


def pairs(number, length):
    return lambda n: (torch.randint(number, (n, 2, length)), torch.randint(number, (n, length)))


def spelled(n):
    x = torch.zeros(n, 23, 10, dtype=torch.int64)
    x[:, :, 0] = torch.randint(10000, (n, 23))
    x[:, ::12, 1:] = torch.randint(1, 10, (n, 2, 9))
    return x, torch.randint(9, (n, 23))


def boards(n):
    y = torch.ones(n, 16)
    y[:, :7] = torch.softmax(torch.rand(n, 7), 1)
    return torch.rand(n, 3, 6, 7), y


def marks(n):
    return torch.rand(n, *IMAGE), (torch.rand(n, 14) < 0.3).float()


def rmsprop(p):
    return torch.optim.RMSprop(p, 0.002, 0.95)


def forest(n):
    """[n,37,3]: random trees of 19 leaves, as dynet-benchmark's."""
    def grow(nodes, leaves):
        if leaves == 1:
            nodes.append([random.randrange(18280), -1, -1])
        else:
            k = random.randrange(1, leaves)
            left, right = grow(nodes, k), grow(nodes, leaves - k)
            nodes.append([-1, left, right])
        return len(nodes) - 1

    trees = [[] for _ in range(n)]
    for nodes in trees:
        grow(nodes, 19)
    return torch.tensor(trees), torch.randint(5, (n, 37))


def catch(n):
    x = torch.zeros(n, 10, 5)
    x[torch.arange(n), 0, torch.randint(5, (n,))] = 1
    x[:, 9, 2] = 1
    return x, torch.rand(n, 9)


def dcgan_adam(p):
    return torch.optim.Adam(p, 2e-4, (0.5, 0.999))


C, W, B = nets.classes_loss, nets.words_loss, nets.batch_words_loss
MODELS = {
    "linear": (nets.table, nets.line_loss, lambda n: (torch.rand(n, 13), torch.rand(n, 1)), sgd(0.1), dict(n_out=1)),
    "softmax": (nets.table, C, images(*DIGIT), sgd(0.15), dict(n_out=10)),
    "mlp": (nets.mlp, C, images(*DIGIT), sgd(0.15), {}),
    "lenet": (nets.lenet, C, images(*DIGIT), sgd(0.1), {}),
    "vgg_cifar": (nets.vgg_cifar, C, images(*CIFAR), momentum(0.01), dict(channels=50, hidden=512, classes=10)),
    "cifar_bn": (nets.cifar_bn, C, images(*CIFAR), momentum(0.1, 0.95),
                 dict(channels=(16, 32, 64), hidden=100, classes=10)),
    "vgg16": (nets.vgg16, C, images(*IMAGE), momentum(0.01), dict(channels=64, hidden=4096, classes=1000)),
    "densenet121": (nets.densenet, nets.marks_loss, marks, adam(1e-4),
                    dict(classes=14, growth=32, channels=64, blocks=(6, 12, 24, 16))),
    "densenet121_imagenet": (nets.densenet, C, images(*IMAGE, classes=1000), momentum(0.1),
                             dict(classes=1000, growth=32, channels=64, blocks=(6, 12, 24, 16))),
    "mobilenet_v2": (nets.mobilenet, C, images(*IMAGE), momentum(0.05), dict(classes=1000, last=1280, divisor=1)),
    "gru_imdb": (nets.gru_imdb, C, lambda n: (torch.randint(30000, (n, 150)), torch.randint(2, (n,))), adam(1e-3),
                 dict(words=30000, embed=125, hidden=100, classes=2)),
    "char_lstm": (nets.char_lstm, W, words(65, 50), rmsprop, CHARS),
    "char_lstm_steps": (nets.char_lstm_steps, W, words(65, 50), rmsprop, CHARS),
    "lstm_lm": (nets.lstm_lm, W, words(10000, 22), adam(1e-3), dict(words=10000, embed=128, hidden=256)),
    "tagger": (nets.tagger, W, words(10000, 23, 9), adam(1e-3), TAGS),
    "tagger_chars": (nets.tagger_chars, W, spelled, adam(1e-3), dict(chars=200, char_embed=20, **TAGS)),
    "connect4": (nets.connect4, nets.connect4_loss, boards, adam(2e-3), dict(channels=128, blocks=5, head=32)),
    "gpt": (nets.gpt, B, words(65, 64), adam(1e-3), dict(words=65, length=64, width=128, heads=4, blocks=4)),
    "vae": (nets.vae, nets.vae_loss, images(*DIGIT), adam(1e-3), dict(pixels=784, hidden=400, latent=20)),
    "seq2seq": (nets.seq2seq, W, pairs(10000, 20), adam(1e-3), dict(words=10000, width=128)),
    "transformer": (nets.transformer, B, pairs(1000, 20), adam(5e-4),
                    dict(words=1000, width=128, heads=4, blocks=2, ff=512)),
    "tree_lstm": (nets.tree_lstm, nets.tree_loss, forest, adam(1e-3), dict(words=18280, width=128, labels=5)),
    "reinforce": (nets.reinforce, nets.reinforce_loss, catch, adam(5e-3), dict(hidden=64)),
    "dcgan": (nets.dcgan, None, images(3, 64, 64), dcgan_adam, dict(side=64, colors=3, latent=100, channels=512)),
}
for name, blocks, bottleneck, is_knet in (("18", (2, 2, 2, 2), False, False), ("34", (3, 4, 6, 3), False, False),
                                          ("50", (3, 4, 6, 3), True, False), ("50_knet", (3, 4, 6, 3), True, True),
                                          ("101", (3, 4, 23, 3), True, False), ("152", (3, 8, 36, 3), True, False)):
    MODELS["resnet" + name] = (nets.resnet, C, images(*IMAGE, classes=1000), momentum(0.1),
                               dict(blocks=blocks, bottleneck=bottleneck, is_knet=is_knet, **RESNET))


ON_GPU = False
PRECISION = "strict"


def mixed():
    return torch.autocast("cuda", torch.bfloat16) if PRECISION == "bf16" else contextlib.nullcontext()


def start_of(event):
    """PyTorch 2 counts nanoseconds."""
    return event.start_ns() if hasattr(event, "start_ns") else event.start_us()


class Traced(torch.nn.Module):
    """A Net whose parameters are a module's."""
    def __init__(self, net):
        super().__init__()
        self.net, self.names = net, list(net.w)
        for i, name in enumerate(self.names):
            self.register_buffer(f"w{i}", net.w[name].detach())

    def forward(self, x):
        kept, self.net.w = self.net.w, {name: getattr(self, f"w{i}") for i, name in enumerate(self.names)}
        try:
            return self.net(x)
        finally:
            self.net.w = kept


class Steps:
    def __init__(self, name, batch):
        self.others = torch.cuda.memory_allocated() if ON_GPU else 0  # graphs and libraries before this model
        forward, self.loss, data, optimiser, sizes = MODELS[name]
        self.key, self.net = (name, batch), nets.Net(forward, **sizes)
        self.x, self.y = data(batch)
        self.net(self.x)  # makes the parameters
        if self.loss is None:
            nets.dcgan_generate(self.net, 2)
            parts = [[w for k, w in self.net.w.items() if k.startswith(p)] for p in ("critic.", "generator.")]
            self.optimisers = [optimiser(p) for p in parts]
        else:
            self.optimisers = [optimiser(self.net.parameters())]
        self.is_warm, self.is_tuned, self.last, self.graph = False, False, None, None

    def warm_up(self, step):
        """Makes the optimisers' state."""
        for _ in range(0 if self.is_warm else 2):
            step()
        self.is_warm = True

    def train(self):
        self.net.training = True
        if self.loss is None:
            return self.train_turns()
        self.optimisers[0].zero_grad(set_to_none=True)
        with mixed():
            loss = self.loss(self.net, self.net(self.x), self.x, self.y)
        loss.backward()
        self.optimisers[0].step()

    def captured(self):
        if not self.graph:
            for optimiser in self.optimisers:
                optimiser.state.clear()
                for group in optimiser.param_groups:
                    group["capturable"] = True
            stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    self.train()
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(graph):
                self.train()
            self.graph = graph
        self.graph.replay()

    def tuned(self):
        """The best training by hand, from here on."""
        if not self.is_tuned and self.x.dim() == 4:
            for t in (self.x, *self.net.parameters()):
                if t.dim() == 4:
                    t.data = t.data.contiguous(memory_format=torch.channels_last)
        self.is_tuned = True
        self.train()

    def train_turns(self):
        """As PyTorch's example of DCGAN: one generated batch for both."""
        critic, generator = self.optimisers
        fake = nets.dcgan_generate(self.net, len(self.x))
        critic.zero_grad(set_to_none=True)
        nets.dcgan_critic_loss(self.net, fake, self.x).backward()
        critic.step()
        generator.zero_grad(set_to_none=True)
        nets.dcgan_generator_loss(self.net, fake).backward()
        generator.step()

    @torch.no_grad()
    def infer(self):
        self.net.training = False
        with mixed():
            self.net(self.x)

    def frozen(self):
        """The best inference by hand: traced, frozen, normalization folded, optimised."""
        if not hasattr(self, "jit"):
            self.net.training = False
            frozen = torch.jit.freeze(torch.jit.trace(Traced(self.net).eval(), self.x))
            self.jit = torch.jit.optimize_for_inference(frozen)
            with torch.no_grad():
                self.jit(self.x), self.jit(self.x)
        with torch.no_grad():
            self.jit(self.x)

    def median_ns(self, step, count):
        again, self.last = count == 1 and step == self.last, step
        if not again:
            if step in (self.train, self.tuned):
                self.warm_up(step)
            step()
        if ON_GPU:
            torch.cuda.synchronize()
        times = []
        for _ in range(count):
            start = time.perf_counter_ns()
            step()
            if ON_GPU:
                torch.cuda.synchronize()
            times.append(time.perf_counter_ns() - start)
        return int(statistics.median(times))

    def peak_bytes(self):
        """With parameters, the optimiser's state, and the batch."""
        self.warm_up(self.train)
        if ON_GPU:
            torch.cuda.reset_peak_memory_stats()
            self.train()
            return torch.cuda.max_memory_allocated() - self.others
        states = [s for o in self.optimisers for s in o.state.values()]
        state = [v for s in states for v in s.values() if torch.is_tensor(v)]
        tensors = [*self.net.parameters(), *state, self.x, self.y]
        live = most = sum(t.numel() * t.element_size() for t in tensors)
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
            self.train()
        changes = [(start_of(e), i, e.nbytes()) for i, e in enumerate(profile.profiler.kineto_results.events())
                   if e.name() == "[memory]"]
        for _, _, nbytes in sorted(changes):
            live += nbytes
            most = max(most, live)
        return most


def answer(steps, what, count):
    if what == "peak":
        return steps.peak_bytes()
    step = {"train": steps.train, "tuned": steps.tuned, "infer": steps.infer, "frozen": steps.frozen,
            "captured": steps.captured}[what]
    return steps.median_ns(step, count)


def main():
    global ON_GPU, PRECISION
    torch.set_num_threads(int(sys.argv[1]))
    if len(sys.argv) > 3:
        PRECISION = sys.argv[3]
        arrays.use_device(sys.argv[2], PRECISION != "strict")
        ON_GPU = torch.empty(0).is_cuda
    torch.manual_seed(1)
    gc.disable()
    steps = None
    for line in sys.stdin:
        name, what, count, batch = line.split()
        if steps is None or steps.key != (name, batch):
            steps = None  # frees the last one's tensors first
            gc.collect()
            steps = Steps(name, int(batch))
            steps.key = (name, batch)
        try:
            print(answer(steps, what, int(count)), flush=True)
        except (RuntimeError, ValueError) as error:
            if not ON_GPU:
                raise
            print(f"models.py: {name} {what}: {error}", file=sys.stderr)
            print(math.nan, flush=True)


main()
