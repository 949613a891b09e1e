"""Files of compiled models, and shared libraries of operators."""

import os
import tempfile
import unittest

import numpy as np

import models
import tilewright as tw

LIBRARY = os.environ.get("TILEWRIGHT_OPERATOR_LIBRARY")
DETREND = os.path.join(os.path.dirname(__file__), "../../examples/detrend.onnx")


class CompiledFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "model.so")

    def test_give_the_bits_of_the_session_that_wrote_them(self):
        session = tw.compile(models.sum_and_relu(), output_file=self.file)
        loaded = tw.load(self.file, threads=1)
        self.assertEqual([i.name for i in loaded.get_inputs()], [i.name for i in session.get_inputs()])
        x, y = np.random.default_rng(0).standard_normal((2, 2, 3), np.float32)
        for a, b in zip(session(x, y), loaded(x, y)):
            np.testing.assert_array_equal(a, b)
        copied = tw.load(self.file, threads=1, copy_weights=True)
        np.testing.assert_array_equal(copied(x, y)[0], session(x, y)[0])
        named = tw.InferenceSession(self.file).run(None, {i.name: v for i, v in zip(loaded.get_inputs(), (x, y))})
        np.testing.assert_array_equal(named[0], session(x, y)[0])

    def test_take_no_options_of_a_compilation(self):
        tw.compile(models.sum_and_relu(), output_file=self.file)
        for option in ({"precision": "bf16"}, {"isa": "avx2"}, {"dims": {"n": 2}}, {"kv_cache": True}):
            with self.assertRaisesRegex(tw.InvalidArgument, "compiled already"):
                tw.load(self.file, **option)

    def test_that_are_none_are_refused(self):
        with open(self.file, "wb") as file:
            file.write(b"\x7fELF and nothing more")
        with self.assertRaisesRegex(tw.InvalidModel, "model.so"):
            tw.load(self.file)
        with self.assertRaises(tw.NoSuchFile):
            tw.load(self.file + ".gone")

    def test_call_operators_that_are_given_again(self):
        op = tw.Operator("com.example", "Own", lambda node, x: x * 10)
        x = np.array([1, -2, 3], np.float32)
        tw.compile(models.of_caller(then="Neg"), operators=[op], output_file=self.file)
        np.testing.assert_array_equal(tw.load(self.file, operators=[op])(x)[0], -10 * x)
        with self.assertRaisesRegex(tw.InvalidModel, "com.example.Own was not given"):
            tw.load(self.file)


@unittest.skipIf(LIBRARY is None, "TILEWRIGHT_OPERATOR_LIBRARY is not set")
class OperatorLibraries(unittest.TestCase):
    X = np.array([1, 2, 6, 9], np.float32)

    def check(self, session):
        np.testing.assert_allclose(session(self.X)[0], [-0.5, -1, 1 / 3, 1.5], rtol=1e-5)

    def test_have_operators_of_models_and_compiled_files(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "detrend.so")
            self.check(tw.compile(DETREND, operators=[LIBRARY], output_file=file))
            self.check(tw.load(file, operators=[LIBRARY]))

    def test_are_registered_as_in_onnx_runtime(self):
        options = tw.SessionOptions()
        options.register_custom_ops_library(LIBRARY)
        self.check(tw.InferenceSession(DETREND, options))
        self.assertEqual(tw.SessionOptions().operators, [])

    def test_that_are_none_are_refused(self):
        with self.assertRaisesRegex(tw.RuntimeException, "gone.so: no such library"):
            tw.compile(DETREND, operators=["gone.so"])
        with self.assertRaisesRegex(tw.InvalidArgument, "type int"):
            tw.compile(DETREND, operators=[1])


if __name__ == "__main__":
    unittest.main()
