"""tilewright.tune, and the option `tuned`."""

import tempfile
import unittest

import numpy as np

import models
import tilewright as tw


class Tuning(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.options = {"threads": 1, "cache_folder": folder.name}

    def test_reports_kernels_and_is_used(self):
        model = models.zoo("mlp")
        found = tw.tune(model, 10, **self.options)
        self.assertEqual(found.report["threads"], 1)
        self.assertTrue(found.report["kernels"])
        self.assertIn("candidates", repr(found))
        self.assertEqual(found.kept, found.report["kept"])
        plain = tw.compile(model, **self.options)
        tuned = tw.compile(model, tuned=True, **self.options)
        shape = [d if isinstance(d, int) else 2 for d in plain.get_inputs()[0].shape]
        x = np.random.default_rng(0).standard_normal(shape, np.float32)
        np.testing.assert_allclose(tuned(x)[0], plain(x)[0], rtol=1e-4, atol=1e-5)

    def test_what_cannot_be_tuned_raises(self):
        model = models.sum_and_relu()
        for option in ({"measure": True}, {"tuned": True}, {"orchestrate": "optimal"}):
            with self.assertRaises(tw.InvalidArgument):
                tw.tune(model, 1, **option, **self.options)
        with self.assertRaises(tw.Error):
            tw.tune(model, "soon", **self.options)
        with self.assertRaises(tw.InvalidArgument):
            tw.compile(model, layouts="columns", **self.options)

    def test_layouts_do_not_change_results(self):
        x, y = np.random.default_rng(0).standard_normal((2, 2, 3), np.float32)
        for layouts in ("rule", "none", "joint"):
            out = tw.compile(models.sum_and_relu(), layouts=layouts, **self.options)(x, y)[0]
            np.testing.assert_allclose(out, x + y, rtol=1e-6)


if __name__ == "__main__":
    unittest.main()
