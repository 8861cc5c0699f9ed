"""The files around the code agree with each other and keep their promises."""

import json
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import analysis
from analysis import architecture
from analysis.engines import binary, build

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ENVIRONMENT_TEXT = (ROOT / "environment.yml").read_text()
CARDS = ("nvidia-", "cuda-", "triton")


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def ranges() -> dict[str, Requirement]:
    extras = PROJECT["project"]["optional-dependencies"]
    listed = [*PROJECT["project"]["dependencies"], *chain.from_iterable(extras.values())]
    return {canonicalize_name(Requirement(x).name): Requirement(x) for x in listed}


def conda_pip() -> dict[str, str]:
    section = yaml.safe_load(ENVIRONMENT_TEXT)["dependencies"][-1]["pip"]
    assert section == build.pip_section(ENVIRONMENT_TEXT)
    pinned = [line.split()[0] for line in section if not line.startswith("-")]
    return {canonicalize_name(n): v for n, v in (p.split("==") for p in pinned)}


def test_every_range_allows_its_exact_version() -> None:
    exact = constraints()
    for name, requirement in ranges().items():
        assert exact[name] in requirement.specifier, name


def test_conda_has_the_same_versions_of_the_same_packages() -> None:
    exact = constraints()
    pinned = conda_pip()
    assert set(pinned) == set(ranges())
    assert {name: exact[name] for name in pinned} == pinned


def test_what_is_installed_is_what_is_pinned() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "list", "--format=json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    exact = constraints()
    for package in json.loads(done.stdout):
        name = canonicalize_name(package["name"])
        # PyTorch brings the libraries of a machine's own kind of card, and tells its kind.
        if name not in ("specdepth", "setuptools", "wheel") and not name.startswith(CARDS):
            assert exact.get(name) == package["version"].partition("+")[0], name


def test_the_training_codes_versions_are_those_pinned() -> None:
    lines = (ROOT / "models" / "requirements.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    exact = constraints()
    assert "torch" in pinned
    assert {name: exact[canonicalize_name(name)] for name in pinned} == pinned


def test_the_engine_is_pinned_once() -> None:
    assert constraints()["llama-cpp-python"] == binary.PINNED_BINDINGS
    assert build.requirement(ENVIRONMENT_TEXT).startswith(
        f"llama-cpp-python=={binary.PINNED_BINDINGS} "
    )


def tracked() -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [ROOT / name for name in done.stdout.split("\0") if name]


def test_no_large_file_is_tracked() -> None:
    assert [p.name for p in tracked() if p.is_file() and p.stat().st_size > 16 * 2**20] == []


def test_no_path_of_a_machine_is_tracked() -> None:
    private = re.compile(rb"/(?:home|Users|root|work)/[\w.-]+|[A-Z]:\\\\Users")
    for path in tracked():
        if path.is_file() and path.suffix not in (".gguf", ".png") and path.parent.name != "tests":
            assert not private.search(path.read_bytes()), path.name


def test_each_module_stands_in_one_layer_and_imports_go_one_way() -> None:
    listed = [module for layer in architecture.LAYERS for module in layer.modules]
    assert sorted(listed) == sorted(architecture.modules())
    assert architecture.backward() == []


def test_measuring_never_draws_and_drawing_never_measures() -> None:
    graph, layers = architecture.arrows(), architecture.layer_of()

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for target in graph[todo.pop()] - seen:
                seen.add(target)
                todo.append(target)
        return seen

    measuring = {n for n in graph if layers[n] == "engines"}
    measuring |= {"sweep", "launch", "request", "audit"}
    showing = {"tables", "figures"}
    for name in measuring:
        assert not reach(name) & (showing | {"stats", "report"}), name
    for name in (*showing, "stats", "verdict", "report"):
        assert "sweep" not in reach(name), name
    assert all(name not in reach(name) for name in graph)  # no circles


def test_the_citation_is_of_this_version_in_the_citation_format() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    required = {"cff-version", "message", "title", "authors"}
    assert required <= set(cited)
    assert cited["cff-version"] == "1.2.0"
    assert cited["version"] == PROJECT["project"]["version"] == analysis.__version__
    assert cited["license"] == PROJECT["project"]["license"]
    assert cited["authors"] == [{"name": "The specdepth authors"}]


def test_the_changelog_has_this_version_and_every_command() -> None:
    from analysis.cli import app

    text = (ROOT / "CHANGELOG.md").read_text()
    assert f"## [{PROJECT['project']['version']}]" in text
    names = {c.name or getattr(c.callback, "__name__", "") for c in app.registered_commands}
    assert {n for n in names if f"`{n}`" not in text} == set()


def test_guides_name_what_is_there() -> None:
    """Files, folders and make targets that the guides name exist."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in ("CONTRIBUTING.md", "README.md"):
        text = (ROOT / name).read_text()
        assert set(re.findall(r"`make ([a-z]+)`", text)) <= targets, name
        named = re.findall(r"`((?:[\w.-]+/)*[\w-]+(?:\.\w+|/))`", text)
        named = [n for n in named if ("/" in n or n[0].isupper()) and "CLAIM" not in n]
        assert [n for n in named if not (ROOT / n).exists()] == []


def test_experimental_bindings_stand_in_one_file() -> None:
    using = [p.name for p in (ROOT / "analysis").rglob("*.py") if "llama_cpp_ext" in p.read_text()]
    assert using == ["tracer.py"]


def test_modules_stay_small() -> None:
    lengths = {p.name: len(p.read_text().splitlines()) for p in (ROOT / "analysis").rglob("*.py")}
    assert {n: x for n, x in lengths.items() if x > 320} == {}


def test_importing_the_package_and_its_command_line_is_light() -> None:
    code = (
        "import sys, analysis, analysis.cli; "
        "print([m for m in ('pandas', 'seaborn', 'scipy', 'papermill') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    return found


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_notebook_sources_carry_no_outputs_and_one_parameters_cell(path: Path) -> None:
    code = [c for c in cells(path) if c["cell_type"] == "code"]
    assert all(not c["outputs"] and c["execution_count"] is None for c in code)
    assert sum("parameters" in c["metadata"].get("tags", []) for c in code) == 1
    assert not any("def " in "".join(c["source"]) for c in code)


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_no_result_is_typed_into_a_notebooks_prose(path: Path) -> None:
    prose = "\n".join("".join(c["source"]) for c in cells(path) if c["cell_type"] == "markdown")
    commands = re.compile(r"```.*?```|`[^`]*`|https?://\S+|^    .*$", re.DOTALL | re.MULTILINE)
    typed = re.findall(r"\b\d+\.\d+\b(?!B)|\d+ ?%", commands.sub("", prose))
    assert [x for x in typed if x != "95%"] == []


# Pages that are measured here but not committed, such as quick ones, are nobody's business.
PUBLISHED = sorted(p for p in tracked() if p.match("book/machines/*/*.ipynb"))


def test_every_setting_of_a_sweep_is_a_parameter_of_its_notebook() -> None:
    import dataclasses

    import papermill

    from analysis.spec import SweepSpec

    listed = set(papermill.inspect_notebook(str(ROOT / "notebooks" / "depth_sweep.ipynb")))
    of_other_pages = {"engine", "more_arms", "more_drafters", "room", "gpu_layers", "device"}
    settings = {f.name for f in dataclasses.fields(SweepSpec)} - of_other_pages
    assert listed == settings | {"machine", "machines_folder", "mix", "tolerance"}


def test_the_notebooks_defaults_are_the_specs() -> None:
    from analysis import pages
    from analysis.spec import SweepSpec

    assert pages.page_parameters("depth_sweep", {}).spec == SweepSpec()


def test_a_machine_is_published() -> None:
    assert PUBLISHED


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_published_notebooks_ran_in_order_without_errors(path: Path) -> None:
    code = [c for c in cells(path) if c["cell_type"] == "code"]
    assert [c["execution_count"] for c in code] == list(range(1, len(code) + 1))
    outputs = [o for c in code for o in c["outputs"]]
    assert not [o for o in outputs if o["output_type"] == "error"]
    assert not [o for o in outputs if o.get("name") == "stderr"]


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_published_notebooks_are_their_sources_with_recorded_parameters(path: Path) -> None:
    from analysis import foreign

    assert foreign.why(path, path.parent.name) == ""
    source = [c["source"] for c in cells(ROOT / "notebooks" / path.name)]
    made = cells(path)
    injected = [c for c in made if "injected-parameters" in c["metadata"].get("tags", [])]
    assert len(injected) == 1
    assert f'machine = "{path.parent.name}"' in "".join(injected[0]["source"])
    named = [x.replace("on this machine", f"on {path.parent.name}", 1) for x in source[0]]
    assert [c["source"] for c in made if c not in injected] == [named, *source[1:]]


SWEEPS = [p for p in PUBLISHED if p.stem == "depth_sweep"]


@pytest.mark.parametrize("path", SWEEPS, ids=lambda p: p.parent.name)
def test_published_samples_are_complete(path: Path) -> None:
    from analysis import checks, gallery, model, report

    for recorded in gallery.runs(path.parent, "*"):
        sweep = report.sweep_of(recorded)
        assert 0 in sweep.depths
        assert not [w for w in checks.warnings(sweep) if "are there" in w or "failed" in w]
    sweep = report.sweep_of(gallery.runs(path.parent)[0])
    if sweep.recorded.run.model["sha256"] == model.facts(model.embedded_path()).sha256:
        assert sweep.workloads == ("short", "prose", "code", "long")
        assert set(sweep.depths) >= {0, 1, 2, 3, 4, 5}
