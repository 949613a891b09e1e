"""torch.compile(backend="tilewright") and exported programs. Skipped where torch is not installed: `make torch-test`
installs it."""

import logging
import os
import subprocess
import sys
import tempfile
import threading
import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("torch is not installed; `make torch-test` installs it") from None

import tilewright as tw
import tilewright.torch as tt
import torch.nn as nn
import torch.nn.functional as F
from tilewright.torch import _session
from tilewright.torch._operators import OPERATORS
from torch.utils._pytree import tree_leaves

import models
import torch_cases
import torch_models

# The error of f32 results, of the largest element of a tensor.
MODEL_ERROR = 1e-5


def compiled(f, **arguments):
    """torch.compile of a function or module, which refuses what is not supported."""
    options = {"fallback": False, **arguments.pop("options", {})}
    return torch.compile(f, backend=tt.backend, options=options, **arguments)


class TorchTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch._dynamo.reset()
        tt.statistics.clear()
        tt.left_to_torch.clear()

    def assert_same(self, actual, expected, error=MODEL_ERROR):
        """Equal structure, types, shapes and strides; elements within `error` of the largest."""
        actual, expected = tree_leaves(actual), tree_leaves(expected)
        self.assertEqual(len(actual), len(expected))
        for a, e in zip(actual, expected):
            if not isinstance(e, torch.Tensor):
                self.assertEqual(a, e)
                continue
            self.assertEqual((a.dtype, a.shape, a.stride()), (e.dtype, e.shape, e.stride()))
            if e.dtype.is_floating_point and e.numel():
                finite = e[e.isfinite()]
                most = float(finite.abs().max()) if finite.numel() else 1.0
                bound = error * max(most, 1e-6) if e.dtype in (torch.float32, torch.float64) else 1e-2 * max(most, 1.0)
                torch.testing.assert_close(a, e, rtol=0, atol=bound, equal_nan=True)
            else:
                self.assertTrue(torch.equal(a, e), (a, e))

    def check(self, f, *args, **arguments):
        """The compiled function gives what the function gives."""
        with torch.no_grad():
            expected = f(*args)
            self.assert_same(compiled(f, **arguments)(*args), expected)


class Models(TorchTest):
    """Whole models: one graph, no operator left to torch, results equal to eager's."""

    @classmethod
    def setUpClass(cls):
        cls.allowed = torch._dynamo.config.allow_rnn
        torch._dynamo.config.allow_rnn = True  # else torch runs nn.LSTM eagerly, for every backend

    @classmethod
    def tearDownClass(cls):
        torch._dynamo.config.allow_rnn = cls.allowed

    def run_model(self, name, sizes, dynamic):
        module = torch_models.make(name)
        f = compiled(module, dynamic=dynamic)
        with torch.no_grad():
            for size in sizes:
                args = torch_models.inputs(name, size)
                self.assert_same(f(*args), module(*args))
        self.assertEqual(tt.statistics["graphs"], 1)
        self.assertEqual(tt.statistics["compilations"], 1)
        self.assertFalse(tt.left_to_torch)

    def test_static(self):
        for name in torch_models.MODELS:
            with self.subTest(name):
                self.setUp()
                self.run_model(name, [5], False)

    def test_dynamic(self):
        for name in torch_models.MODELS:
            with self.subTest(name):
                self.setUp()
                self.run_model(name, [5, 9, 14], True)

    def test_twenty_lengths_are_one_compilation(self):
        self.run_model("bert", range(3, 63, 3), True)

    def test_automatic_dynamic_shapes(self):
        # torch compiles for the first length, and for all lengths when a second one comes
        module = torch_models.make("gpt")
        f = compiled(module)
        with torch.no_grad():
            for length in (8, 9, 17, 30):
                args = torch_models.inputs("gpt", length)
                self.assert_same(f(*args), module(*args))
        self.assertEqual(tt.statistics["compilations"], 2)

    def test_decoding(self):
        module = torch_models.make("decoder")
        f = compiled(module, dynamic=True)
        tokens = torch_models.ids(1, 9)
        with torch.no_grad():
            whole, _ = module(tokens)
            _, cache = module(tokens[:, :4])
            cache = [tuple(t.contiguous() for t in layer) for layer in cache]  # as those of later steps are
            for k in range(4, 9):
                logits, cache = f(tokens[:, k : k + 1], cache)
                torch.testing.assert_close(logits[:, -1], whole[:, k], rtol=1e-4, atol=1e-4)
        self.assertEqual(tt.statistics["compilations"], 1)

    def test_cache_in_buffers(self):
        module, twin = (torch_models.StaticCacheAttention() for _ in range(2))
        twin.load_state_dict(module.state_dict())
        f = compiled(module)
        with torch.no_grad():
            for k in range(4):
                x, at = torch.randn(1, 2, 64), torch.arange(2 * k, 2 * k + 2)
                self.assert_same(f(x, at), twin(x, at))
                self.assert_same([module.keys, module.values], [twin.keys, twin.values])
        self.assertEqual(tt.statistics["compilations"], 1)

    def test_gru(self):
        for arguments in ({}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False}):
            with self.subTest(**arguments):
                self.setUp()
                module = nn.GRU(8, 16, **arguments).eval()
                f = compiled(module, dynamic=True)
                with torch.no_grad():
                    for length in (3, 7):
                        x = torch.randn(length, 4, 8)
                        self.assert_same(f(x), module(x))

    def test_fused_transformer_layers(self):
        for arguments in ({"norm_first": True}, {"activation": "gelu"}):
            layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **arguments).eval()
            x, padding = torch.randn(3, 5, 16), torch.arange(5)[None] >= torch.tensor([[5], [3], [4]])
            f = compiled(layer)
            with torch.no_grad():
                self.assert_same(f(x), layer(x))
                kept = ~padding
                actual = f(x, src_key_padding_mask=padding)
                self.assert_same(actual[kept], layer(x, src_key_padding_mask=padding)[kept])

    def test_attention_weights(self):
        attention = nn.MultiheadAttention(16, 4, batch_first=True).eval()
        x = torch.randn(2, 5, 16)
        self.check(lambda: attention(x, x, x))
        self.check(lambda: attention(x, x, x, average_attn_weights=False))
        self.check(lambda: attention(x, x[:, :3], x[:, :3]))


class Operators(TorchTest):
    """Each operator of the table, beside eager."""

    # Operators without a case of their own here, and what uses them.
    ELSEWHERE = {
        "aten._native_multi_head_attention.default": "Models.test_attention_weights",
        "aten._transformer_encoder_layer_fwd.default": "Models.test_fused_transformer_layers",
        "aten.mkldnn_rnn_layer.default": "Models.test_static: lstm",
        "aten.gru.input": "Models.test_gru",
        "prims.convert_element_type.default": "Models.test_dynamic: decoder",
        "aten._scaled_dot_product_flash_attention_for_cpu.default": "Gradients.test_attention",
        # composite operators, which torch.compile decomposes
        "aten.reshape.default": "view",
        "aten.special_erfc.default": "erfc",
        "aten.avg_pool1d.default": "avg_pool2d",
    }

    def test_cases(self):
        from tilewright.torch._convert import Converter

        converted, convert = set(), Converter._convert_node

        def record(converter, node):
            convert(converter, node)
            converted.add(node.target)

        Converter._convert_node = record
        self.addCleanup(setattr, Converter, "_convert_node", convert)
        for name, (f, make) in torch_cases.CASES.items():
            with self.subTest(name):
                self.setUp()
                self.check(f, *make(), dynamic=False)
        missing = {str(t) for t in OPERATORS if t not in converted} - set(self.ELSEWHERE)
        self.assertFalse(missing, "operators of the table without a case in torch_cases.py")

    def test_dynamic_sizes_in_shapes(self):
        def f(x):
            n, m = x.shape
            y = x.reshape(m, n).repeat(2, 1) + torch.arange(n) * m
            return y[1 : n // 2 + 1], y.view(-1)[: n * m].sum() / n, torch.full((n % 3 + 2,), n + m), F.pad(y, (n, 1))

        g = compiled(f, dynamic=True)
        for n, m in ((4, 6), (9, 5), (5, 8)):  # torch compiles anew where a size becomes 1
            x = torch.randn(n, m)
            self.assert_same(g(x), f(x))
        self.assertEqual(tt.statistics["compilations"], 1)

    def test_numbers_as_arguments(self):
        def f(x, n, scale):
            return x[:n] * scale + n

        g = compiled(f, dynamic=True)
        x = torch.randn(10, 3)
        for n, scale in ((3, 2.0), (5, 2.0), (7, 2.0)):
            self.assert_same(g(x, n, scale), f(x, n, scale))


class Arguments(TorchTest):
    """What users pass, and what they get."""

    def test_memory_is_shared(self):
        runs = []

        class Recorder:
            def __init__(self, runner):
                self.runner = runner

            def run_addresses(self, inputs, input_shapes, outputs, output_shapes):
                runs.append((inputs, outputs))
                self.runner.run_addresses(inputs, input_shapes, outputs, output_shapes)

        compile_model = _session.compile_model
        _session.compile_model = lambda *a: Recorder(compile_model(*a))
        self.addCleanup(setattr, _session, "compile_model", compile_model)
        f = compiled(lambda x, y: (x + y, x * y))
        x, y = torch.randn(64, 64), torch.randn(64, 64)
        results = f(x, y)
        self.assertEqual(runs, [([x.data_ptr(), y.data_ptr()], [r.data_ptr() for r in results])])
        self.assertTrue(all(r.data_ptr() % 64 == 0 for r in results))  # then kernels write there directly

    def test_results_are_new_tensors(self):
        f = compiled(lambda x: x + 1)
        first, second = f(torch.zeros(8)), f(torch.ones(8))
        self.assertEqual([first.sum().item(), second.sum().item()], [8, 16])

    def test_layouts(self):
        conv = nn.Conv2d(3, 8, 3, padding=1).eval()
        images = torch.randn(2, 3, 8, 9)
        self.check(lambda x: conv(x).relu(), images.to(memory_format=torch.channels_last))
        self.check(lambda x: x + 1, images.permute(3, 0, 1, 2))
        self.check(lambda x: x * 2, images[:, :, ::2, 1:])
        self.check(lambda x: x.sum(0), images.expand(5, 2, 3, 8, 9))
        self.check(lambda x: x.t() @ x, torch.randn(5, 7).t())

    def test_strides_change_between_calls(self):
        f = compiled(lambda x: x * 2 + 1, dynamic=True)
        for x in (torch.randn(4, 6), torch.randn(6, 4).t(), torch.randn(8, 12)[::2, ::2]):
            self.assert_same(f(x), x * 2 + 1)

    def test_empty(self):
        mlp = torch_models.make("mlp")
        for batch in (0, 1):
            self.check(mlp, torch.randn(batch, 256))
        self.check(lambda x: (x.sum(), x.reshape(0, 2), torch.cat([x, x + 1])), torch.zeros(0, 4))

    def test_odd_batches(self):
        mlp = torch_models.make("mlp")
        f = compiled(mlp, dynamic=True)
        with torch.no_grad():
            for batch in (3, 17, 2, 31):
                x = torch.randn(batch, 256)
                self.assert_same(f(x), mlp(x))
        self.assertEqual(tt.statistics["compilations"], 1)

    def test_containers(self):
        def f(batch, *, scale=None, keys=()):
            out = {k: batch[k] * 2 for k in keys}
            return {"a": [out["x"], (out["y"] + 1, None)], "n": len(keys), "s": scale}, batch["x"].shape[0]

        batch = {"x": torch.randn(3), "y": torch.randn(2, 2), "unused": torch.zeros(1)}
        self.assert_same(compiled(f)(batch, keys=["x", "y"]), f(batch, keys=["x", "y"]))

    def test_the_same_tensor_twice(self):
        x = torch.randn(4)
        self.check(lambda a, b: a + b, x, x)
        self.check(lambda a: (a, a + 1, a), x)
        self.check(lambda a: [a.exp()] * 2, x)

    def test_views(self):
        def f(x):
            y = x.exp()
            return y.t(), y[1:], y.view(-1), x[0], x.t(), y.expand(2, *y.shape)

        x = torch.randn(4, 5)
        g = compiled(f)(x)
        self.assert_same(g, f(x))
        g[1].zero_()  # of the same memory as g[0]
        self.assertEqual(g[0][:, 1:].abs().sum().item(), 0)
        self.assertEqual(g[3].data_ptr(), x.data_ptr())

    def test_arguments_are_written(self):
        def f(x, y):
            x.add_(y).mul_(2)
            y[0] = 7
            return x.sum()

        a, b = torch.randn(4, 5), torch.randn(4, 5)
        c, d = a.clone(), b.clone()
        self.assert_same([compiled(f)(a, b), a, b], [f(c, d), c, d])

    def test_inference_tensors(self):
        mlp = torch_models.make("mlp")
        f = compiled(mlp)
        with torch.inference_mode():
            x = torch.randn(3, 256)
            self.assert_same(f(x), mlp(x))

    def test_a_function_without_tensors_of_its_own(self):
        self.check(lambda: torch.arange(6).view(2, 3) * 2)

    def test_threads(self):
        module = torch_models.make("textcnn")
        f = compiled(module, dynamic=True)
        given = [torch_models.inputs("textcnn", n) for n in (9, 12, 15, 18)]
        with torch.no_grad():
            expected = [module(*g) for g in given]
            f(*given[0])
        errors = []

        def work(g, e):
            try:
                with torch.no_grad():
                    for _ in range(20):
                        self.assert_same(f(*g), e)
            except Exception as error:  # noqa: BLE001  (reported below)
                errors.append(error)

        threads = [threading.Thread(target=work, args=pair) for pair in zip(given, expected)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertFalse(errors)


class Parameters(TorchTest):
    """Parameters are constants of the compiled model, and follow what is done to the module."""

    def setUp(self):
        super().setUp()
        self.module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
        self.x = torch.randn(3, 8)

    def test_changed_weights(self):
        f = compiled(self.module)
        with torch.no_grad():
            self.assert_same(f(self.x), self.module(self.x))
            for _ in range(4):
                self.module[0].weight.mul_(1.5)
                self.assert_same(f(self.x), self.module(self.x))
        # once more as a constant, then the weight is an input
        self.assertEqual(tt.statistics["compilations"], 3)

    def test_loaded_weights(self):
        f = compiled(self.module)
        other = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
        with torch.no_grad():
            f(self.x)
            self.module.load_state_dict(other.state_dict())
            self.assert_same(f(self.x), other(self.x))

    def test_modules_that_share_code(self):
        layers = [nn.Linear(8, 8) for _ in range(20)]

        def f(layer, x):
            return layer(x).relu()

        g = compiled(f)
        with torch.no_grad():
            for _ in range(2):
                for layer in layers:
                    x = torch.randn(2, 8)
                    self.assert_same(g(layer, x), f(layer, x))
        self.assertLessEqual(tt.statistics["compilations"], 18)

    def test_parameters_as_inputs(self):
        f = compiled(self.module, options={"freeze": False})
        with torch.no_grad():
            for _ in range(3):
                self.assert_same(f(self.x), self.module(self.x))
                self.module[0].weight.mul_(1.5)
        self.assertEqual(tt.statistics["compilations"], 1)


class Gradients(TorchTest):
    """Graphs that need gradients: the forward pass is compiled, torch computes the backward pass."""

    def step(self, module, f, x, optimizer):
        optimizer.zero_grad()
        loss = f(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach(), [p.grad.clone() for p in module.parameters()]

    def test_training(self):
        module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
        twin = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
        twin.load_state_dict(module.state_dict())
        f = torch.compile(module, backend=tt.backend)
        steppers = [torch.optim.SGD(m.parameters(), 0.1) for m in (module, twin)]
        for _ in range(3):
            x = torch.randn(5, 8)
            self.assert_same(self.step(module, f, x, steppers[0]), self.step(twin, twin, x, steppers[1]), 1e-4)
        self.assertEqual(tt.statistics["compilations"], 1)

    def test_attention(self):
        q = torch.randn(1, 2, 5, 8, requires_grad=True)

        def f(q):
            return F.scaled_dot_product_attention(q, q, q, is_causal=True).square().sum()

        (expected,) = torch.autograd.grad(f(q), q)
        (actual,) = torch.autograd.grad(compiled(f)(q), q)
        self.assert_same(actual, expected, 1e-4)


class Fallback(TorchTest):
    """What Tilewright lacks is left to torch, or refused."""

    @staticmethod
    def f(x):
        y = (x @ x.t()).relu() + 1
        z = torch.lgamma(y)
        return (z * 2 + y).sum(0)

    def test_unsupported_operators_are_left_to_torch(self):
        x = torch.randn(4, 4)
        with torch.no_grad():
            g = torch.compile(self.f, backend=tt.backend)
            self.assert_same(g(x), self.f(x), 1e-4)
        self.assertEqual(dict(tt.left_to_torch), {"aten.lgamma.default": 1})
        self.assertEqual(tt.statistics["compilations"], 2)  # before and behind it

    def test_printed_once(self):
        from tilewright.torch import _settings

        _settings._said.clear()
        with self.assertLogs("tilewright", logging.WARNING) as logs, torch.no_grad():
            for _ in range(2):
                torch._dynamo.reset()
                torch.compile(self.f, backend=tt.backend)(torch.randn(4, 4))
        self.assertEqual(len(logs.output), 1)
        self.assertRegex(logs.output[0], r"aten\.lgamma\.default is left to torch: .*\(1 node\)")
        self.assertEqual(tt.left_to_torch["aten.lgamma.default"], 2)

    def test_refused(self):
        with self.assertRaisesRegex(Exception, r"(?s)aten\.lgamma\.default \(node '\w+', File .*test_torch.*hint: remove"):
            compiled(self.f)(torch.randn(4, 4))

    def test_sizes_that_depend_on_data(self):
        def f(x):
            return x[x > 0].sum() + (x * 2).sum()

        x = torch.randn(20)
        self.assert_same(torch.compile(f, backend=tt.backend)(x), f(x))

    def test_random_numbers(self):
        f = torch.compile(lambda x: F.dropout(x, 0.5) * 2 + x, backend=tt.backend)
        self.assertEqual(sorted(set(f(torch.ones(64)).tolist())), [1.0, 5.0])

    def test_complex_numbers(self):
        def f(x):
            return torch.view_as_real(torch.fft.fft(x)).square().sum(-1).sqrt() + 1

        x = torch.randn(16)
        with torch.no_grad():
            self.assert_same(torch.compile(f, backend=tt.backend)(x), f(x), 1e-4)

    def test_a_graph_that_the_compiler_refuses(self):
        compile_model = _session.compile_model

        def refuse(*_):
            raise tw.InvalidModel("the model is too strange")

        _session.compile_model = refuse
        self.addCleanup(setattr, _session, "compile_model", compile_model)
        x = torch.randn(3)
        with self.assertLogs("tilewright", logging.WARNING) as logs:
            self.assert_same(torch.compile(lambda x: x + 1, backend=tt.backend)(x), x + 1)
        self.assertIn("too strange", logs.output[0])
        self.assertEqual(tt.statistics["fallbacks"], 1)
        with self.assertRaisesRegex(Exception, "too strange"):
            compiled(lambda x: x + 2)(x)

    def test_unknown_options(self):
        with self.assertRaisesRegex(Exception, "no option 'thread'(?s:.*)did you mean 'threads'"):
            torch.compile(lambda x: x + 1, backend=tt.backend, options={"thread": 2})(torch.randn(3))

    def test_errors_of_the_program_are_torchs(self):
        f = compiled(torch_models.make("mlp"))
        with self.assertRaises(Exception) as raised, torch.no_grad():
            f(torch.randn(3, 255))
        self.assertNotIsInstance(raised.exception, tw.Error)


class Export(TorchTest):
    """Programs of torch.export."""

    def program(self, name, size, dims=None):
        module = torch_models.make(name)
        args = torch_models.inputs(name, size)
        return module, torch.export.export(module, args, dynamic_shapes=dims)

    def test_static(self):
        module, program = self.program("resnet", 2)
        args = torch_models.inputs("resnet", 2, seed=3)
        with torch.no_grad():
            self.assert_same(tt.compile(program)(*args), module(*args))

    def test_dynamic(self):
        length = torch.export.Dim("length", min=2, max=512)
        module, program = self.program("bert", 7, ({1: length}, {1: length}))
        f = tt.compile(program, threads=1)
        with torch.no_grad():
            for n in (7, 2, 33):
                args = torch_models.inputs("bert", n)
                self.assert_same(f(*args), module(*args))
        self.assertEqual(tt.statistics["compilations"], 1)
        with self.assertRaisesRegex(TypeError, "the program takes"):
            f(torch.zeros(1))

    def test_names_of_arguments_and_results(self):
        class Module(nn.Module):
            def forward(self, x, *, scale):
                return {"y": x * scale, "n": [x + 1, None]}

        x, scale = torch.randn(3), torch.randn(3)
        program = torch.export.export(Module(), (x,), {"scale": scale})
        self.assert_same(tt.compile(program)(x, scale=scale), Module()(x, scale=scale))

    def test_onnx(self):
        batch = torch.export.Dim("batch")
        module, program = self.program("mlp", 3, ({0: batch},))
        args = torch_models.inputs("mlp", 5)
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            path = os.path.join(folder, "mlp.onnx")
            tt.export_onnx(program, path)
            session = tw.InferenceSession(path)
            self.assertEqual([i.shape[1:] for i in session.get_inputs()], [[256]])
            (y,) = session(*[a.numpy() for a in args])
            self.assert_same(torch.from_numpy(y), module(*args))
            tool = [models.TOOL, "compile", path, "-o", os.path.join(folder, "mlp.so")]
            subprocess.run(tool, check=True, capture_output=True)

    def test_large_constants_go_to_a_second_file(self):
        from tilewright.torch import _onnx

        limit = _onnx._MOST_BYTES_WITHIN
        _onnx._MOST_BYTES_WITHIN = 1000
        self.addCleanup(setattr, _onnx, "_MOST_BYTES_WITHIN", limit)
        module, program = self.program("mlp", 3)
        args = torch_models.inputs("mlp", 3)
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            path = os.path.join(folder, "mlp.onnx")
            tt.export_onnx(program, path)
            self.assertGreater(os.path.getsize(path + ".data"), 256 * 1024 * 4)
            (y,) = tw.InferenceSession(path)(*[a.numpy() for a in args])
            self.assert_same(torch.from_numpy(y), module(*args))
            self.assert_same(tt.compile(program)(*args), module(*args))

    def test_refused(self):
        class Module(nn.Module):
            def forward(self, x):
                return torch.lgamma(x)

        program = torch.export.export(Module(), (torch.ones(3),))
        with self.assertRaisesRegex(tt.Unsupported, r"aten\.lgamma\.default \(node"):
            tt.compile(program)
        cache = torch_models.StaticCacheAttention()
        program = torch.export.export(cache, (torch.randn(1, 2, 64), torch.arange(2)))
        with self.assertRaisesRegex(tt.Unsupported, "writes 'keys'"):
            tt.compile(program)


class Package(TorchTest):
    """The wheel's metadata, and the documentation."""

    ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

    def test_entry_point(self):
        # torch finds the backend by the name that pyproject.toml gives it
        import tomllib

        with open(os.path.join(self.ROOT, "pyproject.toml"), "rb") as file:
            entries = tomllib.load(file)["project"]["entry-points"]["torch_dynamo_backends"]
        program = (
            "import torch; torch.manual_seed(0); x = torch.randn(3)\n"
            "y = torch.compile(lambda x: x * 2, backend='tilewright', options={'fallback': False})(x)\n"
            "import tilewright.torch as tt; assert torch.equal(y, x * 2) and tt.statistics['compilations'] == 1"
        )
        with tempfile.TemporaryDirectory() as folder:
            info = os.path.join(folder, "tilewright-0.dist-info")
            os.mkdir(info)
            with open(os.path.join(info, "METADATA"), "w", encoding="utf-8") as file:
                file.write("Metadata-Version: 2.1\nName: tilewright\nVersion: 0\n")
            with open(os.path.join(info, "entry_points.txt"), "w", encoding="utf-8") as file:
                file.write("[torch_dynamo_backends]\n" + "".join(f"{n} = {v}\n" for n, v in entries.items()))
            path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
            subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": path})

    def test_documented_operators(self):
        from tilewright.torch.__main__ import table

        with open(os.path.join(self.ROOT, "docs", "torch.md"), encoding="utf-8") as file:
            self.assertIn(table(), file.read(), "run `python -m tilewright.torch` and put its table into docs/torch.md")


if __name__ == "__main__":
    unittest.main()
