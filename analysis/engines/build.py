"""Build the engine once: the bindings and llama-server of one commit, from one source archive.

Run as ``python -m analysis.engines.build``; it uses the standard library alone, so that it works
before anything is installed. The wheel is kept in the user's cache, by requirement, extra CMake
flags (``SPECDEPTH_CMAKE_ARGS``) and processor, since the build is tuned to it. Built again by the
same compiler it is the same, byte by byte: an engine's checksum tells which runs may go on.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VARIABLE = "SPECDEPTH_CMAKE_ARGS"
# Sources and build lie in folders of random names, which must not get into the programs, nor into
# their build ids through the run-time paths that they have until they are installed.
RECIPE = """\
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
if(NOT MSVC)
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}=llama-cpp-python>")
endif()
"""
ENVIRONMENT = Path(__file__).resolve().parent.parent.parent / "environment.yml"


def pip_section(text: str) -> list[str]:
    """Return the lines of the pip section of an ``environment.yml``, as pip reads them."""
    lines = text.split("- pip:\n", 1)[1].splitlines()
    return [line.strip().removeprefix("- ") for line in lines if line.strip().startswith("- ")]


def requirement(text: str) -> str:
    """Return the pip line of the engine, with the CMake flags it is built with."""
    return next(line for line in pip_section(text) if line.startswith("llama-cpp-python"))


def cached_wheel(line: str, extra: str) -> Path:
    """Return the folder that holds, or will hold, the wheel of this build."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cpu = next(
        (
            x
            for x in (_cpuinfo() or platform.processor()).splitlines()
            if x.startswith(("flags", "Features"))
        ),
        platform.processor(),
    )
    system = f"{platform.system()} {platform.machine()} {platform.libc_ver()}"
    key = hashlib.sha256("\n".join([line, extra, RECIPE, system, cpu]).encode()).hexdigest()
    return Path(base) / "specdepth" / "engine" / key[:16]


def _cpuinfo() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text(errors="replace") if path.is_file() else ""


def build(folder: Path, line: str, extra: str) -> Path:
    """Return the wheel in `folder`, built now if it is not there."""
    found = sorted(folder.glob("llama_cpp_python-*.whl"))
    if found:
        print(f"engine: using the build in the cache ({found[0].name})", flush=True)
        return found[0]
    print(
        "engine: building llama-cpp-python with llama-server from source, once; "
        "about 9 minutes on two cores" + (f", with {extra}" if extra else ""),
        flush=True,
    )
    folder.mkdir(parents=True, exist_ok=True)
    # Built aside and moved, so that an interrupted build leaves no half wheel.
    with tempfile.TemporaryDirectory(dir=folder) as aside:
        wanted = Path(aside) / "requirement.txt"
        wanted.write_text(line + "\n")
        # pip's own cache takes a wheel that was built with other flags for the same.
        command = [sys.executable, "-m", "pip", "wheel", "--no-cache-dir", "--no-deps"]
        command += ["-w", aside, "-r"]
        recipe = Path(aside) / "recipe.cmake"
        recipe.write_text(RECIPE)
        flags = f'-DCMAKE_PROJECT_INCLUDE="{recipe.as_posix()}" {extra}'
        environment = os.environ | {"CMAKE_ARGS": flags.strip()}
        subprocess.run([*command, str(wanted)], check=True, env=environment)
        (wheel,) = Path(aside).glob("llama_cpp_python-*.whl")
        target = folder / wheel.name
        shutil.move(wheel, target)
    return target


def main() -> int:
    """Build if needed and install into the running environment if it is not there.

    Without the variable an installed build of this requirement is kept, whatever flags it had.
    """
    line = requirement(ENVIRONMENT.read_text())
    extra = os.environ.get(VARIABLE)
    mark = Path(sys.prefix) / ".specdepth-engine"
    installed = mark.read_text() if mark.is_file() else ""
    if installed.startswith(line + "\n") and extra in (None, installed.partition("\n")[2]):
        print(f"engine: installed {installed.partition(chr(10))[2]}".rstrip(), flush=True)
        return 0
    extra = extra or ""
    try:
        wheel = build(cached_wheel(line, extra), line, extra)
    except subprocess.CalledProcessError as error:
        print(
            f"engine: the build ended with code {error.returncode}. Its last lines are above. "
            "Next: check that make and a C++17 compiler are there, or set "
            "SPECDEPTH_SERVER to a llama-server of yours and run `make install`.",
            file=sys.stderr,
        )
        return 1
    command = [sys.executable, "-m", "pip", "install", "-qq", "--force-reinstall", "--no-deps"]
    subprocess.run([*command, str(wheel)], check=True)
    constraints = ENVIRONMENT.with_name("constraints.txt")
    # What the bindings import; the wheel itself was installed without looking for them.
    command = [sys.executable, "-m", "pip", "install", "-qq", "-c", str(constraints)]
    subprocess.run([*command, str(wheel)], check=True)
    mark.write_text(f"{line}\n{extra}")
    print("engine: installed", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
