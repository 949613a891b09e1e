"""The models of bench/gpu/run.sh as torch modules: layer by layer the same as in `tilewright zoo`, with
batch normalisation folded into the convolutions, as in the zoo's models. Weights are random.

`make(torch, name, size)` returns a module and its input; NAMES maps the names to the meaning of size.
"""

BERT = {"bert_small": (4, 512, 8), "bert_base": (12, 768, 12), "bert_large": (24, 1024, 16)}  # layers, width, heads
NAMES = {**{name: ("tokens", 512) for name in BERT}, "resnet50": ("pixels", 224), "segformer_b0": ("pixels", 512),
         "efficientvit_b1": ("pixels", 224), "candy": ("pixels", 224), "yolox_nano": ("pixels", 416)}


def bert(torch, name, tokens):
    """BERT's encoder on embedded tokens."""
    nn = torch.nn
    layers, width, heads = BERT[name]

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.first, self.second = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

        def forward(self, x):
            split = lambda t: t.view(1, tokens, heads, width // heads).transpose(1, 2)
            q, k, v = (split(t) for t in self.qkv(x).chunk(3, dim=-1))
            a = nn.functional.scaled_dot_product_attention(q, k, v)
            x = self.first(x + self.out(a.transpose(1, 2).reshape(1, tokens, width)))
            return self.second(x + self.down(nn.functional.gelu(self.up(x))))

    return nn.Sequential(*[Layer() for _ in range(layers)]), torch.randn(1, tokens, width)


def resnet50(torch, size):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inputs, width, stride):
            super().__init__()
            self.a, self.c = nn.Conv2d(inputs, width, 1), nn.Conv2d(width, 4 * width, 1)
            self.b = nn.Conv2d(width, width, 3, stride, 1)
            same = stride == 1 and inputs == 4 * width
            self.skip = nn.Identity() if same else nn.Conv2d(inputs, 4 * width, 1, stride)

        def forward(self, x):
            relu = nn.functional.relu
            return relu(self.c(relu(self.b(relu(self.a(x))))) + self.skip(x))

    parts = [nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for k in range(count):
            parts.append(Block(inputs, width, stride if k == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)), image(torch, size)


def segformer_b0(torch, size):
    """Xie et al., 2021: keys and values of a reduced image, linear layers on four scales."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, width, heads, shrink):
            super().__init__()
            self.heads = heads
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
            self.shrink = nn.Conv2d(width, width, shrink, shrink) if shrink > 1 else None
            self.shrunk = nn.LayerNorm(width) if shrink > 1 else None
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.mix = nn.Conv2d(4 * width, 4 * width, 3, 1, 1, groups=4 * width)

        def forward(self, x, height, width):
            y = self.first(x)
            source = y
            if self.shrink is not None:
                source = self.shrunk(self.shrink(to_image(y, height, width)).flatten(2).transpose(1, 2))
            split = lambda t: t.unflatten(2, (self.heads, -1)).transpose(1, 2)
            a = F.scaled_dot_product_attention(split(self.q(y)), split(self.k(source)), split(self.v(source)))
            x = x + self.out(a.transpose(1, 2).flatten(2))
            y = to_image(self.up(self.second(x)), height, width)
            return x + self.down(F.gelu(self.mix(y).flatten(2).transpose(1, 2)))

    def to_image(x, height, width):
        return x.transpose(1, 2).unflatten(2, (height, width))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            widths, inputs = (32, 64, 160, 256), 3
            self.patches, self.norms, self.ends = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
            self.blocks, self.heads = nn.ModuleList(), nn.ModuleList()
            for width, heads, shrink, patch, stride in zip(widths, (1, 2, 5, 8), (8, 4, 2, 1), (7, 3, 3, 3), (4, 2, 2, 2)):
                self.patches.append(nn.Conv2d(inputs, width, patch, stride, patch // 2))
                self.norms.append(nn.LayerNorm(width))
                self.ends.append(nn.LayerNorm(width))
                self.blocks.append(nn.ModuleList(Block(width, heads, shrink) for _ in range(2)))
                self.heads.append(nn.Linear(width, 256))
                inputs = width
            self.fuse, self.classes = nn.Conv2d(1024, 256, 1), nn.Conv2d(256, 150, 1)

        def forward(self, x):
            maps, whole = [], None
            for patch, norm, end, blocks, head in zip(self.patches, self.norms, self.ends, self.blocks, self.heads):
                x = patch(x)
                height, width = x.shape[2:]
                y = norm(x.flatten(2).transpose(1, 2))
                for block in blocks:
                    y = block(y, height, width)
                y = end(y)
                x = to_image(y, height, width)
                m = to_image(head(y), height, width)
                whole = whole or (height, width)
                maps.append(m if whole == (height, width) else F.interpolate(m, whole, mode="bilinear"))
            return self.classes(F.relu(self.fuse(torch.cat(maps[::-1], 1))))

    return Net(), image(torch, size)


def efficientvit_b1(torch, size):
    """Cai et al., 2022: attention that is linear in the pixels, relu(q) (relu(k) v) / relu(q) relu(k)."""
    nn, F = torch.nn, torch.nn.functional
    head = 16

    def inverted(inputs, out, stride=1):
        wide = 4 * inputs
        return nn.Sequential(nn.Conv2d(inputs, wide, 1), nn.Hardswish(), nn.Conv2d(wide, wide, 3, stride, 1, groups=wide),
                             nn.Hardswish(), nn.Conv2d(wide, out, 1))

    class Residual(nn.Module):
        def __init__(self, inside):
            super().__init__()
            self.inside = inside

        def forward(self, x):
            return x + self.inside(x)

    class Attention(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.qkv = nn.Conv2d(c, 3 * c, 1, bias=False)
            self.wide = nn.Sequential(nn.Conv2d(3 * c, 3 * c, 5, 1, 2, groups=3 * c, bias=False),
                                      nn.Conv2d(3 * c, 3 * c, 1, groups=3 * c // head, bias=False))
            self.out = nn.Conv2d(2 * c, c, 1)

        def forward(self, x):
            qkv = self.qkv(x)
            both = torch.cat([qkv, self.wide(qkv)], 1).unflatten(1, (-1, 3 * head)).flatten(3)
            q, k, v = F.relu(both[:, :, :head]), F.relu(both[:, :, head:2 * head]), both[:, :, 2 * head:]
            sums = (F.pad(v, (0, 0, 0, 1), value=1.0) @ k.transpose(2, 3)) @ q
            y = sums[:, :, :head] / (sums[:, :, head:] + 1e-15)
            return self.out(y.flatten(1, 2).unflatten(2, x.shape[2:]))

    parts = [nn.Conv2d(3, 16, 3, 2, 1), nn.Hardswish(),
             Residual(nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.Hardswish(), nn.Conv2d(16, 16, 1)))]
    inputs = 16
    for width, depth, attends in ((32, 2, False), (64, 3, False), (128, 3, True), (256, 4, True)):
        parts.append(inverted(inputs, width, 2))
        for _ in range(depth if attends else depth - 1):
            if attends:
                parts.append(Residual(Attention(width)))
            parts.append(Residual(inverted(width, width)))
        inputs = width
    parts += [nn.Conv2d(256, 1536, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
              nn.Linear(1536, 1600, bias=False), nn.LayerNorm(1600), nn.Hardswish(), nn.Linear(1600, 1000)]
    return nn.Sequential(*parts), image(torch, size)


def candy(torch, size):
    """Fast style transfer (Johnson et al., 2016): reflected borders, instance normalisation."""
    nn = torch.nn

    def conv(inputs, out, kernel, stride=1):
        return [nn.ReflectionPad2d(kernel // 2), nn.Conv2d(inputs, out, kernel, stride)]

    def layer(*sizes):
        return [*conv(*sizes), nn.InstanceNorm2d(sizes[1], affine=True), nn.ReLU()]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = nn.Sequential(*layer(128, 128, 3), *conv(128, 128, 3), nn.InstanceNorm2d(128, affine=True))

        def forward(self, x):
            return x + self.inside(x)

    return nn.Sequential(*layer(3, 32, 9), *layer(32, 64, 3, 2), *layer(64, 128, 3, 2), *[Block() for _ in range(5)],
                         nn.Upsample(scale_factor=2), *layer(128, 64, 3), nn.Upsample(scale_factor=2), *layer(64, 32, 3),
                         *conv(32, 3, 9)), image(torch, size)


def yolox_nano(torch, size):
    """Ge et al., 2021, without the decoding of boxes."""
    nn, F = torch.nn, torch.nn.functional

    def conv(inputs, out, kernel=1):
        return nn.Sequential(nn.Conv2d(inputs, out, kernel, 1, kernel // 2), nn.SiLU())

    def deep(inputs, out, stride=1):
        return nn.Sequential(nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs), nn.SiLU(), conv(inputs, out))

    class Csp(nn.Module):
        def __init__(self, inputs, out, count, shortcut):
            super().__init__()
            half = out // 2
            self.first, self.second, self.last = conv(inputs, half), conv(inputs, half), conv(out, out)
            self.blocks = nn.ModuleList(nn.Sequential(conv(half, half), deep(half, half)) for _ in range(count))
            self.shortcut = shortcut

        def forward(self, x):
            y = self.first(x)
            for block in self.blocks:
                y = y + block(y) if self.shortcut else block(y)
            return self.last(torch.cat([y, self.second(x)], 1))

    class Head(nn.Module):
        def __init__(self, inputs):
            super().__init__()
            self.stem = conv(inputs, 64)
            self.kind, self.box = (nn.Sequential(deep(64, 64), deep(64, 64)) for _ in range(2))
            self.scores, self.corners, self.object = nn.Conv2d(64, 80, 1), nn.Conv2d(64, 4, 1), nn.Conv2d(64, 1, 1)

        def forward(self, x):
            x = self.stem(x)
            box = self.box(x)
            all = [self.corners(box), self.object(box).sigmoid(), self.scores(self.kind(x)).sigmoid()]
            return torch.cat(all, 1).flatten(2)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = conv(12, 16, 3)
            self.dark3 = nn.Sequential(deep(16, 32, 2), Csp(32, 32, 1, True), deep(32, 64, 2), Csp(64, 64, 3, True))
            self.dark4 = nn.Sequential(deep(64, 128, 2), Csp(128, 128, 3, True))
            self.dark5, self.narrow, self.wide = deep(128, 256, 2), conv(256, 128), conv(512, 256)
            self.last = Csp(256, 256, 1, False)
            self.lateral, self.reduce = conv(256, 128), conv(128, 64)
            self.p4, self.p3 = Csp(256, 128, 1, False), Csp(128, 64, 1, False)
            self.down3, self.n3 = deep(64, 64, 2), Csp(128, 128, 1, False)
            self.down4, self.n4 = deep(128, 128, 2), Csp(256, 256, 1, False)
            self.heads = nn.ModuleList([Head(64), Head(128), Head(256)])

        def forward(self, x):
            x = torch.cat([x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]], 1)
            p3 = self.dark3(self.stem(x))
            p4 = self.dark4(p3)
            y = self.narrow(self.dark5(p4))
            y = self.wide(torch.cat([y] + [F.max_pool2d(y, k, 1, k // 2) for k in (5, 9, 13)], 1))
            top = self.lateral(self.last(y))
            up = lambda t: F.interpolate(t, scale_factor=2)
            low = self.reduce(self.p4(torch.cat([up(top), p4], 1)))
            n3 = self.p3(torch.cat([up(low), p3], 1))
            n4 = self.n3(torch.cat([self.down3(n3), low], 1))
            features = [n3, n4, self.n4(torch.cat([self.down4(n4), top], 1))]
            return torch.cat([h(f) for h, f in zip(self.heads, features)], 2).transpose(1, 2)

    return Net(), image(torch, size)


def image(torch, size):
    return torch.randn(1, 3, size, size)


def make(torch, name, size):
    """`size`: tokens or pixels; 0: the default."""
    size = size or NAMES[name][1]
    return bert(torch, name, size) if name in BERT else globals()[name](torch, size)
