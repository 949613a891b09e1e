"""tilewright.cluster: jobs on several machines, some of which are lost."""

import importlib.util
import os
import re
import stat
import tempfile
import unittest

import models
from tilewright import Error, InvalidArgument, cluster

TOOL = os.environ.get("TILEWRIGHT_TOOL")


def rows(table):
    """The kernels of a table, without what whole runs decide."""
    lines = table.splitlines()
    begin = next(k for k, line in enumerate(lines) if line.lstrip().startswith("calls"))
    return [line.split()[:3] for line in lines[begin + 1:] if line.startswith("  ")]


@unittest.skipUnless(TOOL, "the command-line tool is not built")
class Cluster(unittest.TestCase):
    BUDGET = 40

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.model = models.zoo("mlp")

    def tuned(self, executor, database):
        self.addCleanup(executor.close)
        return cluster.tune(self.model, self.BUDGET, executor, options=["--threads", "1"],
                            database=os.path.join(self.folder, database))

    def script(self, text):
        """A program in place of the tool on machines that measure."""
        path = os.path.join(self.folder, "machine")
        with open(path, "w") as file:
            file.write(f"#!/bin/bash\n{text}\n")
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return path

    def test_many_machines_find_the_plan_of_one(self):
        one = self.tuned(cluster.LocalExecutor(1, arguments=["--estimates"]), "one.db")
        many = self.tuned(cluster.LocalExecutor(3, arguments=["--estimates"]), "many.db")
        self.assertIn("(0 failed, 0 wrong, ", one)
        self.assertTrue(rows(one))
        self.assertEqual(rows(one), rows(many))

    def test_candidates_are_measured(self):
        table = self.tuned(cluster.LocalExecutor(), "measured.db")
        candidates, recalled = map(int, re.search(r" (\d+) candidates .* (\d+) recalled", table).groups())
        self.assertEqual(candidates, recalled)
        self.assertGreater(candidates, self.BUDGET // 2)  # some CPUs have fewer different ones than the budget
        self.assertLessEqual(candidates, self.BUDGET)

    def test_a_lost_job_is_measured_again(self):
        lost = os.path.join(self.folder, "lost")
        machine = self.script(f'if [ ! -e "{lost}" ]; then touch "{lost}"; kill -9 $$; fi; exec "{TOOL}" "$@" --estimates')
        table = self.tuned(cluster.LocalExecutor(2, tool=machine), "again.db")
        self.assertTrue(os.path.exists(lost))
        self.assertEqual(rows(table), rows(self.tuned(cluster.LocalExecutor(1, arguments=["--estimates"]), "one.db")))

    def test_a_job_that_always_fails_ends_with_its_message(self):
        machine = self.script('echo "error: no compiler here" >&2; exit 1')
        with self.assertRaisesRegex(Error, "no compiler here"):
            self.tuned(cluster.LocalExecutor(tool=machine), "failed.db")

    def test_the_same_call_again_measures_nothing(self):
        self.tuned(cluster.LocalExecutor(1, arguments=["--estimates"]), "one.db")
        machine = self.script('exit 1')
        self.tuned(cluster.LocalExecutor(tool=machine), "one.db")

    @unittest.skipUnless(importlib.util.find_spec("ray"), "Ray is not installed")
    def test_three_nodes_of_ray_one_of_which_is_lost(self):
        import ray
        from ray.cluster_utils import Cluster as RayCluster

        nodes = RayCluster(initialize_head=True, head_node_args={"num_cpus": 1})
        self.addCleanup(nodes.shutdown)
        resources = {cluster.RESOURCE: 1}
        members = [nodes.add_node(num_cpus=1, resources=resources) for _ in range(3)]
        nodes.wait_for_nodes()
        begun = os.path.join(self.folder, "begun")
        machine = self.script(f'touch "{begun}"; sleep 0.2; exec "{TOOL}" "$@"')
        ray.init(address=nodes.address, log_to_driver=False)
        self.addCleanup(ray.shutdown)
        executor = cluster.RayExecutor(tool=machine, arguments=["--estimates"])
        self.assertEqual(executor.slots, 3)
        submitted = executor.submit

        def submit(job):
            handle = submitted(job)
            if members and os.path.exists(begun):
                nodes.remove_node(members.pop(), allow_graceful=False)
                members.clear()
            return handle

        executor.submit = submit
        table = self.tuned(executor, "ray.db")
        self.assertEqual(members, [], "a node was lost")
        self.assertEqual(rows(table), rows(self.tuned(cluster.LocalExecutor(1, arguments=["--estimates"]), "one.db")))

    @unittest.skipUnless(importlib.util.find_spec("ray"), "Ray is not installed")
    def test_a_cluster_without_machines_is_refused(self):
        import ray

        ray.init(num_cpus=1, log_to_driver=False)
        self.addCleanup(ray.shutdown)
        with self.assertRaisesRegex(InvalidArgument, "resource 'tilewright'"):
            cluster.RayExecutor()

    @unittest.skipUnless(importlib.util.find_spec("distributed"), "Dask is not installed")
    def test_workers_of_dask(self):
        from distributed import LocalCluster

        workers = LocalCluster(n_workers=2, threads_per_worker=1, resources={cluster.RESOURCE: 1}, processes=False,
                               dashboard_address=None)
        self.addCleanup(workers.close)
        executor = cluster.DaskExecutor(workers.scheduler_address, arguments=["--estimates"])
        self.assertEqual(executor.slots, 2)
        table = self.tuned(executor, "dask.db")
        self.assertEqual(rows(table), rows(self.tuned(cluster.LocalExecutor(1, arguments=["--estimates"]), "one.db")))


if __name__ == "__main__":
    unittest.main()
