"""Tunes a model on many machines: this process plans and commits, others measure.

    python -m tilewright.cluster model.onnx --budget 1000 --executor ray --address auto

`tilewright tune --jobs` prints rounds of candidates, `tilewright measure` measures them on any machine of the same kind,
and `tilewright db merge` keeps the results. All three are stateless but for the tuning database, which this process alone
writes: a machine that is lost costs the job that it had. A machine measures one job at a time, also for several callers. The tool must
be on every machine, and this package where Ray or Dask call it.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import fcntl
import os
import subprocess
import sys
import tempfile
from typing import Any, Callable, Iterable, Protocol

from ._errors import InvalidArgument, RuntimeException

#: Ray's and Dask's name of what a machine has one of: `ray start --resources '{"tilewright": 1}'`,
#: `dask worker --resources tilewright=1`.
RESOURCE = "tilewright"
_ATTEMPTS = 3


def default_tool() -> str:
    """The command-line tool: TILEWRIGHT_TOOL, else `tilewright` of PATH."""
    return os.environ.get("TILEWRIGHT_TOOL", "tilewright")


def measure(job: str, tool: str, arguments: Iterable[str] = ()) -> str:
    """Runs one job on this machine, alone: the records, a line each. Raises RuntimeError with the tool's message."""
    lock = os.path.join(tempfile.gettempdir(), f"tilewright-measure-{os.getuid()}.lock")
    with open(os.open(lock, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600), "r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = subprocess.run([tool, "measure", "-", *arguments], input=job, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"'{tool} measure' ended with status {done.returncode}")
    return done.stdout


class Executor(Protocol):
    """Where jobs run. `submit` returns a handle; `first` waits for one of them."""

    slots: int  #: jobs that run at a time

    def submit(self, job: str) -> Any: ...

    def first(self, handles: list[Any]) -> tuple[Any, Callable[[], str]]:
        """A finished handle, and a function that returns its records or raises."""

    def close(self) -> None: ...


class LocalExecutor:
    """Processes of this machine, of which one works and the others wait: for tests, and for a single machine."""

    def __init__(self, slots: int = 1, tool: str | None = None, arguments: Iterable[str] = ()):
        self.slots = slots
        self._run = (tool or default_tool(), tuple(arguments))
        self._pool = concurrent.futures.ThreadPoolExecutor(slots)

    def submit(self, job: str) -> Any:
        return self._pool.submit(measure, job, *self._run)

    def first(self, handles: list[Any]) -> tuple[Any, Callable[[], str]]:
        done = concurrent.futures.wait(handles, return_when=concurrent.futures.FIRST_COMPLETED).done
        handle = next(h for h in handles if h in done)
        return handle, handle.result

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class RayExecutor:
    """The nodes of a Ray cluster that have the resource `tilewright`. A job of a lost node runs on another one."""

    def __init__(self, address: str | None = None, tool: str | None = None, arguments: Iterable[str] = ()):
        import ray

        self._ray = ray
        self._run = (tool or default_tool(), tuple(arguments))
        self._started = not ray.is_initialized()
        if self._started:
            ray.init(address=address, log_to_driver=False, logging_level="warning")
        self.slots = int(ray.cluster_resources().get(RESOURCE, 0))
        if self.slots == 0:
            raise InvalidArgument("no node of the Ray cluster has the resource 'tilewright'",
                                  "start nodes with `ray start --resources '{\"tilewright\": 1}'`")
        self._measure = ray.remote(num_cpus=0, resources={RESOURCE: 1}, max_retries=_ATTEMPTS)(measure)

    def submit(self, job: str) -> Any:
        return self._measure.remote(job, *self._run)

    def first(self, handles: list[Any]) -> tuple[Any, Callable[[], str]]:
        done, _ = self._ray.wait(handles, num_returns=1)
        return done[0], lambda: self._ray.get(done[0])

    def close(self) -> None:
        if self._started:
            self._ray.shutdown()


class DaskExecutor:
    """The workers of a Dask cluster that have the resource `tilewright`."""

    def __init__(self, address: str | None = None, tool: str | None = None, arguments: Iterable[str] = ()):
        import distributed

        self._distributed = distributed
        self._run = (tool or default_tool(), tuple(arguments))
        self._client = distributed.Client(address)
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        self.slots = int(sum(w.get("resources", {}).get(RESOURCE, 0) for w in workers))
        if self.slots == 0:
            self._client.close()
            raise InvalidArgument("no worker of the Dask cluster has the resource 'tilewright'",
                                  "start workers with `dask worker --resources tilewright=1`")

    def submit(self, job: str) -> Any:
        return self._client.submit(measure, job, *self._run, pure=False, retries=_ATTEMPTS, resources={RESOURCE: 1})

    def first(self, handles: list[Any]) -> tuple[Any, Callable[[], str]]:
        done = self._distributed.wait(handles, return_when="FIRST_COMPLETED").done
        handle = next(h for h in handles if h in done)
        return handle, handle.result

    def close(self) -> None:
        self._client.close()


EXECUTORS: dict[str, Callable[..., Executor]] = {"local": LocalExecutor, "ray": RayExecutor, "dask": DaskExecutor}


def _called(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeException(f"'{' '.join(command[:2])}': {done.stderr.strip()}")
    return done.stdout


def tune(model: str, budget: int, executor: Executor, *, options: Iterable[str] = (), database: str | None = None,
         tool: str | None = None, progress: Callable[[str], None] | None = None) -> str:
    """Tunes the file `model` with a budget of candidates, and returns the table of `tilewright tune`.

    `options` are further ones of `tilewright tune` (--threads, --dim, ...). `database`: the tuning database, by default
    the user's. The plan is that of one machine with the same times. Whole runs are compared on this machine. The same
    call continues after an interrupt. A job that fails three times ends the tuning with its message.
    """
    tool = tool or default_tool()
    where = ["--database", database] if database else []
    command = [tool, "tune", model, "--budget", str(budget), *options, *where]
    running: dict[Any, str] = {}
    attempts: dict[str, int] = {}
    measured = 0
    while True:
        known = set(running.values())
        found = []
        if len(running) < 2 * executor.slots:  # a machine that ends a job has the next one at once
            lines = _called([*command, "--jobs", str(len(running) + 2 * executor.slots)]).splitlines()
            found = [line for line in lines if line not in known]
        for line in found:
            running[executor.submit(line)] = line
        if not running:
            return _called(command)
        handle, result = executor.first(list(running))
        line = running.pop(handle)
        try:
            records = result()
        except Exception as error:
            attempts[line] = attempts.get(line, 0) + 1
            if attempts[line] >= _ATTEMPTS:
                raise RuntimeException(f"a job failed {_ATTEMPTS} times: {error}") from error
            running[executor.submit(line)] = line
            continue
        _commit(tool, database, records)
        measured += len(records.splitlines())
        if progress:
            progress(f"{measured} candidates measured, {len(running)} jobs under way")


def _commit(tool: str, database: str | None, records: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write(records)
        file.flush()
        _called([tool, "db", "merge", file.name, *(["--db", database] if database else [])])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tilewright.cluster", description=__doc__.split("\n", 1)[0])
    parser.add_argument("model")
    parser.add_argument("--budget", type=int, default=1000, help="candidates (1000)")
    parser.add_argument("--executor", choices=sorted(EXECUTORS), default="local")
    parser.add_argument("--address", help="of the Ray or Dask cluster")
    parser.add_argument("--database", help="the tuning database (the user's)")
    parser.add_argument("--tool", help="the command-line tool, on every machine (TILEWRIGHT_TOOL, or that of PATH)")
    given, options = parser.parse_known_args(arguments)
    where = {} if given.executor == "local" else {"address": given.address}
    executor = EXECUTORS[given.executor](tool=given.tool, **where)
    try:
        table = tune(given.model, given.budget, executor, options=options, database=given.database, tool=given.tool,
                     progress=lambda text: print(text, file=sys.stderr))
    finally:
        executor.close()
    print(table, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
