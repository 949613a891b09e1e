"""ONNX Runtime's documented calls: sessions, IO binding, OrtValue. The same tests run against ONNX Runtime itself, if it
is installed, so that both agree."""

import ctypes
import importlib
import os
import threading
import unittest
import warnings

import numpy as np

import models


def runtime(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
Y = np.array([[1, 1, 1], [2, 2, 2]], np.float32)
SUM = X + Y
POSITIVE = np.maximum(SUM, 0)


class Calls:
    """Of a runtime `ort`."""

    ort = None

    def setUp(self):
        if self.ort is None:
            self.skipTest("not installed")

    def session(self, data=None, options=None):
        data = models.sum_and_relu() if data is None else data
        return self.ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    # --- sessions

    def test_run_returns_the_requested_outputs_in_order(self):
        s = self.session()
        for names in (None, [], ["sum", "positive"]):
            total, positive = s.run(names, {"x": X, "y": Y})
            np.testing.assert_array_equal(total, SUM)
            np.testing.assert_array_equal(positive, POSITIVE)
            self.assertEqual(total.dtype, np.float32)
        positive, total = s.run(["positive", "sum"], {"y": Y, "x": X})
        np.testing.assert_array_equal(positive, POSITIVE)
        np.testing.assert_array_equal(total, SUM)
        self.assertEqual(len(s.run(["positive"], {"x": X, "y": Y})), 1)

    def test_sessions_are_made_of_paths_and_bytes(self):
        path = os.path.join(models.folder(), f"{self.ort.__name__}.onnx")
        with open(path, "wb") as f:
            f.write(models.sum_and_relu())
        for source in (path, models.sum_and_relu()):
            total = self.ort.InferenceSession(source).run(["sum"], {"x": X, "y": Y})[0]
            np.testing.assert_array_equal(total, SUM)
        with self.assertRaises(TypeError):
            self.ort.InferenceSession(5)

    def test_inputs_and_outputs_are_described(self):
        s = self.session()
        self.assertEqual(
            [(a.name, a.type, a.shape) for a in s.get_inputs()],
            [("x", "tensor(float)", ["N", 3]), ("y", "tensor(float)", [None, 3])],
        )
        # ONNX Runtime gives the shapes that the file declares for outputs. Tilewright infers them: y's rows may be more.
        self.assertEqual([(a.name, a.type) for a in s.get_outputs()], [(n, "tensor(float)") for n in ("sum", "positive")])
        for output in s.get_outputs():
            self.assertIn(output.shape, (["N", 3], [None, 3]))

    def test_model_metadata(self):
        meta = self.session().get_modelmeta()
        self.assertEqual(meta.producer_name, "me")
        self.assertEqual(meta.graph_name, "g")
        self.assertEqual(meta.domain, "org.example")
        self.assertEqual(meta.description, "about")
        self.assertEqual(meta.version, 3)
        self.assertEqual(meta.custom_metadata_map, {"author": "them", "k": "v"})

    def test_providers(self):
        s = self.session()
        self.assertEqual(s.get_providers(), ["CPUExecutionProvider"])
        self.assertIn("CPUExecutionProvider", self.ort.get_available_providers())
        self.assertIn("CUDAExecutionProvider", self.ort.get_all_providers())
        self.assertEqual(self.ort.get_device(), "CPU")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            s = self.ort.InferenceSession(
                models.sum_and_relu(), providers=["CUDAExecutionProvider", ("CPUExecutionProvider", {})]
            )
        self.assertTrue(any("CUDAExecutionProvider" in str(w.message) for w in caught))
        self.assertEqual(s.get_providers(), ["CPUExecutionProvider"])

    def test_lists_and_arrays_that_are_not_dense_are_accepted(self):
        s = self.session()
        np.testing.assert_array_equal(s.run(["sum"], {"x": X.tolist(), "y": Y})[0], SUM)
        wide = np.zeros((4, 6), np.float32)
        wide[::2, ::2] = X
        np.testing.assert_array_equal(s.run(["sum"], {"x": wide[::2, ::2], "y": Y})[0], SUM)
        np.testing.assert_array_equal(s.run(["sum"], {"x": np.asfortranarray(X), "y": Y})[0], SUM)
        read_only = X.copy()
        read_only.flags.writeable = False
        np.testing.assert_array_equal(s.run(["sum"], {"x": read_only, "y": Y})[0], SUM)

    def test_wrong_calls_raise(self):
        s = self.session()
        for feeds in (
            {"x": X.astype(np.float64), "y": Y},
            {"x": X},
            {"x": X, "y": Y, "z": X},
            {"x": np.ones((2, 4), np.float32), "y": Y},
            {"x": X[0], "y": Y},
        ):
            with self.assertRaises(Exception):
                s.run(None, feeds)
        with self.assertRaises(Exception):
            s.run(["none"], {"x": X, "y": Y})
        with self.assertRaises(Exception):
            self.ort.InferenceSession("no/such/file.onnx")
        with self.assertRaises(Exception):
            self.ort.InferenceSession(b"no model")
        np.testing.assert_array_equal(s.run(["sum"], {"x": X, "y": Y})[0], SUM)

    def test_shapes_vary_from_run_to_run(self):
        s = self.session(models.nonzero())
        for n in (5, 0, 17, 3):
            x = (np.arange(n) % 3).astype(np.float32)
            y = s.run(None, {"x": x})[0]
            self.assertEqual(y.dtype, np.int64)
            np.testing.assert_array_equal(y, np.array(np.nonzero(x)))

    def test_several_threads_run_one_session(self):
        s = self.session()
        wrong = []

        def work(k):
            x = np.full((k % 5 + 1, 3), k, np.float32)
            for _ in range(50):
                if not (s.run(["sum"], {"x": x, "y": x})[0] == 2 * k).all():
                    wrong.append(k)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_outputs_stay_valid_after_later_runs_and_the_session(self):
        s = self.session()
        first = s.run(["sum"], {"x": X, "y": Y})[0]
        s.run(["sum"], {"x": X * 9, "y": Y})
        del s
        np.testing.assert_array_equal(first, SUM)
        first += 1  # writable

    # --- options

    def test_session_options(self):
        o = self.ort.SessionOptions()
        self.assertEqual(o.intra_op_num_threads, 0)
        self.assertEqual(o.graph_optimization_level, self.ort.GraphOptimizationLevel.ORT_ENABLE_ALL)
        o.intra_op_num_threads = 1
        o.inter_op_num_threads = 1
        o.execution_mode = self.ort.ExecutionMode.ORT_SEQUENTIAL
        o.graph_optimization_level = self.ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        o.log_severity_level = 3
        o.enable_mem_pattern = False
        o.enable_cpu_mem_arena = False
        o.add_session_config_entry("session.set_denormal_as_zero", "1")
        self.assertEqual(o.get_session_config_entry("session.set_denormal_as_zero"), "1")
        o.add_free_dimension_override_by_name("N", 2)
        s = self.session(options=o)
        self.assertEqual(s.get_inputs()[0].shape, [2, 3])
        np.testing.assert_array_equal(s.run(["sum"], {"x": X, "y": Y})[0], SUM)
        with self.assertRaises(Exception):
            s.run(["sum"], {"x": X[:1], "y": Y[:1]})
        self.assertEqual(s.get_session_options().intra_op_num_threads, 1)

    def test_a_terminated_run_raises(self):
        s = self.session()
        options = self.ort.RunOptions()
        self.assertFalse(options.terminate)
        options.terminate = True
        with self.assertRaises(Exception):
            s.run(None, {"x": X, "y": Y}, options)
        options.terminate = False
        np.testing.assert_array_equal(s.run(["sum"], {"x": X, "y": Y}, options)[0], SUM)

    # --- OrtValue

    def test_ortvalues_share_memory_with_arrays(self):
        x = X.copy()
        v = self.ort.OrtValue.ortvalue_from_numpy(x)
        self.assertEqual(v.data_ptr(), x.ctypes.data)
        self.assertEqual(v.shape(), [2, 3])
        self.assertEqual(v.data_type(), "tensor(float)")
        self.assertEqual(v.element_type(), models.FLOAT)
        self.assertEqual(v.device_name(), "cpu")
        self.assertEqual(v.tensor_size_in_bytes(), 24)
        self.assertTrue(v.is_tensor() and v.has_value())
        self.assertFalse(v.is_sparse_tensor() or v.is_tensor_sequence())
        v.update_inplace(Y)
        np.testing.assert_array_equal(x, Y)
        np.testing.assert_array_equal(v.numpy(), Y)
        with self.assertRaises(Exception):
            v.update_inplace(np.zeros((5, 5), np.float32))

    def test_ortvalues_of_a_shape_and_type(self):
        v = self.ort.OrtValue.ortvalue_from_shape_and_type([3, 2], np.int64)
        self.assertEqual((v.shape(), v.data_type()), ([3, 2], "tensor(int64)"))
        v.update_inplace(np.arange(6, dtype=np.int64).reshape(3, 2))
        np.testing.assert_array_equal(v.numpy().ravel(), np.arange(6))
        self.assertEqual(
            self.ort.OrtValue.ortvalue_from_shape_and_type([1], models.FLOAT, "cpu", 0).element_type(), models.FLOAT
        )

    def test_ortvalues_run(self):
        s = self.session()
        x, y = (self.ort.OrtValue.ortvalue_from_numpy(a) for a in (X, Y))
        np.testing.assert_array_equal(s.run(["sum"], {"x": x, "y": y})[0], SUM)
        total, positive = s.run_with_ort_values(None, {"x": x, "y": y})
        np.testing.assert_array_equal(total.numpy(), SUM)
        np.testing.assert_array_equal(positive.numpy(), POSITIVE)

    def test_ortvalues_and_dlpack(self):
        v = self.ort.OrtValue.ortvalue_from_numpy(X.copy())
        self.assertEqual(v.__dlpack_device__(), (1, 0))
        array = np.from_dlpack(v)
        self.assertEqual(array.ctypes.data, v.data_ptr())
        back = self.ort.OrtValue.from_dlpack(v)
        self.assertEqual(back.data_ptr(), v.data_ptr())
        self.assertEqual(back.shape(), [2, 3])
        flags = np.array([True, False])
        self.assertEqual(self.ort.OrtValue.from_dlpack(flags).data_type(), "tensor(bool)")
        capsule = self.ort.OrtValue.from_dlpack(X.copy().__dlpack__())
        np.testing.assert_array_equal(capsule.numpy(), X)

    # --- IO binding

    def test_binding_arrays_and_names(self):
        s = self.session()
        b = s.io_binding()
        b.bind_cpu_input("x", X)
        b.bind_cpu_input("y", Y)
        b.bind_output("positive")
        b.bind_output("sum")
        s.run_with_iobinding(b)
        positive, total = b.copy_outputs_to_cpu()
        np.testing.assert_array_equal(positive, POSITIVE)
        np.testing.assert_array_equal(total, SUM)
        self.assertEqual([v.shape() for v in b.get_outputs()], [[2, 3], [2, 3]])

    def test_binding_ortvalues(self):
        s = self.session()
        b = s.io_binding()
        out = self.ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, "cpu", 0)
        b.bind_ortvalue_input("x", self.ort.OrtValue.ortvalue_from_numpy(X))
        b.bind_ortvalue_input("y", self.ort.OrtValue.ortvalue_from_numpy(Y))
        b.bind_ortvalue_output("sum", out)
        for scale in (1, 2):
            b.bind_ortvalue_input("x", self.ort.OrtValue.ortvalue_from_numpy(X * scale))
            s.run_with_iobinding(b)
            np.testing.assert_array_equal(out.numpy(), X * scale + Y)
        self.assertEqual(b.get_outputs()[0].data_ptr(), out.data_ptr())

    def test_binding_addresses(self):
        s = self.session()
        x, y, out = X.copy(), Y.copy(), np.zeros((2, 3), np.float32)
        b = s.io_binding()
        for name, array in (("x", x), ("y", y)):
            b.bind_input(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
        b.bind_output("sum", "cpu", 0, np.float32, out.shape, out.ctypes.data)
        s.run_with_iobinding(b)
        np.testing.assert_array_equal(out, SUM)
        x += 1
        s.run_with_iobinding(b)
        np.testing.assert_array_equal(out, SUM + 1)

    def test_binding_refuses_what_does_not_fit(self):
        s = self.session()
        b = s.io_binding()
        with self.assertRaises(Exception):
            b.bind_cpu_input("none", X)
        b.bind_cpu_input("x", X)
        b.bind_cpu_input("y", Y)
        with self.assertRaises(Exception):
            s.run_with_iobinding(b)  # no output is bound
        b.bind_ortvalue_output("sum", self.ort.OrtValue.ortvalue_from_shape_and_type([1, 3], np.float32))
        with self.assertRaises(Exception):
            s.run_with_iobinding(b)
        b.clear_binding_outputs()
        b.bind_output("sum")
        s.run_with_iobinding(b)
        np.testing.assert_array_equal(b.copy_outputs_to_cpu()[0], SUM)
        b.clear_binding_outputs()
        self.assertEqual(b.get_outputs(), [])
        b.clear_binding_inputs()

    def test_an_output_bound_to_its_input(self):
        s = self.session(models.transposed())
        x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
        expected = x.T.copy()
        v = self.ort.OrtValue.ortvalue_from_shape_and_type([64, 64], np.float32)
        ctypes.memmove(v.data_ptr(), x.ctypes.data, x.nbytes)
        b = s.io_binding()
        b.bind_ortvalue_input("x", v)
        b.bind_output("y")
        s.run_with_iobinding(b)
        np.testing.assert_array_equal(b.copy_outputs_to_cpu()[0], expected)


class TilewrightCalls(Calls, unittest.TestCase):
    ort = runtime("tilewright")


class OnnxRuntimeCalls(Calls, unittest.TestCase):
    ort = runtime("onnxruntime")


if __name__ == "__main__":
    unittest.main()
