"""Finding a llama-server and reading from itself what it is: version, build, commit, flags."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from analysis import digests
from analysis.errors import EngineError

PINNED_BINDINGS = "0.3.36"
PINNED_COMMIT = "0c1e570"
SUPPORTED = (
    "llama-server from b9180 (2026-05-16, the first with today's log levels) up to "
    f"{PINNED_COMMIT} (2026-10-01), but b10741 to b10743, which can not start draft-mtp"
)
FIRST_BUILD, BROKEN_BUILDS = 9180, range(10741, 10744)
_BUILD_ADVICE = "run `make engine`, or set --server or SPECDEPTH_SERVER to a llama-server of yours"


@dataclass(frozen=True)
class ServerBinary:
    """A llama-server and what it says of itself."""

    path: Path
    version: str  # the text of its --version
    build: int | None  # None: the binary was built without a number
    commit: str | None
    flags: frozenset[str]  # every flag that its --help names
    spec_types: tuple[str, ...]  # what --spec-type accepts
    own: bool  # chosen by the user, rather than built here

    @property
    def fingerprint(self) -> str:
        """A checksum of the program and the libraries beside it: builds of one commit differ."""
        folders = (self.path.parent, self.path.parent.parent / "lib")
        libraries = {
            file
            for folder in folders
            for file in folder.glob("lib*")
            if file.is_file()
            and not file.is_symlink()
            and file.name.startswith(("libggml", "libllama", "libmtmd"))
        }
        return digests.sha256([self.path, *sorted(libraries)])

    def warnings(self) -> list[str]:
        """Return what is known to be wrong with this build."""
        if self.build is not None and self.build in BROKEN_BUILDS:
            return [f"build b{self.build} can not start draft-mtp; supported: {SUPPORTED}"]
        if self.build is not None and self.build < FIRST_BUILD:
            return [f"build b{self.build} is older than what is supported: {SUPPORTED}"]
        if not self.own and self.commit and not self.commit.startswith(PINNED_COMMIT):
            return [f"commit {self.commit} is not the pinned {PINNED_COMMIT}; run `make engine`"]
        return []


def built_folder() -> Path:
    """Return where the built programs lie: beside the bindings in this environment."""
    return Path(sysconfig.get_path("purelib")) / "bin"


def find(server: str = "", program: str = "llama-server") -> Path:
    """Return the program's path: `server`, then SPECDEPTH_SERVER, then the one built here.

    Raises
    ------
    EngineError
        If none is there or the named one is not an executable file.
    """
    named = server or (os.environ.get("SPECDEPTH_SERVER", "") if program == "llama-server" else "")
    if named:
        found = shutil.which(str(Path(named).expanduser())) or shutil.which(named)
        if found is None:
            by = "was named" if server else "SPECDEPTH_SERVER names"
            raise EngineError(
                f"the llama-server that {by} can not be run",
                f"{Path(named).name}: not an executable file",
                "check the path and its execute permission",
            )
        return Path(found).resolve()
    path = built_folder() / program
    if not path.is_file():
        raise EngineError(f"no {program} in this environment", "none", _BUILD_ADVICE)
    return path


def environment() -> dict[str, str]:
    """Return the environment to start a program with.

    llama-server reads ``LLAMA_*`` variables as flags; they are left out, so that a launch is what
    its command line says.
    """
    return {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_")}


def settings() -> dict[str, str]:
    """Return the variables that change how an engine runs: devices, threads, back ends."""
    names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    return {
        k: v for k, v in sorted(os.environ.items()) if k in names or k.startswith(("GGML_", "OMP_"))
    }


def probe(server: str = "") -> ServerBinary:
    """Find a llama-server and ask it for its version and flags."""
    path = find(server)
    return _probe(path, own=path.parent != built_folder(), stamp=path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _probe(path: Path, *, own: bool, stamp: int) -> ServerBinary:  # noqa: ARG001 (cache key)
    version = ask(path, "--version")
    build, commit = _build_and_commit(version)
    help_text = ask(path, "--help")
    if "--spec-type" not in help_text or "--port" not in help_text:
        raise EngineError(
            f"{path.name} is not a llama-server with speculative decoding by type",
            "its --help names no --spec-type" if "--port" in help_text else "not a llama-server",
            f"supported: {SUPPORTED}",
        )
    return ServerBinary(
        path=path,
        version=_version_line(version),
        build=build,
        commit=commit,
        flags=frozenset(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", help_text)),
        spec_types=_spec_types(help_text),
        own=own,
    )


def _version_line(text: str) -> str:
    lines = [line for line in text.splitlines() if "version" in line.lower()]
    return lines[0].strip() if lines else "unknown"


def _build_and_commit(text: str) -> tuple[int | None, str | None]:
    """Read ``version: 9849 (abc1234)`` and ``version: 0.5.0-dev (build 1, commit abc1234)``.

    Builds from a source archive number themselves 0 or 1, which is no number of a release.
    """
    match = re.search(r"version:\s*(\d+) \((\w+)\)", text) or re.search(
        r"\(build (\d+), commit (\w+)\)", text
    )
    if not match:
        return None, None
    build = int(match[1])
    return (build if build > 1 else None), (None if match[2] == "unknown" else match[2])


def _spec_types(help_text: str) -> tuple[str, ...]:
    match = re.search(r"--spec-type\s+(\S+)", help_text)
    return tuple(re.split(r"[,|]", match[1].strip("[]<>{}"))) if match else ()


def ask(path: Path, flag: str) -> str:
    """Return what a program prints for a flag that makes it end at once."""
    try:
        done = subprocess.run(
            [str(path), flag],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            env=environment(),
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(
            f"{path.name} can not be asked for its {flag}", str(error), _BUILD_ADVICE
        ) from error
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        raise EngineError(
            f"{path.name} {flag} ended with code {done.returncode}", last[0], _BUILD_ADVICE
        )
    return done.stdout + done.stderr
