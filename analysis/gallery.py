"""The machines of the book: each folder's samples, redrawn by our own code."""

from __future__ import annotations

from pathlib import Path

from analysis import report, store
from analysis.errors import StoreError
from analysis.folders import machines_folder


def runs(folder: Path, notebook: str = "depth_sweep") -> list[store.Recorded]:
    """Return all stored runs of a machine's folder, the fullest first, then the newest."""
    found = [store.read(p) for p in store.files(folder / "samples", notebook)]
    return sorted(found, key=lambda r: (len(r.done()), r.run.started), reverse=True)


def machine(name: str, folder: Path | None = None) -> list[store.Recorded]:
    """Return the runs of a machine of the book, or raise with the names that there are."""
    machines = folder or machines_folder()
    found = runs(machines / name) if (machines / name).is_dir() else []
    if not found:
        raise StoreError(
            f"no samples of a machine called {name}",
            f"machines: {', '.join(names(machines)) or 'none'}",
            f"its quick run is {name}-quick"
            if f"{name}-quick" in names(machines)
            else "measure one with `specdepth run`",
        )
    return found


def names(folder: Path | None = None) -> list[str]:
    """Return the machines that have samples."""
    machines = folder or machines_folder()
    if not machines.is_dir():
        return []
    return sorted(p.name for p in machines.iterdir() if store.files(p / "samples"))


def sweeps(folder: Path | None = None) -> list[report.Sweep]:
    """Return the fullest depth sweep of each machine; one without a speed yet is left out."""
    found = []
    for name in names(folder):
        for recorded in runs((folder or machines_folder()) / name)[:1]:
            try:
                found.append(report.sweep_of(recorded))
            except StoreError:
                continue
    return found
