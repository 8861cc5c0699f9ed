"""What this machine is: hardware facts, a name made from them, and how busy it is now."""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from analysis.errors import SpecError
from analysis.records import Machine

PACKAGES = (
    "specdepth", "llama-cpp-python", "jupyter-book", "papermill", "pandas", "seaborn", "numpy",
    "scipy", "matplotlib", "nbval",
)  # fmt: skip
_QUERY = ("name", "memory.total", "driver_version", "power.limit", "clocks.max.sm")


def facts(name: str = "") -> Machine:
    """Return this machine's facts; `name` overrides the name made from the hardware."""
    gpus = nvidia_gpus()
    cpu = cpu_name()
    cores = psutil.cpu_count(logical=True) or 1
    return Machine(
        name=checked_name(name) if name else hardware_name(cpu, cores, gpus),
        cpu=cpu,
        cores=cores,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        gpus=tuple(gpus),
    )


def checked_name(name: str) -> str:
    """Return a machine name that is safe as a folder, or raise."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,63}", name):
        raise SpecError(
            "`machine` must be lower-case letters, digits, dots and hyphens",
            repr(name),
            "choose a name from the hardware, such as rtx-4090",
        )
    return name


def hardware_name(cpu: str, cores: int, gpus: list[dict[str, Any]]) -> str:
    """Make a name from the hardware, never from the host: ``epyc-2c``, ``2x-rtx-4090``."""
    if gpus:
        text = re.sub(r"NVIDIA|GeForce|Tesla|AMD|Radeon|Instinct|\bGPU\b", " ", gpus[0]["name"])
        prefix = f"{len(gpus)}x-" if len(gpus) > 1 else ""
        return prefix + _slug(text)
    text = re.sub(r"\(.*?\)|AMD|Intel|CPU|Processor|@.*|\d+-Core|with .*", " ", cpu)
    return f"{_slug(text) or platform.machine().lower()}-{cores}c"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:48]


def cpu_name() -> str:
    """Return the processor's model name."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            if line.lower().startswith(("model name", "hardware")):
                return line.split(":", 1)[1].strip()
    if platform.system() == "Darwin":
        return _ask(["sysctl", "-n", "machdep.cpu.brand_string"]) or platform.processor()
    return platform.processor() or platform.machine()


def _ask(command: list[str]) -> str:
    """Return what a program prints, or "" where it is missing or fails."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def nvidia_gpus() -> list[dict[str, Any]]:
    """Return name, memory, driver, power cap and top clock of each NVIDIA GPU."""
    return [
        {
            "name": name,
            "memory_mib": _number(memory),
            "driver": driver,
            "power_cap_w": _number(power),
            "clock_mhz": _number(clock),
        }
        for name, memory, driver, power, clock in _nvidia(_QUERY)
    ]


def nvidia_now() -> list[dict[str, float | None]]:
    """Return what of each NVIDIA GPU is free, and its clock and power at this moment."""
    names = ("memory_free_mib", "clock_mhz", "power_w")
    return [
        dict(zip(names, map(_number, row), strict=True))
        for row in _nvidia(("memory.free", "clocks.sm", "power.draw"))
    ]


def _nvidia(query: tuple[str, ...]) -> list[list[str]]:
    """Return a row of answers a GPU; what is no such row, such as a warning, is passed over."""
    told = _ask(["nvidia-smi", f"--query-gpu={','.join(query)}", "--format=csv,noheader,nounits"])
    rows = [[part.strip() for part in line.split(",")] for line in told.splitlines()]
    return [row for row in rows if len(row) == len(query)]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@functools.cache
def _has_nvidia() -> bool:
    return bool(nvidia_gpus())


def device_memory_mib() -> float | None:
    """Return the device memory in use now over all GPUs, or None without a GPU to ask."""
    if not _has_nvidia():
        return None
    rows = _ask(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"])
    numbers = [_number(row) for row in rows.splitlines()]
    return sum(n for n in numbers if n is not None) if numbers else None


def clock_mhz() -> float | None:
    """Return the current clock: of the first GPU where there is one, else of the processor."""
    if _has_nvidia():
        rows = _ask(["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"])
        return _number(rows.splitlines()[0]) if rows else None
    frequency = psutil.cpu_freq()
    return round(frequency.current, 1) if frequency else None


def load_per_core() -> float:
    """Return the one-minute load average divided by the number of cores."""
    return round(os.getloadavg()[0] / (psutil.cpu_count() or 1), 3)


def utc_now() -> str:
    """Return the time as text, in UTC and to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def packages() -> dict[str, str]:
    """Return the versions of the packages that shape a result."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


class Company:
    """Measures the share of the machine's processor time that other processes take.

    The share is busy time of the whole machine less that of the watched processes, over all
    cores, so that 0.5 on two cores means that one core was taken. Clock ticks are 10 ms: ask
    over a second or more.
    """

    def __init__(self, *pids: int) -> None:
        self._watched = {psutil.Process(pid): 0.0 for pid in (os.getpid(), *pids)}
        self._since = self._read()

    def _read(self) -> tuple[float, float, float]:
        times = psutil.cpu_times()
        busy = sum(times) - times.idle - getattr(times, "iowait", 0.0)
        busy -= getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        for process in self._watched:
            try:
                own = process.cpu_times()
            except psutil.NoSuchProcess:
                continue  # it counts with what it had used when it was last seen
            self._watched[process] = own.user + own.system
        return time.monotonic(), busy, sum(self._watched.values())

    def share(self) -> float:
        """Return the share since the last call, between 0 and 1."""
        then, busy_then, ours_then = self._since
        self._since = now, busy, ours = self._read()
        available = max(now - then, 1e-9) * (psutil.cpu_count() or 1)
        return round(min(max(((busy - busy_then) - (ours - ours_then)) / available, 0.0), 1.0), 3)
