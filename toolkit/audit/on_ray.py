"""Shard tasks on a Ray cluster: the same kernel on many machines, few tasks under way, a status for every shard.

Ray is told to try nothing again by itself: it would ask a task that takes more memory than there is for ever. A worker
that dies and a storage that does not answer are met with a few more tries, and what then has no answer is a fault of
its shard: the audit goes on, and is incomplete.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from toolkit.audit.shard_facts import ShardStatus, ShardTask, facts_of_shard
from toolkit.audit.stored_shards import facts_at_hand, facts_of_stored_shard
from toolkit.audit.workers import cores
from toolkit.contract import Contract
from toolkit.errors import ConfigError, TokenproofError, UnreachableError
from toolkit.vocabulary import Vocabulary, load_vocabulary

ATTEMPTS = 3
"""How often one shard is tried, on whatever machine."""

_LOCAL = "local"
"""Ray's own word for a cluster that is started now, on this machine."""

_STORE_BYTES = 100 << 20
"""Of Ray's own memory on this machine; statuses are small, and Ray would take a third of it."""

_ADDRESS = re.compile(r"(?:auto|([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5}))")

_ANSWER_S = 10.0
"""How long the cluster's head may take to answer; Ray by itself would wait for minutes."""

_WARNING = (
    "ray is started on this machine, for this audit; its processes listen for others of their kind, perhaps on every "
    "interface, and answer whoever has the key that was drawn for this run"
)

Tell = Callable[[str], None]


@contextmanager
def ray_executor(address: str | None, workers: int | None, tell: Tell) -> Iterator[RayExecutor]:
    """An executor on a Ray cluster, for as long as the block runs.

    A process that is connected already, as a program is that uses Ray itself, keeps its connection: it is used, and
    left as it is.

    Args:
        address: HOST:PORT of the cluster's head, or `auto`: this machine is part of it. None: what RAY_ADDRESS says,
            else a cluster of this machine alone, started now and ended with the block.
        workers: Shards that are measured side by side; None: twice as many as the cluster has processors, so that none
            of them waits for the next task.
        tell: Told in a sentence of what a reader should know.

    Raises:
        ConfigError: Ray is not installed, or the address is none, or not that of the cluster that this process is
            connected to.
        UnreachableError: there is no cluster there that this machine is part of, or Ray cannot be started.
    """
    connected = _connected()
    if connected is not None:
        _check_same(connected, address)
        yield RayExecutor(connected, workers, tell)
        return
    address = address or os.environ.get("RAY_ADDRESS") or _LOCAL
    if address != _LOCAL:
        _check_answers(address)
    ray = _ray(local=address == _LOCAL)
    _connect(ray, address, workers, tell)
    try:
        yield RayExecutor(ray, workers, tell)
    finally:
        ray.shutdown()


def _connected() -> Any:
    """The library, where this process is connected to a cluster; else None."""
    ray = sys.modules.get("ray")
    return ray if ray is not None and ray.is_initialized() else None


def _check_same(ray: Any, address: str | None) -> None:
    """See that an address, if one is given, is that of the cluster that this process is connected to.

    Raises:
        ConfigError: it is another's.
    """
    found = ray.get_runtime_context().gcs_address
    if address is not None and address not in ("auto", found):
        raise ConfigError(
            f"--ray-address {address[:200]!r}: expected {found}, to which this process is connected already"
        )


def _connect(ray: Any, address: str, workers: int | None, tell: Tell) -> None:
    """Connect this process to a cluster, or start one.

    Raises:
        UnreachableError: there is none, or it cannot be started.
    """
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == _LOCAL:
        tell(_WARNING)
        options |= {"num_cpus": workers or cores(), "include_dashboard": False, "object_store_memory": _STORE_BYTES}
    try:
        ray.init(address=address, **options)
    except (ConnectionError, OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        with suppress(Exception):
            ray.shutdown()
        where = "ray on this machine" if address == _LOCAL else f"--ray-address {address}"
        raise UnreachableError(f"{where}: expected a cluster that answers, found {_words(error)}") from None


def _check_answers(address: str) -> None:
    """See that something answers at an address.

    Raises:
        ConfigError: it is none.
        UnreachableError: nothing answers there.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ConfigError(
            f"--ray-address {address[:200]!r}: expected HOST:PORT of a cluster that this machine is part of, or auto"
        )
    if found[2] is None:
        return
    try:
        socket.create_connection((found[1].strip("[]"), int(found[2])), timeout=_ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise UnreachableError(
            f"--ray-address {address}: expected a cluster that answers, found {_words(error)}"
        ) from None


def _ray(*, local: bool) -> Any:
    """The library, told before it is imported what it reads from the environment then.

    Raises:
        ConfigError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if local and "RAY_AUTH_MODE" not in os.environ:
        # Ray runs what anybody sends it unless it is given a key. This one is never written anywhere.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    try:
        import ray
    except ImportError:
        raise ConfigError("--engine ray: expected the package ray, found none: pip install 'tokenproof[ray]'") from None
    return ray


class RayExecutor:
    """Runs shard tasks on the cluster that this process is connected to; see `ray_executor`."""

    def __init__(self, ray: Any, workers: int | None, tell: Tell):
        self._ray = ray
        self._workers = workers
        self._tell = tell
        self._submit = ray.remote(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")(measure_shard).remote

    def run(self, tasks: Sequence[ShardTask]) -> Generator[ShardStatus, None, None]:
        """See `Executor`."""
        waiting = deque((task, 1) for task in tasks)
        running: dict[Any, tuple[ShardTask, int]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self._window():
                    task, attempt = waiting.popleft()
                    running[self._submit(task)] = task, attempt
                for ended in self._ray.wait(list(running), num_returns=1)[0]:
                    task, attempt = running.pop(ended)
                    outcome = self._outcome(ended, task)
                    if isinstance(outcome, ShardStatus):
                        yield outcome
                    elif attempt < ATTEMPTS:
                        self._tell(f"{task.where}: {outcome}; tried again")
                        waiting.append((task, attempt + 1))
                    else:
                        yield _fault(task, f"{outcome}, {ATTEMPTS} times")
        finally:
            for left in running:
                with suppress(Exception):
                    self._ray.cancel(left, force=True)

    def _window(self) -> int:
        """How many tasks may be under way; the cluster may grow or shrink meanwhile."""
        return self._workers or 2 * max(int(self._ray.cluster_resources().get("CPU", 0)), 1)

    def _outcome(self, ended: Any, task: ShardTask) -> ShardStatus | str:
        """The status, or in words why another try may do.

        Raises:
            StoreError: facts cannot be written.
            ConfigError: the vocabulary cannot be loaded.
        """
        errors = self._ray.exceptions
        try:
            found = self._ray.get(ended)
        except errors.RayTaskError as error:
            return _fault(task, f"cannot be measured there: {_words(error.cause or error)}")
        except errors.RayError as error:
            return f"its worker was lost ({_words(error)})"
        if isinstance(found, UnreachableError):
            return str(found)
        if isinstance(found, TokenproofError):
            raise found
        assert isinstance(found, ShardStatus)
        return facts_at_hand(task, found)


def _fault(task: ShardTask, why: str) -> ShardStatus:
    return ShardStatus(shard=task.shard, fault=f"{task.where}: {why}")


def _words(error: BaseException) -> str:
    """An error's kind and first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


# --- what runs on a worker ------------------------------------------------------------------------


def measure_shard(task: ShardTask) -> ShardStatus | TokenproofError:
    """Do one task on a worker, on one core. Errors that have words of their own are given back as they are."""
    _keep_to_one_core()
    try:
        if task.dataset.place is not None:
            return facts_of_stored_shard(task, _vocabulary)
        return facts_of_shard(task, lambda: _vocabulary(task.contract))
    except TokenproofError as error:
        return error


_loaded: dict[str, Vocabulary] = {}
"""sha256 of a contract → its vocabulary: a worker does many tasks, mostly of one contract."""


def _vocabulary(contract: Contract) -> Vocabulary:
    if contract.sha256 not in _loaded:
        _loaded.clear()
        vocabulary = load_vocabulary(contract)
        vocabulary.make_engines()
        _loaded[contract.sha256] = vocabulary
    return _loaded[contract.sha256]


def _keep_to_one_core() -> None:
    """Ray runs as many workers as there are cores; none of the libraries below should think it is alone."""
    for name in ("RAYON_NUM_THREADS", "POLARS_MAX_THREADS"):
        os.environ.setdefault(name, "1")
    pa.set_cpu_count(1)
