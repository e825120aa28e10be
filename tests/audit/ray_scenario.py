"""Audits on a Ray cluster of two nodes, beside audits in this process: run inside a network namespace of its own.

Ray may listen on every interface, so `test_on_ray` runs this inside `unshare -n`. The outcomes go to a JSON file.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

from moto.server import ThreadedMotoServer
from pyarrow.fs import FileSelector, FileType, S3FileSystem

import toolkit.vocabulary
from toolkit.cli import main
from toolkit.contract import Contract
from toolkit.vocabulary import Vocabulary

BUCKET = "proofs"
REMOTE = f"s3://{BUCKET}/team/w"
_OF_THE_MOMENT = ("created_at", "elapsed_s")
_START_S = 40
_KILL_S = 30


def command(*words: str) -> dict[str, Any]:
    """One command in this process: exit code, output, what was told."""
    sys.argv = ["tokenproof", *words]
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


def keep_vocabulary() -> None:
    """Let the commands of this process load their contract's vocabulary once; workers load their own."""
    load = toolkit.vocabulary.load_vocabulary
    loaded: dict[str, Vocabulary] = {}

    def found(contract: Contract, source: str | None = None) -> Vocabulary:
        assert source is None
        if contract.sha256 not in loaded:
            loaded[contract.sha256] = load(contract)
        return loaded[contract.sha256]

    toolkit.vocabulary.load_vocabulary = found


def audited(root: Path, *words: str) -> dict[str, Any]:
    """An audit of B3 that finds no facts: its outcome, verdict and quarantine."""
    shutil.rmtree(root / "datasets/B3/facts", ignore_errors=True)
    shutil.rmtree(root / "reports", ignore_errors=True)
    done = command("audit", "B3", "--root", str(root), "--suite", "small", *words)
    return done | results_of(root)


def results_of(root: Path) -> dict[str, Any]:
    """Verdict without what differs from one minute to the next, and the quarantine's bytes."""
    verdict = root / "reports/B3/verdict.json"
    if not verdict.is_file():
        return {"verdict": None}
    found = json.loads(verdict.read_bytes())
    return {
        "verdict": {name: value for name, value in found.items() if name not in _OF_THE_MOMENT},
        "quarantine": (root / "reports/B3/quarantine.parquet").read_bytes().hex(),
    }


# --- the cluster --------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Callable[[], str]]:
    """Two nodes with one processor each. They are starting; what is given waits for both: their address."""
    address = f"127.0.0.1:{free_port()}"
    ray = str(Path(sys.executable).with_name("ray"))
    # Nobody reads the logs, so nobody need look for new lines in them.
    common = [
        "--num-cpus=1", f"--object-store-memory={80 << 20}", "--disable-usage-stats", "--include-log-monitor=false",
        "--block",
    ]  # fmt: skip
    head = [
        "--head", "--node-ip-address=127.0.0.1", f"--port={address.partition(':')[2]}", "--include-dashboard=false",
        f"--temp-dir={folder}",
    ]  # fmt: skip
    nodes: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> None:
        with (folder / f"node{len(nodes)}.log").open("wb") as log:
            nodes.append(subprocess.Popen([ray, "start", *common, *words], stdout=log, stderr=log))

    def join() -> str:
        wait_for_nodes(address, 1)
        start(f"--address={address}")
        wait_for_nodes(address, 2)
        return address

    try:
        start(*head)
        with ThreadPoolExecutor(max_workers=1) as apart:
            yield apart.submit(join).result
    finally:
        # What they started ends with the namespace of processes that this runs in.
        for node in reversed(nodes):
            node.kill()
            node.wait()


@contextlib.contextmanager
def connection_kept() -> Iterator[None]:
    """The connection that the first audit makes outlives it, as that of a program that uses Ray itself: the workers
    stay, with what they loaded, for the next audits."""
    import ray

    with mock.patch.object(ray, "shutdown"):
        yield
    assert ray.is_initialized(), "an audit ended the connection"
    ray.shutdown()


def wait_for_nodes(address: str, count: int) -> None:
    """Until so many nodes answer."""
    from ray._raylet import GcsClient

    limit = time.monotonic() + _START_S
    while time.monotonic() < limit:
        with contextlib.suppress(Exception):
            nodes = GcsClient(address=address).get_all_node_info()
            if len(nodes) >= count:
                return
        time.sleep(0.2)
    raise TimeoutError(f"{count} nodes of {address}")


def kill_one(killed: list[int]) -> None:
    """Kill the first worker that is seen at a task, and wait until it is gone."""
    limit = time.monotonic() + _KILL_S
    while time.monotonic() < limit and not killed:
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if path.name.isdigit() and (path / "cmdline").read_bytes().startswith(b"ray::measure_shard"):
                    os.kill(int(path.name), signal.SIGKILL)
                    while is_alive(path):
                        time.sleep(0.01)
                    killed.append(int(path.name))
                    return
        time.sleep(0.01)


def is_alive(process: Path) -> bool:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# --- object storage -----------------------------------------------------------------------------


def start_storage() -> S3FileSystem:
    """A server on loopback, named in the environment, with an empty bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip
    files = S3FileSystem(
        endpoint_override=f"{host}:{port}", scheme="http", region="us-east-1", allow_bucket_creation=True
    )
    files.create_dir(BUCKET)
    return files


def upload(files: S3FileSystem, root: Path) -> None:
    for path in root.rglob("*"):
        if path.is_file():
            with files.open_output_stream(f"{BUCKET}/team/w/{path.relative_to(root)}") as stream:
                stream.write(path.read_bytes())


def download(files: S3FileSystem, root: Path) -> list[str]:
    """All objects, to files below `root`; their names."""
    start = f"{BUCKET}/team/w/"
    found = files.get_file_info(FileSelector(start.rstrip("/"), recursive=True))
    names = sorted(info.path.removeprefix(start) for info in found if info.type == FileType.File)
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        with files.open_input_stream(f"{start}{name}") as stream:
            (root / name).write_bytes(stream.read())
    return names


# --- what is tried ------------------------------------------------------------------------------


def play(root: Path) -> dict[str, Any]:
    """Audits of `root`/whole and `root`/damaged, which hold the same dataset."""
    whole, damaged = root / "whole", root / "damaged"
    found: dict[str, Any] = {"seconds": {}}

    def noted(name: str, made: dict[str, Any]) -> None:
        found[name] = made
        found["seconds"][name] = round(time.monotonic() - begun, 1)

    begun = time.monotonic()
    keep_vocabulary()
    files = start_storage()  # before the nodes, which are told of it by their environment
    with tempfile.TemporaryDirectory(prefix="rays-") as folder, cluster(Path(folder)) as join:
        upload(files, whole)
        noted("alone", audited(whole))
        noted("alone_damaged", audited(damaged))
        on_ray = ["--engine", "ray", "--ray-address", join()]
        killed: list[int] = []
        killer = threading.Thread(target=kill_one, args=[killed])
        killer.start()
        with connection_kept():
            noted("killed", audited(whole, *on_ray))
            killer.join()
            found["killed_pids"] = killed
            noted("damaged", audited(damaged, *on_ray))
            done = command("audit", "B3", "--root", REMOTE, "--suite", "small", *on_ray)
            names = download(files, root / "copy")
            noted("stored", done | results_of(root / "copy") | {"names": names})
            elsewhere = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
            noted("elsewhere", command("audit", "B3", "--root", str(whole), *on_ray[:3], elsewhere))
    cut = "datasets/B3/shards/part-00001.parquet"
    with files.open_output_stream(f"{BUCKET}/team/w/{cut}") as stream:
        stream.write((whole / cut).read_bytes()[:-100])
    done = command("audit", "B3", "--root", REMOTE, "--suite", "small", "--engine", "ray", "--workers", "1")
    download(files, root / "copy")
    noted("cut", done | results_of(root / "copy"))
    return found


if __name__ == "__main__":
    scene = Path(sys.argv[1])
    (scene / "found.json").write_text(json.dumps(play(scene)), encoding="utf-8")
