"""Parameters as plain papermill hands them over, by -p, -y and -f, for every notebook."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import papermill
import pytest
import yaml
from papermill.cli import _resolve_type
from papermill.iorw import load_notebook_node, read_yaml_file
from papermill.parameterize import parameterize_notebook

from analysis import model, pages, series
from analysis.errors import SpecDepthError, SpecError
from analysis.pages import page_parameters

ROOT = Path(__file__).resolve().parent.parent


def defaults(notebook: str) -> dict[str, Any]:
    listed = papermill.inspect_notebook(str(pages.source(notebook)))
    return {name: ast.literal_eval(found["default"]) for name, found in listed.items()}


def typed(value: Any) -> str:
    """Return a value as one types it after -p."""
    return value if isinstance(value, str) else json.dumps(value)


def read(notebook: str, given: dict[str, Any]) -> Any:
    """Run a notebook's parameters as papermill injects them, and what reads them: nothing else."""
    node = parameterize_notebook(load_notebook_node(str(pages.source(notebook))), given)
    code = [c.source for c in node.cells if c.cell_type == "code"]
    names: dict[str, Any] = {"__name__": "__main__"}
    for source in code[:3]:  # the defaults, what is injected, and the call of parameters.read
        exec(source, names)
    return names["page"]


@pytest.mark.parametrize("notebook", series.NOTEBOOKS)
def test_every_way_of_giving_parameters_says_the_same(notebook: str, tmp_path: Path) -> None:
    """All of a notebook's parameters at once, each in the forms of -p, -y and -f."""
    every = defaults(notebook)
    expected = page_parameters(notebook, {})
    by_p = {name: _resolve_type(typed(value)) for name, value in every.items()}
    assert read(notebook, by_p) == expected
    by_y: dict[str, Any] = {}
    for name, value in every.items():
        by_y |= yaml.safe_load(f"{name}: {json.dumps(value)}")
    assert read(notebook, by_y) == expected
    file = tmp_path / "given.yaml"
    file.write_text(yaml.safe_dump(every))
    assert read(notebook, read_yaml_file(str(file))) == expected


@pytest.mark.parametrize("notebook", series.NOTEBOOKS)
def test_lists_flags_and_none_are_read_from_text(notebook: str) -> None:
    spec = read(notebook, {"depths": "0,1,3", "threads": "2", "kv_unified": "true",
                           "workloads": "[short, code]", "temperature": "0",
                           "server_args": "-ngl 99 --no-mmap"}).spec  # fmt: skip
    assert set(spec.depths) == {0, 1, 3}
    assert (spec.threads, spec.kv_unified, spec.temperature) == (2, True, 0.0)
    assert spec.workloads == ("short", "code")
    assert spec.server_args == ("-ngl", "99", "--no-mmap")
    assert read(notebook, {"threads": "none", "kv_unified": ""}).spec.threads is None


@pytest.mark.parametrize("notebook", series.NOTEBOOKS)
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"promts": 3}, "unknown parameter promts"),
        ({"rounds": "many"}, "`rounds` must be a whole number"),
        ({"rounds": 2.5}, "`rounds` must be a whole number"),
        ({"depths": "deep"}, "`depths` must be a whole number"),
        ({"temperature": True}, "`temperature` must be a number"),
        ({"workloads": 3}, "`workloads` must be"),
        ({"server_args": "'unclosed"}, "`server_args` is not a command line"),
        ({"kv_unified": "perhaps"}, "`kv_unified` must be true or false"),
    ],
)
def test_an_unknown_or_mistyped_parameter_stops_the_page(
    notebook: str, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(SpecError, match=told):
        read(notebook, given)


@pytest.mark.parametrize("notebook", series.NOTEBOOKS)
def test_a_relative_model_is_meant_from_where_one_stands(
    notebook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mon modèle.gguf").symlink_to(model.embedded_path())
    monkeypatch.chdir(tmp_path)
    found = read(notebook, {"model": "mon modèle.gguf"}).spec.model
    assert model.resolve(found) == tmp_path / "mon modèle.gguf"
    with pytest.raises(SpecDepthError, match="not there"):
        model.resolve("no such.gguf")


@pytest.mark.parametrize("notebook", ["why_deeper_loses", "drafters"])
def test_the_whole_command_stops_at_a_mistyped_name_from_any_folder(
    notebook: str, tmp_path: Path
) -> None:
    """Nothing is measured and no folder is made; the other pages are in other tests."""
    done = subprocess.run(
        [sys.executable, "-m", "papermill", str(pages.source(notebook)), "out.ipynb",
         "-p", "promts", "3", "-p", "machines_folder", str(tmp_path / "machines")],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode != 0
    assert "unknown parameter promts" in done.stderr
    assert not (tmp_path / "machines").exists()
