"""What Tilewright adds to ONNX Runtime's calls, and what holds for its memory, threads and bits."""

import importlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import unittest

import numpy as np

import models
import tilewright as tw


def optional(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


torch = optional("torch")
ml_dtypes = optional("ml_dtypes")


def random_inputs(session, sizes, seed=1):
    """Values around 0; indices 0 or 1."""
    random = np.random.default_rng(seed)
    feeds = {}
    for io in session.get_inputs():
        shape = [d if isinstance(d, int) else sizes[d] for d in io.shape]
        kind = {"tensor(float)": np.float32, "tensor(int64)": np.int64}[io.type]
        feeds[io.name] = (
            random.standard_normal(shape).astype(kind) if kind == np.float32 else random.integers(0, 2, shape)
        )
    return feeds


def outputs_of_tool(path, feeds, *options):
    """What `tilewright run` writes for the same inputs."""
    given, made = os.path.join(models.folder(), "in.npz"), os.path.join(models.folder(), "out.npz")
    np.savez(given, **feeds)
    subprocess.run(
        [models.TOOL, "run", path, "--input", given, "--output-npz", made, *options], check=True, capture_output=True
    )
    with np.load(made) as archive:
        return dict(archive)


class Bits(unittest.TestCase):
    """Results have the bits of the command-line tool's."""

    def check(self, path, sizes_of_runs, options=(), **compile_options):
        session = tw.compile(path, **compile_options)
        names = [o.name for o in session.get_outputs()]
        for sizes in sizes_of_runs:
            feeds = random_inputs(session, sizes)
            expected = outputs_of_tool(path, feeds, *options)
            for name, actual in zip(names, session.run(None, feeds)):
                self.assertEqual(actual.dtype, expected[name].dtype)
                self.assertEqual(actual.shape, expected[name].shape)
                self.assertEqual(actual.tobytes(), expected[name].tobytes(), f"{path} {sizes} {name}")

    def test_fixed_shapes(self):
        self.check(models.zoo("resnet18", "size=64"), [{}])
        self.check(models.zoo("attention", "heads=2", "m=48", "n=80"), [{}])

    def test_dynamic_shapes(self):
        self.check(models.zoo("mlp", "batch=0"), [{"batch": n} for n in (1, 7, 32, 3)])

    def test_options(self):
        path = models.zoo("conv2d", "size=20", "in=16", "out=32")
        self.check(path, [{}], ["--numerics", "strict", "--threads", "1"], numerics="strict", threads=1)
        self.check(path, [{}], ["--isa", "avx2", "--keep-subnormals"], isa="avx2", keep_subnormals=True)
        self.check(path, [{}], ["--orchestrate", "optimal"], orchestrate="optimal")
        self.check(path, [{}], ["--precision", "bf16", "--keep-f32", "*"], precision="bf16", keep_f32=["*"])
        self.check(path, [{}], ["--precision", "auto", "--max-error", "0.5"], precision="auto", max_error=0.5)


class Memory(unittest.TestCase):
    """Nothing is copied where it need not be."""

    def test_outputs_are_new_memory_that_arrays_own(self):
        session = tw.compile(models.negated(models.FLOAT))
        x = np.arange(1000, dtype=np.float32)
        first, second = session(x)[0], session(x + 1)[0]
        for y in (first, second):
            self.assertEqual(y.ctypes.data % 64, 0, "kernels wrote to it directly")
            self.assertTrue(y.flags.writeable and y.flags.c_contiguous)
            self.assertIsNotNone(y.base)
        self.assertFalse(np.shares_memory(first, second))
        np.testing.assert_array_equal(first, -x)

    def test_bound_outputs_are_written_in_place(self):
        session = tw.compile(models.negated(models.FLOAT))
        x = np.arange(32, dtype=np.float32)
        storage = np.zeros(64 + 16, np.float32)
        start = -storage.ctypes.data % 64 // 4
        for offset in (0, 1):  # aligned, and not
            target = storage[start + offset : start + offset + 32]
            binding = session.io_binding()
            binding.bind_cpu_input("x", x)
            binding.bind_ortvalue_output("y", tw.OrtValue.ortvalue_from_numpy(target))
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(target, -x)
            self.assertEqual(binding.get_outputs()[0].data_ptr(), target.ctypes.data)
            self.assertEqual(binding.copy_outputs_to_cpu()[0].ctypes.data, target.ctypes.data)

    def test_runs_on_addresses(self):
        run = tw.compile(models.sum_and_relu())._runner.run_addresses
        x, y = np.array([[1, 2, 3], [4, 5, 6]], np.float32), np.array([[-2, -2, -2]], np.float32)
        total, positive = np.zeros((2, 2, 3), np.float32)
        addresses = [[a.ctypes.data for a in arrays] for arrays in ((x, y), (total, positive))]
        run(addresses[0], [x.shape, y.shape], addresses[1], [x.shape, x.shape])
        np.testing.assert_array_equal(total, x + y)
        np.testing.assert_array_equal(positive, np.maximum(x + y, 0))
        with self.assertRaisesRegex(tw.InvalidArgument, "output 'sum' has shape .3, 2., and the output has shape .2, 3."):
            run(addresses[0], [x.shape, y.shape], addresses[1], [(3, 2), x.shape])
        with self.assertRaisesRegex(tw.InvalidArgument, "the shape of input 'x' is not given"):
            run(addresses[0], None, addresses[1], [x.shape, x.shape])
        with self.assertRaisesRegex(tw.InvalidArgument, "expected 2 inputs and 2 outputs"):
            run(addresses[0], None, [], [])

    def test_an_output_may_replace_its_input(self):
        session = tw.compile(models.transposed())
        x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
        value = tw.OrtValue.ortvalue_from_shape_and_type([64, 64], np.float32)
        value.update_inplace(x)
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", value)
        binding.bind_ortvalue_output("y", value)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(value.numpy(), x.T)

    def test_inputs_are_taken_as_they_are(self):
        from tilewright import _arrays

        x = np.arange(6, dtype=np.float32)
        for given in (x, tw.OrtValue.ortvalue_from_numpy(x)):
            array, _ = _arrays.as_input(given, 0)
            self.assertEqual(array.ctypes.data, x.ctypes.data)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_tensors_of_torch(self):
        t = torch.arange(6, dtype=torch.float32, requires_grad=True)
        session = tw.compile(models.negated(models.FLOAT))
        np.testing.assert_array_equal(session(t)[0], -t.detach().numpy())
        value = tw.OrtValue.from_dlpack(t.detach())
        self.assertEqual(value.data_ptr(), t.data_ptr())
        self.assertEqual(torch.from_dlpack(value).data_ptr(), t.data_ptr())
        b = torch.tensor([1.5, -2], dtype=torch.bfloat16)
        y = tw.compile(models.negated(models.BFLOAT16)).run_with_ort_values(None, {"x": tw.OrtValue.from_dlpack(b)})[0]
        self.assertEqual(y.data_type(), "tensor(bfloat16)")

    def test_an_array_with_dlpack_alone(self):
        class Only:
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **kwargs):
                return self.array.__dlpack__()

            def __dlpack_device__(self):
                return (1, 0)

        x = np.arange(6, dtype=np.float32)
        session = tw.compile(models.negated(models.FLOAT))
        np.testing.assert_array_equal(session(Only(x))[0], -x)
        np.testing.assert_array_equal(session(Only(x[::2]))[0], -x[::2])
        self.assertEqual(tw.OrtValue.from_dlpack(Only(x)).data_ptr(), x.ctypes.data)

    def test_types_that_numpy_lacks(self):
        session = tw.compile(models.negated(models.BFLOAT16))
        bits = np.array([0x3F80, 0xC000], np.uint16)  # 1, -2
        expected = np.array([0xBF80, 0x4000], np.uint16)
        self.assertEqual(session.get_inputs()[0].type, "tensor(bfloat16)")
        np.testing.assert_array_equal(session(bits)[0].view(np.uint16), expected)
        value = tw.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, models.BFLOAT16)
        self.assertEqual(value.data_type(), "tensor(bfloat16)")
        np.testing.assert_array_equal(session(value)[0].view(np.uint16), expected)
        if ml_dtypes is not None:
            y = session(bits.view(ml_dtypes.bfloat16))[0]
            self.assertEqual(y.dtype, ml_dtypes.bfloat16)
            np.testing.assert_array_equal(y.astype(np.float32), [-1, 2])
        with self.assertRaises(tw.InvalidArgument):
            session(np.zeros(2, np.float32))


class Threads(unittest.TestCase):
    def test_a_run_releases_the_gil_and_ends_when_terminated(self):
        session = tw.compile(models.long_loop())
        x = np.ones(4, np.float32)
        np.testing.assert_array_equal(session(np.int64(3), x)[0], -x)
        options = tw.RunOptions()
        begun, ended = threading.Event(), []

        def run():
            begun.set()
            try:
                session.run(None, {"count": np.array(1 << 38), "x": x}, options)
            except tw.Cancelled as error:
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        begun.wait()
        options.terminate = True  # needs the GIL, while the loop would go on for hours
        thread.join()
        self.assertEqual(len(ended), 1)
        np.testing.assert_array_equal(session(np.int64(2), x)[0], x)

    def test_concurrent_runs_have_the_bits_of_single_ones(self):
        path = models.zoo("mlp", "batch=0")
        session = tw.compile(path, threads=2)
        inputs = [random_inputs(session, {"batch": n % 4 + 1}, n) for n in range(8)]
        expected = [session.run(None, feeds)[0].tobytes() for feeds in inputs]
        wrong = []

        def work(k):
            for _ in range(20):
                if session.run(None, inputs[k])[0].tobytes() != expected[k]:
                    wrong.append(k)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    @unittest.skipUnless(threading.current_thread() is threading.main_thread(), "signals go to the main thread")
    def test_an_interrupt_ends_a_compilation(self):
        logger = logging.getLogger("tilewright")
        seen = []

        class Interrupting(logging.Handler):
            def emit(self, record):
                seen.append(record.getMessage())
                if len(seen) == 2:
                    signal.raise_signal(signal.SIGINT)

        handler = Interrupting()
        logger.addHandler(handler)
        level = logger.level
        logger.setLevel(logging.INFO)
        try:
            with self.assertRaises(KeyboardInterrupt):
                tw.compile(models.sum_and_relu(), log_severity_level=1, cache=False)
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
        self.assertEqual(len(seen), 2)


class Errors(unittest.TestCase):
    def error(self, kind, f):
        with self.assertRaises(kind) as caught:
            f()
        self.assertIsInstance(caught.exception, tw.Error)
        return caught.exception

    def test_sizes_outside_of_a_declared_range_are_refused(self):
        for dims in ({"N": (1, 4)}, {"N": (1, 4, [1, (4, 3)])}, {"N": "1..4:1,4@3"}):
            session = tw.compile(models.sum_and_relu(), dims=dims)
            session(np.ones((4, 3), np.float32), np.ones((4, 3), np.float32))
            with self.subTest(dims=dims), self.assertRaises(tw.Error) as caught:
                session(np.ones((9, 3), np.float32), np.ones((9, 3), np.float32))
            self.assertIn("dimension N = 9, and the model is compiled for 1 to 4", str(caught.exception))
        session = tw.compile(models.sum_and_relu(), dims={"N": "4..16/4"})
        self.assertEqual(session.get_inputs()[0].shape[0], "N")
        session(np.ones((12, 3), np.float32), np.ones((12, 3), np.float32))
        with self.assertRaises(tw.Error) as caught:
            session(np.ones((9, 3), np.float32), np.ones((9, 3), np.float32))
        self.assertIn("which the model is compiled for in steps of 4", str(caught.exception))
        self.error(tw.InvalidArgument, lambda: tw.compile(models.sum_and_relu(), dims={"N": range(1, 4)}))
        self.error(tw.InvalidArgument, lambda: tw.compile(models.sum_and_relu(), dims={"N": (4, 1)}))

    def test_a_kv_cache_has_what_outputs_would_pass_back(self):
        path = models.zoo("gpt2_tiny_decoder")
        plain, cached = tw.compile(path), tw.compile(path, kv_cache=True)
        cache = cached.new_kv_cache(8)
        held = [i.name for i in plain.get_inputs() if i.name.startswith("past")]
        past = {name: np.zeros((2, 4, 0, 16), np.float32) for name in held}
        for tokens in ([[5, 6, 7], [7, 6, 5]], [[8], [9]], [[1] * 9, [2] * 9]):
            ids = np.array(tokens)
            places = np.broadcast_to(len(cache) + np.arange(ids.shape[1]), ids.shape)
            feeds = {"input_ids": ids, "position_ids": places}
            expected = dict(zip([o.name for o in plain.get_outputs()], plain.run(None, feeds | past)))
            (logits,) = cached.run(None, feeds, kv_cache=cache)
            np.testing.assert_allclose(logits, expected["logits"], rtol=1e-4, atol=1e-4)
            past = {name: expected[name.replace("past_key_values", "present")] for name in held}
        self.assertEqual(cache.rows, 13)
        for name, rows in cache.read().items():
            np.testing.assert_allclose(rows, past[name], rtol=1e-5, atol=1e-5)
        cache.truncate(4)
        self.assertEqual(cache.read()[held[0]].shape, (2, 4, 4, 16))
        with self.assertRaisesRegex(tw.InvalidArgument, "'present.0.key' stays in the KV cache"):
            cached.run(["present.0.key"], feeds, kv_cache=cache)
        with self.assertRaisesRegex(tw.Error, "not compiled for a KV cache"):
            plain.new_kv_cache()

    def test_texts_and_hints_are_the_tools(self):
        e = self.error(tw.InvalidArgument, lambda: tw.compile(models.sum_and_relu(), dims={"M": 3}))
        self.assertEqual(e.message, "dimension 'M' = 3: no input of the model has a dimension 'M'")
        self.assertIn("N", e.hint)
        self.assertEqual(str(e), f"{e.message}\nhint: {e.hint}")
        e = self.error(tw.NoSuchFile, lambda: tw.compile("no/such.onnx"))
        self.assertIn("no/such.onnx", str(e))
        e = self.error(tw.InvalidModel, lambda: tw.compile(b"PK\3\4"))
        self.assertIn("ZIP archive", e.message)
        session = tw.compile(models.sum_and_relu())
        e = self.error(tw.InvalidModel, lambda: session(np.ones((2, 4), np.float32), np.ones((2, 3), np.float32)))
        self.assertEqual(e.message, "input 'x' has 4 elements in dimension 1, expected 3")
        e = self.error(tw.InvalidArgument, lambda: session(np.ones((2, 3)), np.ones((2, 3), np.float32)))
        self.assertEqual(e.message, "input 'x' has elements of type f64, expected f32")
        e = self.error(tw.InvalidArgument, lambda: session.run(["none"], {}))
        self.assertEqual((e.message, e.hint), ("the model has no output 'none'", "the outputs: 'sum', 'positive'"))
        e = self.error(tw.InvalidArgument, lambda: session(np.array(["a"]), np.array(["b"])))
        self.assertIn("not supported", e.message)

    def test_what_is_not_supported_raises(self):
        options = tw.SessionOptions()
        options.optimized_model_filepath = "x.onnx"
        self.error(tw.NotImplemented, lambda: tw.InferenceSession(models.sum_and_relu(), options))
        with self.assertRaises(AttributeError):
            tw.SessionOptions().intra_op_threads = 1
        self.error(tw.InvalidArgument, lambda: tw.InferenceSession(models.sum_and_relu(), providers=["GPU"]))
        self.error(tw.NotImplemented, lambda: tw.OrtValue.ortvalue_from_shape_and_type([1], np.float32, "cuda"))
        with self.assertRaises(TypeError):
            tw.compile(models.sum_and_relu(), thread=1)
        self.error(tw.InvalidArgument, lambda: tw.compile(models.sum_and_relu(), numerics="exact"))
        e = self.error(tw.InvalidArgument, lambda: tw.compile(models.sum_and_relu(), keep_f32=["/head/*"]))
        self.assertIn("matches '/head/*'", e.message)


class Profiles(unittest.TestCase):
    def test_are_written_when_they_end(self):
        options = tw.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = os.path.join(models.folder(), "profile")
        session = tw.InferenceSession(models.sum_and_relu(), options)
        x = np.ones((2, 3), np.float32)
        session.run(None, {"x": x, "y": x})
        path = session.end_profiling()
        self.assertTrue(path.startswith(options.profile_file_prefix + "_"))
        with open(path, encoding="utf-8") as file:
            events = json.load(file)
        runs = [e for e in events if e["cat"] == "Session"]
        self.assertEqual([e["args"]["inputs"] for e in runs], ["f32[2, 3], f32[2, 3]"])
        steps = [e for e in events if e["cat"] == "Node"]
        self.assertTrue(steps)
        self.assertTrue(all(runs[0]["ts"] <= e["ts"] + 1 and e["dur"] <= runs[0]["dur"] + 1 for e in steps))
        self.assertEqual(session.end_profiling(), "")
        session.run(None, {"x": x, "y": x})

    def test_have_the_runs_of_every_thread(self):
        options = tw.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = os.path.join(models.folder(), "threads")
        session = tw.InferenceSession(models.sum_and_relu(), options)
        x = np.ones((2, 3), np.float32)
        threads = [
            threading.Thread(target=lambda: [session.run(None, {"x": x, "y": x}) for _ in range(20)]) for _ in range(4)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        with open(session.end_profiling(), encoding="utf-8") as file:
            events = json.load(file)
        self.assertEqual(sum(e["name"] == "run" for e in events), 80)

    def test_are_not_there_without_the_option(self):
        self.assertEqual(tw.compile(models.sum_and_relu()).end_profiling(), "")


class Tools(unittest.TestCase):
    def test_version(self):
        tool = subprocess.run([models.TOOL, "--version"], check=True, capture_output=True, text=True).stdout
        self.assertEqual(tw.__version__, tool.strip())

    def test_bench(self):
        times = tw.bench(models.zoo("mlp", "batch=0"), sizes={"batch": 2}, iterations=5, warmup=1)
        self.assertEqual(sorted(times), ["max", "mean", "median", "min", "p90", "p99"])
        self.assertTrue(0 < times["min"] <= times["median"] <= times["max"])
        with self.assertRaises(tw.InvalidArgument):
            tw.bench(models.zoo("mlp", "batch=0"), sizes={"bacth": 2})

    def test_explain(self):
        path = models.zoo("mlp", "batch=0")
        text = subprocess.run(
            [models.TOOL, "explain", path, "--dim", "batch=4"], check=True, capture_output=True, text=True
        ).stdout
        e = tw.explain(path, sample_sizes={"batch": 4})
        kernels = [line for line in text.splitlines() if "kernels" in line and "ms" not in line]
        for line in kernels:
            self.assertIn(line, str(e))
        self.assertIn("for batch = 4", e.text)
        self.assertIn("<iframe", e._repr_html_())
        self.assertIn("<html", e.html)
        session = tw.compile(path)
        self.assertIn("kernel", tw.explain(session).text)
        self.assertIn("kernel", tw.explain(models.sum_and_relu()).text)

    def test_the_cache_folder_is_used(self):
        folder = os.path.join(models.folder(), "cache")
        tw.compile(models.sum_and_relu(), cache_folder=folder)
        self.assertTrue(os.listdir(os.path.join(folder, "code")))

    def test_a_stub_describes_the_module(self):
        folder = os.path.dirname(tw.__file__)
        with open(os.path.join(folder, "_tilewright.pyi")) as f:
            self.assertIn("def compile_file(", f.read())
        self.assertTrue(os.path.exists(os.path.join(folder, "py.typed")))

    def test_only_entries_are_exported(self):
        nm = optional("shutil").which("nm")
        if nm is None:
            self.skipTest("no nm")
        module = importlib.import_module("tilewright._tilewright").__file__
        listed = subprocess.run([nm, "-D", "--defined-only", module], check=True, capture_output=True, text=True)
        names = [line.split()[-1] for line in listed.stdout.splitlines()]
        self.assertEqual(names, ["CreateEpFactories", "PyInit__tilewright", "ReleaseEpFactory"])

    def test_an_onnx_model_proto_is_accepted(self):
        class Proto:
            def SerializeToString(self):  # noqa: N802
                return models.sum_and_relu()

        self.assertEqual(len(tw.compile(Proto()).get_outputs()), 2)


if __name__ == "__main__":
    sys.exit(unittest.main())
