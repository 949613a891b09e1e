"""Operators that Python functions or functions of ONNX files define."""

import gc
import os
import threading
import unittest
import weakref

import numpy as np

import models
import tilewright as tw

X = np.array([1, -2, 3], np.float32)


def own(compute, infer=None, **options):
    return tw.Operator("com.example", "Own", compute, infer, **options)


def run(model, op, feeds=None):
    return tw.compile(model, operators=[op]).run(None, feeds or {"x": X})[0]


class PythonOperators(unittest.TestCase):
    def error(self, op, model=None, feeds=None):
        with self.assertRaises(tw.InvalidModel) as raised:
            run(model or models.of_caller(), op, feeds)
        self.assertIn("node 'Own_", raised.exception.message)
        return raised.exception.message

    def test_computes_with_arrays(self):
        y = run(models.of_caller(then="Neg"), own(lambda node, x: x * 10))
        np.testing.assert_array_equal(y, -10 * X)

    def test_has_sizes_that_follow_from_inputs(self):
        def infer(node, x):
            self.assertEqual(x.dtype, np.float32)
            return x.dtype, ((x.shape[0] * node.attribute("times") + 4 - 2) // 2,)

        def compute(node, x):
            return np.resize(x, (x.size * node.attribute("times") + 2) // 2)

        session = tw.compile(models.of_caller(times=3), operators=[own(compute, infer)])
        for n in (1, 2, 7):
            self.assertEqual(session(np.ones(n, np.float32))[0].shape, ((3 * n + 2) // 2,))

    def test_has_sizes_that_the_data_gives(self):
        op = own(lambda node, x: x[x > 0], lambda node, x: (x.dtype, (None,)))
        session = tw.compile(models.of_caller(then="Exp"), operators=[op])
        np.testing.assert_allclose(session(X)[0], np.exp(X[X > 0]), rtol=1e-6)
        self.assertEqual(session(-X[:1])[0].shape, (0,))

    def test_reads_attributes_and_optional_inputs(self):
        seen = []

        def compute(node, *inputs):
            seen.append((node.attribute("mode"), node.attribute("none", 5), node.name, [i is None for i in inputs]))
            return inputs[0]

        run(models.of_caller(("x", "", "x"), mode="fast"), own(compute))
        self.assertEqual(seen, [("fast", 5, "Own_y", [False, True, False])])

    def test_knows_other_types(self):
        y = run(models.of_caller(dtype=models.INT64), own(lambda node, x: x + 1), {"x": np.array([4, 5])})
        np.testing.assert_array_equal(y, [5, 6])
        y = run(models.of_caller(dtype=models.BFLOAT16), own(lambda node, x: x[::-1]), {"x": np.array([1, 2], np.uint16)})
        np.testing.assert_array_equal(y.view(np.uint16), [2, 1])  # bits, or ml_dtypes.bfloat16

    def test_raises_what_the_functions_raise(self):
        def fails(node, x):
            raise ValueError("not today")

        self.assertIn("(com.example.Own): ValueError: not today", self.error(own(fails)))
        self.assertIn("ValueError: not today", self.error(own(lambda node, x: x, fails)))

    def test_checks_what_the_functions_return(self):
        text = "does not have the type and sizes that infer gave"
        self.assertIn(text, self.error(own(lambda node, x: x[1:])))
        self.assertIn(text, self.error(own(lambda node, x: x.astype(np.float64))))
        self.assertIn("2 arrays are returned for 1 outputs", self.error(own(lambda node, x: [x, x])))
        self.assertIn("elements of type complex64", self.error(own(lambda node, x: x * np.complex64(1j))))
        self.assertIn("TypeError", self.error(own(lambda node, x: x, lambda node, x: 3)))
        with self.assertRaises(tw.InvalidArgument):
            tw.compile(models.of_caller(), operators=[len])
        with self.assertRaises(tw.InvalidModel):
            tw.compile(models.of_caller())

    def test_is_called_by_several_threads(self):
        session = tw.compile(models.of_caller(), operators=[own(lambda node, x: x * 2)])
        wrong = []

        def work(k):
            for n in range(1, 30):
                if not (session(np.full(n, k, np.float32))[0] == 2 * k).all():
                    wrong.append(k)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_is_freed_with_its_session(self):
        class Held:
            pass

        held = Held()
        seen = weakref.ref(held)
        session = tw.compile(models.of_caller(), operators=[own(lambda node, x, held=held: x)])
        del held
        session(X)
        self.assertIsNotNone(seen())
        del session
        gc.collect()
        self.assertIsNone(seen())

    def test_keeps_no_call(self):
        kept = []

        def compute(node, x):
            kept.append((node, x))
            return x

        run(models.of_caller(), own(compute))
        np.testing.assert_array_equal(kept[0][1], X)
        with self.assertRaises(RuntimeError):
            kept[0][0].name


class FunctionLibraries(unittest.TestCase):
    def test_define_operators(self):
        library = models.function_library()
        path = os.path.join(models.folder(), "functions.onnx")
        with open(path, "wb") as file:
            file.write(library)
        for functions in (library, path):
            session = tw.compile(models.of_caller(), functions=[functions])
            np.testing.assert_array_equal(session(X)[0], 2 * X)
        options = tw.SessionOptions()
        options.functions = [path]
        np.testing.assert_array_equal(tw.InferenceSession(models.of_caller(), options).run(None, {"x": X})[0], 2 * X)

    def test_name_their_errors(self):
        with self.assertRaises(tw.InvalidModel) as raised:
            tw.compile(models.of_caller(), functions=[models.negated(models.FLOAT)])
        self.assertIn("<functions 0>: the file defines no functions", raised.exception.message)
        with self.assertRaises(tw.RuntimeException):
            tw.compile(models.of_caller(), functions=["no/such.onnx"])


if __name__ == "__main__":
    unittest.main()
