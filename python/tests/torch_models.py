"""Models for the tests of torch.compile and for bench/torch_compile.py, with seeded weights."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Mlp(nn.Module):
    def __init__(self, width=256, classes=10):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, 4 * width), nn.GELU(), nn.Dropout(0.1),
            nn.Linear(4 * width, classes),
        )

    def forward(self, x):
        return self.layers(x).softmax(-1)


class BasicBlock(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride != 1 or before != width:
            self.shortcut = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        kept = x if self.shortcut is None else self.shortcut(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        x += kept
        return self.relu(x)


class ResNet(nn.Module):
    """ResNet-18 for the default widths."""

    def __init__(self, widths=(64, 128, 256, 512), blocks=2, classes=1000):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, widths[0], 7, 2, 3, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        layers, before = [], widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks):
                layers.append(BasicBlock(before, width, 2 if stage and not block else 1))
                before = width
        self.layers = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(before, classes)

    def forward(self, x):
        return self.fc(torch.flatten(self.pool(self.layers(self.stem(x))), 1))


class SqueezeExcite(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        return x * F.hardsigmoid(self.expand(F.relu(self.reduce(s))))


class MobileBlock(nn.Module):
    def __init__(self, before, inner, after, stride):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(before, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.Hardswish(),
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False), nn.BatchNorm2d(inner), nn.Hardswish(),
            SqueezeExcite(inner), nn.Conv2d(inner, after, 1, bias=False), nn.BatchNorm2d(after),
        )
        self.residual = stride == 1 and before == after

    def forward(self, x):
        return x + self.layers(x) if self.residual else self.layers(x)


class MobileNet(nn.Module):
    """In the manner of MobileNetV3: depthwise convolutions, squeeze and excitation, hardswish."""

    def __init__(self, width=16, classes=100):
        super().__init__()
        w = width
        self.layers = nn.Sequential(
            nn.Conv2d(3, w, 3, 2, 1, bias=False), nn.BatchNorm2d(w), nn.Hardswish(),
            MobileBlock(w, 4 * w, 2 * w, 2), MobileBlock(2 * w, 6 * w, 2 * w, 1), MobileBlock(2 * w, 8 * w, 4 * w, 2),
            MobileBlock(4 * w, 16 * w, 4 * w, 1), MobileBlock(4 * w, 16 * w, 6 * w, 2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6 * w, classes),
        )

    def forward(self, x):
        return self.layers(x)


class UNet(nn.Module):
    def __init__(self, width=16, classes=2):
        super().__init__()

        def double(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1), nn.SiLU())

        w = width
        self.down1, self.down2, self.bottom = double(3, w), double(w, 2 * w), double(2 * w, 4 * w)
        self.up2, self.up1 = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2), nn.Upsample(scale_factor=2, mode="bilinear")
        self.merge2, self.merge1 = double(4 * w, 2 * w), double(3 * w, w)
        self.head = nn.Conv2d(w, classes, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.avg_pool2d(b, 2))
        b = self.merge2(torch.cat([self.up2(c), b], 1))
        return self.head(self.merge1(torch.cat([self.up1(b), a], 1)))


class Encoder(nn.Module):
    """nn.TransformerEncoder, which is one fused operator a layer in eval mode."""

    def __init__(self, vocabulary=1000, width=128, heads=4, layers=2, norm_first=False):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, batch_first=True, activation="gelu", norm_first=norm_first
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, ids):
        return self.layers(self.embed(ids)).mean(1)


class Bert(nn.Module):
    """In the manner of BERT as language-model libraries write it: an additive mask, a pooled output, a dict."""

    def __init__(self, vocabulary=1000, width=128, heads=4, layers=2, length=512):
        super().__init__()
        self.words, self.places, self.kinds = (nn.Embedding(n, width) for n in (vocabulary, length, 2))
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.register_buffer("position_ids", torch.arange(length)[None], persistent=False)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({
                "q": nn.Linear(width, width), "k": nn.Linear(width, width), "v": nn.Linear(width, width),
                "o": nn.Linear(width, width), "norm1": nn.LayerNorm(width, eps=1e-12),
                "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width),
                "norm2": nn.LayerNorm(width, eps=1e-12),
            })
            for _ in range(layers)
        )
        self.heads, self.pooler = heads, nn.Linear(width, width)

    def split(self, x):
        return x.view(*x.shape[:-1], self.heads, -1).transpose(1, 2)

    def forward(self, input_ids, attention_mask=None, token_type_ids=None):
        batch, length = input_ids.shape
        if attention_mask is None:
            attention_mask = torch.ones((batch, length), device=input_ids.device)
        if token_type_ids is None:
            token_type_ids = torch.zeros((batch, length), dtype=torch.long, device=input_ids.device)
        mask = (1.0 - attention_mask[:, None, None, :].to(torch.float32)) * torch.finfo(torch.float32).min
        x = self.words(input_ids) + self.places(self.position_ids[:, :length]) + self.kinds(token_type_ids)
        x = self.norm(x)
        for b in self.blocks:
            q, k, v = (self.split(b[n](x)) for n in "qkv")
            scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.size(-1)) + mask
            y = torch.matmul(F.softmax(scores, dim=-1), v).permute(0, 2, 1, 3).contiguous()
            x = b["norm1"](x + b["o"](y.view(batch, length, -1)))
            x = b["norm2"](x + b["down"](F.gelu(b["up"](x))))
        return {"last_hidden_state": x, "pooler_output": torch.tanh(self.pooler(x[:, 0])), "attentions": None}


class RmsNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        kept = x.dtype
        x = x.to(torch.float32)
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)).to(kept)


def rotate_half(x):
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, kv_heads * self.size, bias=False) for _ in range(2))
        self.o = nn.Linear(width, width, bias=False)
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x, cos, sin, mask, past):
        batch, length, _ = x.shape
        h = self.norm1(x)
        q = self.q(h).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.k(h).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        v = self.v(h).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        q, k = (t * cos + rotate_half(t) * sin for t in (q, k))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        present = (k, v)
        repeats = self.heads // self.kv_heads
        k, v = (t[:, :, None].expand(-1, -1, repeats, -1, -1).reshape(batch, self.heads, -1, self.size) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), present


class Decoder(nn.Module):
    """In the manner of Llama: rotary positions, grouped queries, a cache that is passed in and out."""

    def __init__(self, vocabulary=1000, width=128, heads=4, kv_heads=2, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, kv_heads) for _ in range(layers))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, vocabulary, bias=False)
        size = width // heads
        self.register_buffer("frequencies", 1.0 / 10000 ** (torch.arange(0, size, 2).float() / size))
        self.shape = (kv_heads, size)

    def empty_cache(self, batch, rows=0):
        return [(torch.zeros(batch, self.shape[0], rows, self.shape[1]),) * 2 for _ in self.blocks]

    def forward(self, input_ids, past_key_values=None):
        before = 0 if past_key_values is None else past_key_values[0][0].shape[2]
        length = input_ids.shape[1]
        positions = torch.arange(before, before + length, device=input_ids.device)
        angles = positions[:, None].float() * self.frequencies[None]
        angles = torch.cat([angles, angles], -1)
        cos, sin = angles.cos()[None, None], angles.sin()[None, None]
        mask = torch.arange(before + length)[None, :] <= positions[:, None]
        x, presents = self.embed(input_ids), []
        for k, block in enumerate(self.blocks):
            x, present = block(x, cos, sin, mask, None if past_key_values is None else past_key_values[k])
            presents.append(present)
        return self.head(self.norm(x)), presents


class StaticCacheAttention(nn.Module):
    """A cache of fixed size in buffers, written in place at the positions of the new tokens."""

    def __init__(self, width=64, heads=4, rows=32):
        super().__init__()
        self.qkv, self.o, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads
        self.register_buffer("keys", torch.zeros(1, heads, rows, width // heads))
        self.register_buffer("values", torch.zeros(1, heads, rows, width // heads))

    def forward(self, x, positions):
        q, k, v = (t.view(1, x.shape[1], self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        self.keys[:, :, positions] = k
        self.values[:, :, positions] = v
        mask = torch.arange(self.keys.shape[2])[None, :] <= positions[:, None]
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        return self.o(y.transpose(1, 2).reshape(x.shape))


class Gpt(nn.Module):
    """In the manner of GPT-2: fused projections, causal attention, tied embeddings."""

    def __init__(self, vocabulary=1000, width=128, heads=4, layers=2, length=512):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({
                "norm1": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width), "o": nn.Linear(width, width),
                "norm2": nn.LayerNorm(width), "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width),
            })
            for _ in range(layers)
        )
        self.norm, self.heads = nn.LayerNorm(width), heads

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for b in self.blocks:
            q, k, v = b["qkv"](b["norm1"](x)).split(x.shape[-1], dim=2)
            q, k, v = (t.view(*t.shape[:2], self.heads, -1).transpose(1, 2) for t in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + b["o"](y.transpose(1, 2).contiguous().view(x.shape))
            x = x + b["down"](F.gelu(b["up"](b["norm2"](x)), approximate="tanh"))
        return F.linear(self.norm(x), self.tokens.weight)


class Vit(nn.Module):
    def __init__(self, size=64, patch=16, width=128, heads=4, layers=2, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.cls = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) / 10)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({
                "norm1": nn.LayerNorm(width), "attention": nn.MultiheadAttention(width, heads, batch_first=True),
                "norm2": nn.LayerNorm(width), "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width),
            })
            for _ in range(layers)
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.places
        for b in self.blocks:
            h = b["norm1"](x)
            x = x + b["attention"](h, h, h, need_weights=False)[0]
            x = x + b["down"](F.gelu(b["up"](b["norm2"](x))))
        return self.head(x[:, 0])


class LstmTagger(nn.Module):
    def __init__(self, vocabulary=1000, width=64, tags=12):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * width, tags)

    def forward(self, ids):
        y, (h, c) = self.lstm(self.embed(ids))
        return F.log_softmax(self.head(y), -1), h, c


class TextCnn(nn.Module):
    def __init__(self, vocabulary=1000, width=64, classes=5):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(width, 32, k, padding=k // 2) for k in (3, 5, 7))
        self.head = nn.Linear(96, classes)

    def forward(self, ids):
        x = self.embed(ids).transpose(1, 2)
        return self.head(torch.cat([F.leaky_relu(c(x), 0.1).amax(2) for c in self.convs], 1))


class Recommender(nn.Module):
    """In the manner of DLRM: embeddings, products of all pairs, a perceptron."""

    def __init__(self, features=6, width=32):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(200, width) for _ in range(features))
        self.bottom, self.top = nn.Linear(13, width), nn.Linear(width + features * (features + 1) // 2, 1)
        rows, columns = torch.tril_indices(features + 1, features + 1, -1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, numbers, ids):
        x = F.relu(self.bottom(torch.log1p(numbers)))
        all_features = torch.stack([x, *[t(ids[:, i]) for i, t in enumerate(self.tables)]], 1)
        products = torch.bmm(all_features, all_features.transpose(1, 2))[:, self.rows, self.columns]
        return torch.sigmoid(self.top(torch.cat([x, products], 1)))


class Autoencoder(nn.Module):
    """Convolutions, a bottleneck, transposed convolutions of 3 taps in steps of 2."""

    def __init__(self, width=16):
        super().__init__()
        w = width
        self.encode = nn.Sequential(
            nn.Conv2d(1, w, 3, 2, 1), nn.ELU(), nn.Conv2d(w, 2 * w, 3, 2, 1), nn.InstanceNorm2d(2 * w, affine=True), nn.ELU()
        )
        self.decode = nn.Sequential(
            nn.ConvTranspose2d(2 * w, w, 3, 2, 1, output_padding=1), nn.PReLU(w),
            nn.ConvTranspose2d(w, 1, 3, 2, 1, output_padding=1), nn.Sigmoid(),
        )

    def forward(self, x):
        code = self.encode(x)
        return self.decode(code), code


def ids(batch, length, vocabulary=1000):
    return torch.randint(0, vocabulary, (batch, length))


# name -> (module, inputs of a size). Sizes are of the first dimension of images and rows, and of the length of texts.
MODELS = {
    "mlp": (lambda: Mlp(), lambda n: (torch.randn(n, 256),)),
    "resnet": (lambda: ResNet((16, 24, 32, 48), 1, 10), lambda n: (torch.randn(n, 3, 64, 64),)),
    "mobilenet": (lambda: MobileNet(), lambda n: (torch.randn(n, 3, 64, 64),)),
    "unet": (lambda: UNet(8), lambda n: (torch.randn(n, 3, 32, 48),)),
    "encoder": (lambda: Encoder(), lambda n: (ids(2, n),)),
    "bert": (lambda: Bert(), lambda n: (ids(2, n), (torch.rand(2, n) > 0.3).long())),
    "decoder": (lambda: Decoder(), lambda n: (ids(2, 3), Decoder().empty_cache(2, n))),
    "gpt": (lambda: Gpt(), lambda n: (ids(2, n),)),
    "vit": (lambda: Vit(), lambda n: (torch.randn(n, 3, 64, 64),)),
    "lstm": (lambda: LstmTagger(), lambda n: (ids(3, n),)),
    "textcnn": (lambda: TextCnn(), lambda n: (ids(4, n),)),
    "recommender": (lambda: Recommender(), lambda n: (torch.rand(n, 13), ids(n, 6, 200))),
    "autoencoder": (lambda: Autoencoder(), lambda n: (torch.randn(n, 1, 28, 28),)),
}


def make(name, seed=0):
    """A module in eval mode with seeded weights and statistics."""
    torch.manual_seed(seed)
    module = MODELS[name][0]().eval()
    for m in module.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.5, 1.5)
    return module


def inputs(name, size, seed=0):
    torch.manual_seed(seed + 1)
    return MODELS[name][1](size)
