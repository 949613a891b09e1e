"""The execution provider in ONNX Runtime, if that is installed: partitions, results, threads, options."""

import glob
import os
import random
import threading
import unittest

import numpy as np

import models
import tilewright
from tilewright import execution_provider

try:
    import onnxruntime as ort
except ImportError:
    ort = None

SHARED = os.path.join(os.path.dirname(__file__), "..", "..", "..", "shared", "models", "real")
NAME = execution_provider.get_ep_name()


def session(path, intra=1, optimise=True, entries=None, **options):
    """A session with the provider before ONNX Runtime's own. `entries`: of its configuration. `options`: the provider's."""
    so = ort.SessionOptions()
    so.intra_op_num_threads = intra
    so.log_severity_level = 4
    so.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    for name, entry in (entries or {}).items():
        so.add_session_config_entry(name, entry)
    if not optimise:
        so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    given = {"threads": str(intra), "cache_folder": "none", **options}
    devices = [d for d in ort.get_ep_devices() if d.ep_name == NAME]
    so.add_provider_for_devices(devices, given)
    return ort.InferenceSession(path, so, enable_fallback=0)


def cpu_session(path):
    so = ort.SessionOptions()
    so.intra_op_num_threads = 1
    so.log_severity_level = 4
    return ort.InferenceSession(path, so, providers=["CPUExecutionProvider"])


# ONNX Runtime 1.23 does not say which provider has a node, and does not distinguish subgraphs.
HAS_ASSIGNMENT = ort is not None and hasattr(ort.InferenceSession, "get_provider_graph_assignment_info")
needs_assignment = unittest.skipUnless(HAS_ASSIGNMENT, "this ONNX Runtime does not say which provider has a node")


def taken(s):
    """The numbers of nodes in each part that the provider has, and of nodes that it does not have."""
    ours, others = [], 0
    for part in s.get_provider_graph_assignment_info():
        nodes = len(part.get_nodes())
        if part.ep_name == NAME:
            ours.append(nodes)
        else:
            others += nodes
    return ours, others


def flags():
    """Of this CPU."""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        return {flag for line in f if line.startswith("flags") for flag in line.split(":")[1].split()}


def node_names(s):
    return [n.name for part in s.get_provider_graph_assignment_info() for n in part.get_nodes()]


def inputs_of(s, size, seed=0):
    """Random inputs; open dimensions are `size`."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for i in s.get_inputs():
        shape = [d if isinstance(d, int) else size for d in i.shape]
        if "int" in i.type:
            feeds[i.name] = rng.integers(0, 2, shape).astype(np.int64 if "64" in i.type else np.int32)
        else:
            feeds[i.name] = rng.standard_normal(shape).astype(np.float32)
    return feeds


def assert_close(test, actual, expected, tolerance=1e-4):
    test.assertEqual(len(actual), len(expected))
    for a, e in zip(actual, expected):
        test.assertEqual((a.shape, a.dtype), (e.shape, e.dtype))
        if e.dtype.kind != "f":
            np.testing.assert_array_equal(a, e)
        elif e.size > 0:
            scale = np.max(np.abs(e)) + 1e-6
            test.assertLessEqual(np.max(np.abs(a.astype(np.float64) - e)) / scale, tolerance)


@unittest.skipIf(ort is None, "onnxruntime is not installed")
class ExecutionProvider(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        execution_provider.register()

    def assert_parts(self, s, parts, others=0):
        """The provider has so many parts of a session, and others have so many nodes."""
        if HAS_ASSIGNMENT:
            ours, left = taken(s)
            self.assertEqual((len(ours), left), (parts, others))

    def zoo(self):
        yield models.zoo("mlp", "batch=0")
        yield models.zoo("resnet18", "size=64")
        yield models.zoo("bert_tiny", "seq=0")
        yield models.zoo("gpt2_tiny_decoder")

    def test_a_model_is_one_part_and_equals_onnxruntime(self):
        for path in self.zoo():
            with self.subTest(path):
                s, reference = session(path), cpu_session(path)
                self.assert_parts(s, 1)
                for size in (1, 5):
                    feeds = inputs_of(reference, size)
                    assert_close(self, s.run(None, feeds), reference.run(None, feeds))

    def expect_bits_of_our_session(self, path, size):
        """`size`: of dynamic dimensions."""
        options = tilewright.SessionOptions()
        options.intra_op_num_threads = 1
        own, s = tilewright.InferenceSession(path, options), session(path, optimise=False)
        feeds = inputs_of(s, size)
        for a, b in zip(s.run(None, feeds), own.run(None, feeds)):
            self.assertEqual(a.tobytes(), b.tobytes())

    def test_results_are_those_of_our_own_session_bit_for_bit(self):
        """Where ONNX Runtime does not change the graph first."""
        for path in self.zoo():
            with self.subTest(path):
                self.expect_bits_of_our_session(path, 3)

    @needs_assignment
    def test_any_part_of_a_model_may_be_left_to_onnxruntime(self):
        path = models.zoo("bert_tiny", "seq=0")
        reference = cpu_session(path)
        names = node_names(session(path))
        feeds = inputs_of(reference, 7)
        expected = reference.run(None, feeds)
        for seed in range(4):
            excluded = random.Random(seed).sample(names, len(names) // 2)
            s = session(path, exclude=";".join(excluded))
            ours, others = taken(s)
            self.assertGreater(len(ours), 1)
            self.assertGreater(others, 0)
            assert_close(self, s.run(None, feeds), expected)

    def test_operators_are_excluded_by_name(self):
        path = models.zoo("mlp", "batch=0")
        s = session(path, exclude="Relu")
        if HAS_ASSIGNMENT:
            self.assertGreater(taken(s)[1], 0)
        feeds = inputs_of(s, 2)
        assert_close(self, s.run(None, feeds), cpu_session(path).run(None, feeds))

    def test_products_stay_in_f32_by_name(self):
        """In a region that lacks the named node as well."""
        path = models.zoo("mlp", "batch=0")
        exact = session(path)
        feeds = inputs_of(exact, 2)
        expected = exact.run(None, feeds)
        rounded = session(path, precision="bf16").run(None, feeds)
        if "amx_bf16" in flags():  # AVX512_BF16 only where it is measured to be faster than f32
            self.assertNotEqual(rounded[0].tobytes(), expected[0].tobytes())
        kept = session(path, precision="bf16", keep_f32="no such node;*").run(None, feeds)
        self.assertEqual(kept[0].tobytes(), expected[0].tobytes())

    def test_control_flow_is_taken_with_its_body_or_not_at_all(self):
        data = models.long_loop()
        feeds = {"count": np.array(3, np.int64), "x": np.array([1, -2, 3, -4], np.float32)}
        for exclude, parts in (("", 1), ("Loop", 0)):
            s = session(data, exclude=exclude)
            if HAS_ASSIGNMENT:
                self.assertEqual(len(taken(s)[0]), parts)
            np.testing.assert_array_equal(s.run(None, feeds)[0], -feeds["x"])

    def test_shapes_may_depend_on_the_data(self):
        s = session(models.nonzero())
        self.assert_parts(s, 1)
        for x in ([0, 1, 0, 2], [0, 0], [1]):
            np.testing.assert_array_equal(s.run(None, {"x": np.array(x, np.float32)})[0], [np.nonzero(x)[0]])

    def test_types_that_files_pack_stay_outside(self):
        """Tensors of 4 bits are packed in ONNX Runtime and not here: no border may pass through one."""
        int4 = 22
        data = models.model(
            models.graph(
                [
                    models.node("QuantizeLinear", ["x", "s"], ["q"], output_dtype=int4),
                    models.node("DequantizeLinear", ["q", "s"], ["y"]),
                ],
                [models.value("x", models.FLOAT, ["N"]), models.value("s", models.FLOAT, [])],
                [models.value("y", models.FLOAT, ["N"])],
            ),
            opset=21,
        )
        feeds = {"x": np.array([-9, -1.2, 0.4, 3], np.float32), "s": np.array(0.5, np.float32)}
        for exclude, parts in (("", (1, 0)), ("DequantizeLinear", (0, 2))):
            s = session(data, optimise=False, exclude=exclude)
            self.assert_parts(s, *parts)
            np.testing.assert_array_equal(s.run(None, feeds)[0], np.array([-4, -1, 0.5, 3], np.float32))

    def test_threads_run_one_session_at_the_same_time(self):
        path = models.zoo("mlp", "batch=0")
        for threads in (1, 2):
            s, reference = session(path, threads), cpu_session(path)
            failures = []

            def work(seed):
                feeds = inputs_of(reference, seed + 1, seed)
                expected = reference.run(None, feeds)
                for _ in range(20):
                    try:
                        assert_close(self, s.run(None, feeds), expected)
                    except Exception as e:  # noqa: BLE001
                        failures.append(e)

            workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
            for w in workers:
                w.start()
            for w in workers:
                w.join()
            self.assertEqual(failures, [])

    def test_no_thread_is_started(self):
        """Four workers, and a session of ONNX Runtime without threads: they run one after another."""
        s = session(models.zoo("resnet18", "size=64"))
        before = len(os.listdir("/proc/self/task"))
        several = session(models.zoo("resnet18", "size=64"), threads="4")
        several.run(None, inputs_of(several, 1))
        self.assertEqual(len(os.listdir("/proc/self/task")), before)
        del s

    def test_a_run_that_is_terminated_leaves_the_session_usable(self):
        s = session(models.sum_and_relu())
        feeds = {"x": np.ones((1, 3), np.float32), "y": np.ones((1, 3), np.float32)}
        options = ort.RunOptions()
        options.terminate = True
        with self.assertRaisesRegex(Exception, "terminate"):
            s.run(["sum"], feeds, options)
        np.testing.assert_array_equal(s.run(["sum"], feeds)[0], 2 * np.ones((1, 3)))

    def test_misspelled_options_are_refused(self):
        for options, text in (
            ({"treads": "1"}, "did you mean threads"),
            ({"threads": "many"}, "expected a number"),
            ({"numerics": "loose"}, "expected default, strict or fast"),
            ({"dims": "batch"}, "NAME=SIZE"),
        ):
            with self.assertRaisesRegex(Exception, text):
                session(models.sum_and_relu(), **options)

    def test_sizes_outside_of_declared_ranges_are_refused(self):
        s = session(models.sum_and_relu(), dims="N=1..4:2")
        for n, fits in ((1, True), (4, True), (5, False)):
            feeds = {"x": np.ones((n, 3), np.float32), "y": np.ones((n, 3), np.float32)}
            if fits:
                np.testing.assert_array_equal(s.run(["sum"], feeds)[0], 2 * np.ones((n, 3)))
            else:
                with self.assertRaisesRegex(Exception, "5"):
                    s.run(["sum"], feeds)

    def test_the_library_is_registered_again(self):
        execution_provider.register()  # the second time
        self.assertEqual(len([d for d in ort.get_ep_devices() if d.ep_name == NAME]), 1)
        execution_provider.unregister()
        self.assertEqual([d for d in ort.get_ep_devices() if d.ep_name == NAME], [])
        execution_provider.register()
        s = session(models.sum_and_relu())
        np.testing.assert_array_equal(
            s.run(["sum"], {"x": np.ones((1, 3), np.float32), "y": np.ones((1, 3), np.float32)})[0], 2 * np.ones((1, 3))
        )

    @unittest.skipUnless(os.path.isdir(SHARED), "needs ../shared")
    def test_nodes_are_in_the_files_order(self):
        """Plans of this model depend on it, and with them the last bits of results."""
        path = os.path.join(SHARED, "gtcrn_stream_raw", "model.onnx")
        self.expect_bits_of_our_session(path, 1)

    @unittest.skipUnless(os.path.isdir(SHARED), "needs ../shared")
    def test_real_models_are_one_part_each(self):
        for name in ("silero_vad_16k_op15", "micro_kws_qdq", "byte_sb_bilstm"):
            with self.subTest(name):
                path = os.path.join(SHARED, name, "model.onnx")
                self.assertTrue(glob.glob(os.path.join(SHARED, name, "test_data_set_*")))
                self.assert_parts(session(path), 1)


if __name__ == "__main__":
    unittest.main()
