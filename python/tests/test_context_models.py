"""EPContext models: ONNX models that hold what the execution provider has compiled."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import models
import test_execution_provider as provider
from test_execution_provider import NAME, cpu_session, inputs_of, ort, session

LOAD = """
import sys
import numpy as np
from test_execution_provider import execution_provider, session
execution_provider.register()
inputs = dict(np.load(sys.argv[1]))
for path in sys.argv[2:]:
    out = session(path, optimise=False, cache_folder=path + ".cache").run(None, inputs)
    np.savez(path + ".npz", *out)
"""


def context_session(path, to, embed=False, **options):
    """A session that writes the EPContext model `to`."""
    entries = {"ep.context_enable": "1", "ep.context_embed_mode": str(int(embed))}
    return session(path, optimise=False, entries={**entries, "ep.context_file_path": to}, **options)


def context_node(content, embed_mode, source=NAME, dtype=models.FLOAT):
    """A model with one EPContext node: y[N, 3] of x[N, 3]."""
    node = models.node(
        "EPContext", ["x"], ["y"], "com.microsoft", ep_cache_context=content, embed_mode=embed_mode, source=source
    )
    io = [models.value("x", models.FLOAT, ["N", 3])], [models.value("y", dtype, ["N", 3])]
    return models.model(models.graph([node], *io), domains={"com.microsoft": 1})


def relu():
    io = [models.value("x", models.FLOAT, ["N", 3])], [models.value("y", models.FLOAT, ["N", 3])]
    return models.model(models.graph([models.node("Relu", ["x"], ["y"])], *io))


@unittest.skipIf(ort is None, "onnxruntime is not installed")
class ContextModels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        provider.execution_provider.register()

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tilewright-context-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, data):
        with open(self.path(name), "wb") as f:
            f.write(data)
        return self.path(name)

    def compiled_relu(self):
        """An EPContext model with its region in relu_ctx_0.so beside it."""
        context_session(self.write("relu.onnx", relu()), self.path("relu_ctx.onnx"))
        return self.path("relu_ctx.onnx")

    def refused(self, model, text, **options):
        with self.assertRaisesRegex(Exception, text):
            session(model, **options)

    def test_a_new_process_loads_them_without_compiling(self):
        path = models.zoo("mlp", "batch=0")
        feeds = inputs_of(cpu_session(path), 3)
        expected = session(path, optimise=False, cache_folder=self.path("cache")).run(None, feeds)
        self.assertTrue(os.listdir(self.path("cache")))  # what a compilation keeps
        np.savez(self.path("inputs.npz"), **feeds)
        written = {}
        for embed in (True, False):
            to = self.path(f"embed_{embed}.onnx")
            for a, b in zip(context_session(path, to, embed).run(None, feeds), expected):
                self.assertEqual(a.tobytes(), b.tobytes())
            written[to] = os.path.getsize(to)
        self.assertLess(written[self.path("embed_False.onnx")], 10_000)
        self.assertGreater(os.path.getsize(self.path("embed_False_0.so")), 1_000_000)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", LOAD, self.path("inputs.npz"), *written], check=True, env=env)
        for to in written:
            out = np.load(to + ".npz")
            self.assertEqual([out[k].tobytes() for k in out], [e.tobytes() for e in expected])
            self.assertFalse(os.path.exists(to + ".cache"))

    @provider.needs_assignment
    def test_what_was_left_to_onnxruntime_stays_there(self):
        """Several regions, and between them nodes that could be compiled."""
        path = models.zoo("mlp", "batch=0")
        feeds = inputs_of(cpu_session(path), 3)
        to = self.path("m.onnx")
        written = context_session(path, to, True, exclude="Relu")
        loaded = session(to, optimise=False)
        (parts, left), (loaded_parts, loaded_left) = provider.taken(written), provider.taken(loaded)
        self.assertGreater(len(parts), 1)
        self.assertEqual((loaded_parts, loaded_left), ([1] * len(parts), left))
        for a, b in zip(loaded.run(None, feeds), written.run(None, feeds)):
            self.assertEqual(a.tobytes(), b.tobytes())

    def test_an_input_may_have_become_a_constant(self):
        """y = x + Shape(w): the shape was left, and is folded when the EPContext model is loaded."""
        graph = models.graph(
            [models.node("Shape", ["w"], ["c"]), models.node("Add", ["x", "c"], ["y"])],
            [models.value("x", models.INT64, ["N"]), models.value("w", models.FLOAT, [4])],
            [models.value("y", models.INT64, ["N"])],
        )
        to = self.path("m.onnx")
        context_session(self.write("source.onnx", models.model(graph)), to, exclude="Shape")
        for optimise in (False, True):
            y = session(to, optimise=optimise).run(None, {"x": np.array([5, 7]), "w": np.zeros(4, np.float32)})[0]
            np.testing.assert_array_equal(y, [9, 11])

    def test_the_compile_interface_makes_them_in_files_and_in_memory(self):
        x = {"x": np.array([[-1, 0, 2]], np.float32)}
        so = ort.SessionOptions()
        so.add_provider_for_devices([d for d in ort.get_ep_devices() if d.ep_name == NAME], {"cache_folder": "none"})
        embedded = ort.ModelCompiler(so, relu(), embed_compiled_data_into_model=True).compile_to_bytes()
        ort.ModelCompiler(so, self.write("relu.onnx", relu())).compile_to_file(self.path("out.onnx"))
        with open(self.path("out.onnx"), "rb") as f:
            in_memory = f.read()
        self.refused(in_memory, "beside the model, which is in memory")
        beside = {"ep.context_file_path": self.path("any.onnx")}
        for s in (session(embedded), session(self.path("out.onnx")), session(in_memory, entries=beside)):
            np.testing.assert_array_equal(s.run(None, x)[0], [[0, 0, 2]])
        with self.assertRaisesRegex(Exception, "no folder for its compiled regions"):
            ort.ModelCompiler(so, relu()).compile_to_bytes()

    def test_damaged_regions_are_refused(self):
        to, region = self.compiled_relu(), self.path("relu_ctx_0.so")
        with open(region, "rb") as f:
            good = f.read()
        flipped = bytearray(good)
        flipped[len(good) // 2] ^= 1
        for data, text in (
            (good[:-1], "cut off"),
            (good[: len(good) // 2], "cut off"),
            (bytes(flipped), "damaged"),
            (b"hello", "no compiled model"),
            (b"", "cannot read"),
        ):
            self.write("relu_ctx_0.so", data)
            self.refused(to, text)
        os.remove(region)
        self.refused(to, "does not exist")
        context_session(self.path("relu.onnx"), self.path("embedded.onnx"), True)
        with open(self.path("embedded.onnx"), "rb") as f:
            model = f.read()
        at = model.index(b"\x7fELF") + len(good) // 2
        self.refused(model[:at] + bytes([model[at] ^ 1]) + model[at + 1 :], "damaged")

    def test_a_path_does_not_leave_the_models_folder(self):
        self.compiled_relu()
        region = self.path("relu_ctx_0.so")
        os.mkdir(self.path("models"))
        os.symlink(region, self.path("models/link.so"))
        os.symlink(self.folder, self.path("models/folder"))
        for location, text in (
            ("../relu_ctx_0.so", "leaves the model's folder"),
            (region, "is absolute"),
            ("link.so", "symbolic link"),
            ("folder/relu_ctx_0.so", "symbolic link"),
            ("", "is empty"),
        ):
            self.refused(self.write("models/m.onnx", context_node(location, 0)), text)
        os.mkdir(self.path("models/below"))
        shutil.copy(region, self.path("models/below"))
        s = session(self.write("models/m.onnx", context_node("below/relu_ctx_0.so", 0)))
        np.testing.assert_array_equal(s.run(None, {"x": -np.ones((2, 3), np.float32)})[0], np.zeros((2, 3)))

    def test_nodes_of_other_providers_and_excluded_ones_are_left_alone(self):
        self.compiled_relu()
        self.refused(self.write("other.onnx", context_node("none.so", 0, "OtherExecutionProvider")), "(?i)not.impl")
        self.refused(self.path("relu_ctx.onnx"), "(?i)not.impl", exclude="EPContext")

    def test_a_region_needs_the_nodes_inputs_and_outputs(self):
        self.compiled_relu()
        model = context_node("relu_ctx_0.so", 0, dtype=models.INT64)
        self.refused(self.write("types.onnx", model), "'y' is not declared as the f32 of rank 2")
        context_session(self.write("two.onnx", models.sum_and_relu()), self.path("two_ctx.onnx"))
        self.refused(self.write("count.onnx", context_node("two_ctx_0.so", 0)), "has 1 values, and was compiled with 2")

    def test_their_metadata_says_where_they_can_be_loaded(self):
        from onnxruntime.capi import _pybind_state as capi

        keys = session(self.compiled_relu()).get_modelmeta().custom_metadata_map
        devices = [d for d in ort.get_ep_devices() if d.ep_name == NAME]
        fits = capi.OrtCompiledModelCompatibility
        good = keys["ep_compatibility_info." + NAME]
        self.assertEqual(capi.get_model_compatibility_for_ep_devices(devices, good), fits.EP_SUPPORTED_OPTIMAL)
        other_version, other_cpu = good.replace("version=", "version=9"), good.replace("arch=", "arch=no")
        for text in (other_version, other_cpu, good + ",no-such-feature", "x"):
            with self.subTest(text):
                found = capi.get_model_compatibility_for_ep_devices(devices, text)
                self.assertEqual(found, fits.EP_UNSUPPORTED)

    def test_they_are_not_compiled_again(self):
        with self.assertRaises(Exception):
            context_session(self.compiled_relu(), self.path("again.onnx"))

    @unittest.skipUnless(os.uname().machine == "x86_64", "x86 only")
    def test_regions_for_other_cpus_are_refused(self):
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            if "avx512bw" in f.read():
                self.skipTest("this CPU has AVX-512")
        path, to = self.write("relu.onnx", relu()), self.path("wide.onnx")
        s = context_session(path, to, isa="avx512")
        with self.assertRaisesRegex(Exception, "instructions that this CPU does not have"):
            s.run(None, {"x": np.ones((1, 3), np.float32)})
        self.refused(to, "does not have avx512|not supported")
        # Without what ONNX Runtime keeps about the whole model, the region itself is refused.
        self.refused(self.write("m.onnx", context_node("wide_0.so", 0)), "does not have avx512")
        context_session(path, self.path("narrow.onnx"), isa="avx2")
        session(self.path("narrow.onnx"))


if __name__ == "__main__":
    unittest.main()
