#!/usr/bin/python3
"""Writes a safetensors file with the names and shapes of torchvision's weights, random ones, an input and its logits.

    torchvision.py MODEL OUT.safetensors [--old]

The modules of resnet50 and densenet121_imagenet are written by hand with torchvision's names, those of other models are
torchvision's own; --old gives DenseNet's layers the names of its first files. Exits with 77 without PyTorch, or without
torchvision where it is needed.
"""
import json
import re
import sys
from collections import OrderedDict

try:
    import numpy
    import torch
    from torch import nn
except ImportError:
    sys.exit(77)


class Bottleneck(nn.Module):
    def __init__(self, n_in, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n_in, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.relu, self.downsample = nn.ReLU(), None
        if stride != 1 or n_in != 4 * width:
            shortcut = nn.Conv2d(n_in, 4 * width, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + (self.downsample(x) if self.downsample else x))


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.maxpool, n_in = nn.MaxPool2d(3, 2, 1), 64
        for i, n in enumerate((3, 4, 6, 3)):
            blocks = []
            for j in range(n):
                blocks.append(Bottleneck(n_in, 64 << i, 2 if i and not j else 1))
                n_in = 256 << i
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(2048, 1000)

    def forward(self, x):
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        return self.fc(self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3)))


class DenseLayer(nn.Sequential):
    def __init__(self, n_in):
        super().__init__(OrderedDict(
            norm1=nn.BatchNorm2d(n_in), relu1=nn.ReLU(), conv1=nn.Conv2d(n_in, 128, 1, bias=False),
            norm2=nn.BatchNorm2d(128), relu2=nn.ReLU(), conv2=nn.Conv2d(128, 32, 3, 1, 1, bias=False)))

    def forward(self, x):
        return torch.cat([x, super().forward(x)], 1)


class DenseNet121(nn.Module):
    def __init__(self):
        super().__init__()
        f = OrderedDict(conv0=nn.Conv2d(3, 64, 7, 2, 3, bias=False), norm0=nn.BatchNorm2d(64), relu0=nn.ReLU(),
                        pool0=nn.MaxPool2d(3, 2, 1))
        n_in = 64
        for i, n in enumerate((6, 12, 24, 16)):
            f[f"denseblock{i + 1}"] = nn.Sequential(OrderedDict(
                (f"denselayer{j + 1}", DenseLayer(n_in + 32 * j)) for j in range(n)))
            n_in += 32 * n
            if i < 3:
                f[f"transition{i + 1}"] = nn.Sequential(OrderedDict(
                    norm=nn.BatchNorm2d(n_in), relu=nn.ReLU(), conv=nn.Conv2d(n_in, n_in // 2, 1, bias=False),
                    pool=nn.AvgPool2d(2)))
                n_in //= 2
        f["norm5"] = nn.BatchNorm2d(n_in)
        self.features, self.classifier = nn.Sequential(f), nn.Linear(n_in, 1000)

    def forward(self, x):
        return self.classifier(torch.relu(self.features(x)).mean((2, 3)))


def library_net(name):
    del sys.path[0]  # where this file has the name of the library
    try:
        import torchvision
    except ImportError:
        sys.exit(77)
    return getattr(torchvision.models, name)(weights=None)


def save(path, tensors):
    header, at = {}, 0
    for name, t in tensors.items():
        dtype = {torch.float32: "F32", torch.int64: "I64"}[t.dtype]
        end = at + t.numel() * t.element_size()
        header[name], at = {"dtype": dtype, "shape": list(t.shape), "data_offsets": [at, end]}, end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for t in tensors.values():
            file.write(numpy.ascontiguousarray(t.numpy()).tobytes())


def main(model, path, old):
    torch.manual_seed(1)
    by_hand = {"resnet50": ResNet50, "densenet121_imagenet": DenseNet121}
    net = (by_hand[model]() if model in by_hand else library_net(model)).eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.data.uniform_(0.5, 1)
            module.bias.data.normal_(0, 0.1)
    x = torch.rand(2, 3, 96, 64)
    with torch.no_grad():
        tensors = {k: v for k, v in net.state_dict().items()}
        tensors.update({"test.x": x, "test.logits": net(x)})
    if old:
        tensors = {re.sub(r"(denselayer\d+\.(?:norm|conv))([12]\.)", r"\1.\2", k): v for k, v in tensors.items()}
    save(path, tensors)


main(sys.argv[1], sys.argv[2], "--old" in sys.argv[3:])
