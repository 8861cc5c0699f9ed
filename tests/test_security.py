"""What a run opens to others and gives away: loopback alone, no key, nothing from outside."""

from __future__ import annotations

import ipaddress
import re
import secrets
import threading
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from analysis import store, sweep
from analysis.engines import binary, flags
from analysis.engines.emulated import free_port
from analysis.errors import EngineError
from analysis.spec import SweepSpec
from tests.conftest import Silent

ROOT = Path(__file__).resolve().parent.parent
SPEC = SweepSpec(
    workloads=("short",), depths=(0, 2), prompts=2, rounds=1, n_predict=60, context=1024,
    lossless_prompts=0, threads=1,
)  # fmt: skip


@dataclass
class Watched:
    """What was seen of all children while they ran."""

    commands: set[str] = field(default_factory=set)
    listening: set[str] = field(default_factory=set)
    connected: set[str] = field(default_factory=set)
    keys: list[str] = field(default_factory=list)
    recorded: store.Recorded | None = None


def watch(seen: Watched, over: threading.Event) -> None:
    me = psutil.Process()
    while not over.wait(0.05):
        for process in me.children(recursive=True):
            try:
                seen.commands.add(" ".join(process.cmdline()))
                for c in process.net_connections(kind="inet"):
                    (seen.listening if c.status == "LISTEN" else seen.connected).add(c.laddr.ip)
                    seen.connected |= {c.raddr.ip} if c.raddr else set()
            except psutil.Error:
                continue


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """A real sweep, where every way out of the machine is shut."""
    seen, over = Watched(), threading.Event()
    make = secrets.token_urlsafe

    def kept(size: int | None = None) -> str:
        seen.keys.append(make(size))
        return seen.keys[-1]

    folder = tmp_path_factory.mktemp("watched")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analysis.engines.llama_server.secrets.token_urlsafe", kept)
        patch.setattr("analysis.launch.WARM_UP_MS", 0.0)
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            for variable in (name, name.upper()):
                patch.setenv(variable, f"http://127.0.0.1:{free_port()}")
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("HF_HOME", str(folder / "hf"))
        watcher = threading.Thread(target=watch, args=(seen, over))
        watcher.start()
        try:
            machines = folder / "machines"
            seen.recorded = sweep.measure(SPEC, "x", "here", machines, progress=Silent())
        finally:
            over.set()
            watcher.join()
    return seen


def test_servers_listen_on_loopback_alone_and_speak_to_nobody_else(watched: Watched) -> None:
    assert watched.recorded is not None
    assert {s.depth for s in watched.recorded.samples if s.error is None} == {0, 2}
    assert watched.listening == {"127.0.0.1"}
    assert all(ipaddress.ip_address(ip).is_loopback for ip in watched.connected)


def test_every_launch_has_a_key_of_its_own_that_is_nowhere_else(watched: Watched) -> None:
    """In no command line, no sample, no log, and no error."""
    assert watched.recorded is not None
    assert len(watched.keys) == len(set(watched.keys)) >= 3  # one to encode, one a depth
    assert all(len(key) >= 32 for key in watched.keys)
    assert any("llama-server" in command for command in watched.commands)
    folder = watched.recorded.path.parent
    written = b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())
    assert b"listening on http://127.0.0.1:" in written  # the logs are among them
    for key in watched.keys:
        assert not any(key in command for command in watched.commands)
        assert key.encode() not in written


def test_nothing_is_downloaded(watched: Watched) -> None:
    """With no way out the run is whole; llama-server is also told to stay offline."""
    assert watched.recorded is not None
    assert all("--offline" in x.command for x in watched.recorded.launches)
    assert not (watched.recorded.path.parents[3] / "hf").exists()


@pytest.mark.parametrize(
    "own",
    ["-hf a/b", "--hf-repo=a/b", "-hfd a/b", "--spec-draft-hf a/b", "-mu x", "--model-url x",
     "-dr x", "--docker-repo x", "-mmu x", "--mmproj-url x", "--gpt-oss-20b-default"],
)  # fmt: skip
def test_flags_that_download_are_refused(server_binary: binary.ServerBinary, own: str) -> None:
    spec = SweepSpec(server_args=tuple(own.split()))
    with pytest.raises(EngineError, match=r"may not hold -.*nothing is downloaded"):
        flags.arguments(server_binary, spec, 1, Path("m.gguf"), 1)


@pytest.mark.parametrize("own", ["--host 0.0.0.0", "--api-key x", "--api-key-file x"])
def test_flags_that_open_the_server_are_refused(
    server_binary: binary.ServerBinary, own: str
) -> None:
    spec = SweepSpec(server_args=tuple(own.split()))
    with pytest.raises(EngineError, match="may not hold --"):
        flags.arguments(server_binary, spec, 1, Path("m.gguf"), 1)


def test_no_code_reads_data_in_a_way_that_runs_it() -> None:
    """Samples, pages, manifests and parameters are JSON, or plain values of Python or YAML."""
    runs = re.compile(
        r"\b(?:eval|exec)\(|(?<!re\.)\bcompile\(|\bpickle\b|\bmarshal\b|\bshelve\b|__import__|importlib\.import_"
        r"|yaml\.(?:unsafe_|full_)?load\(|shell=True|os\.system|read_pickle|allow_pickle=True"
    )
    for path in (ROOT / "analysis").rglob("*.py"):
        assert runs.findall(path.read_text()) == [], path.name
