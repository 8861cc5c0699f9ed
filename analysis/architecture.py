"""The layers of the package, from what to measure to the command line, and the imports between.

Each module stands in one layer and imports from its own layer and those before it, never from a
later one; a test holds the code to it, and the page on the architecture is drawn from the same
lines.
"""

from __future__ import annotations

import ast
import html
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pandas as pd


@dataclass(frozen=True)
class Layer:
    """Modules with one job; `gives` is what the next layer takes from it."""

    name: str
    gives: str
    modules: tuple[str, ...]


def _layer(name: str, gives: str, modules: str) -> Layer:
    return Layer(name, gives, tuple(modules.split()))


LAYERS = (
    _layer(
        "ground", "errors, folders, text and records that all share",
        "errors folders paths digests markup progress terminal coercion records geometric",
    ),
    _layer(
        "spec", "what to measure: settings, model, workloads, and the laws of both",
        "spec speculation gguf_file quantization memory compute shapes shape_contents shape_tokens "
        "shape_file shape_models model weights prompts machine",
    ),
    _layer(
        "engines", "how to get it: processes of llama-server and of the tracer",
        "logs placement leaving engines engines.binary engines.build engines.choose "
        "engines.emulated engines.fit engines.flags engines.llama_server engines.native "
        "engines.process engines.trace engines.tracer engines.tracer_child engines.tracer_process",
    ),
    _layer(
        "samples", "raw samples in the store, one record a request",
        "store steps plausible lossless request launch audit sweep",
    ),
    _layer(
        "statistics", "what follows: intervals, verdicts, acceptance, plans",
        "stats bounds verdict report acceptance arms pieces depth_limit quotes gallery parameters "
        "racing traces tracing arm_runs drafters plan planner plans",
    ),
    _layer(
        "tables and figures", "how it is shown: tables, figures, computed sentences",
        "tables findings described figures checks decay half_steps strip note attribution "
        "prediction eviction causes repetition shape_runs traffic public public_sources "
        "public_growth summary plan_text plan_tables why_tables drafters_tables "
        "drafters_sentences acceptance_figures memory_figures why_figures drafters_figures "
        "public_figures markdown_table page_links front front_figures explain gallery_tables "
        "planner_form planner_example architecture",
    ),
    _layer(
        "series", "pages, machines' folders and the book",
        "pages foreign manifest personal contents finish series redraw contribution status publish "
        "doctor",
    ),
    _layer("commands", "the command line specdepth", "cli_common cli_memory cli"),
)  # fmt: skip
_STYLE = (
    "border:1px solid #5d6570;border-radius:6px;padding:.5rem .8rem;margin:0;background:#f7f8fa;"
    "color:#1d2430"
)


def modules() -> dict[str, Path]:
    """Return the package's modules with their files, by names without the package's own."""
    folder = Path(__file__).parent
    found = {}
    for path in sorted(folder.rglob("*.py")):
        name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix("__init__")
        found[name.removesuffix(".")] = path
    return {name: path for name, path in found.items() if name}


def arrows() -> dict[str, set[str]]:
    """Return the imports between the package's modules, those inside functions included."""
    files = modules()
    return {name: _imports(path) & set(files) for name, path in files.items()}


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
    return {name.removeprefix("analysis.") for name in found if name.startswith("analysis.")}


def layer_of() -> dict[str, str]:
    """Return the layer's name of each module that is listed."""
    return {module: layer.name for layer in LAYERS for module in layer.modules}


def drawing() -> str:
    """Draw the layers as boxes in the order in which data flows, as HTML without any script."""
    boxes = []
    for layer in LAYERS:
        chips = ", ".join(
            f'<code style="color:inherit">{html.escape(m)}</code>' for m in layer.modules
        )
        boxes.append(
            f'<li style="{_STYLE}"><strong>{layer.name}</strong>: {layer.gives}<br>'
            f'<span style="font-size:.85em;line-height:1.9">{chips}</span></li>'
        )
    down = '<li aria-hidden="true" style="text-align:center;list-style:none">↓</li>'
    items = down.join(boxes).replace("<li style", '<li class="layer" style')
    return f'<ol style="list-style:none;padding:0">{items}</ol>'


def crossings() -> pd.DataFrame:
    """Count the imports from each layer (row) to each layer (column)."""
    at = layer_of()
    names = [layer.name for layer in LAYERS]
    pairs = Counter((at[m], at[x]) for m, targets in arrows().items() for x in targets)
    rows = [[str(pairs[row, column] or "–") for column in names] for row in names]
    return pd.DataFrame(rows, index=pd.Index(names, name="imports of"), columns=names)


def jobs() -> str:
    """Return each module's layer and job, the first line of its docstring, as an HTML table."""
    rows = []
    for layer in LAYERS:
        for module in layer.modules:
            said = ast.get_docstring(ast.parse(modules()[module].read_text(encoding="utf-8"))) or ""
            rows.append((layer.name, module, said.partition("\n")[0].replace("`", "")))
    table = pd.DataFrame(rows, columns=["layer", "module", "its job"])
    with pd.option_context("display.max_colwidth", None):
        return table.set_index(["layer", "module"]).to_html()


def backward() -> list[str]:
    """Return the imports that go to a later layer; there should be none."""
    order = {m: i for i, layer in enumerate(LAYERS) for m in layer.modules}
    return [
        f"{module} imports {target}"
        for module, targets in arrows().items()
        for target in sorted(targets)
        if order[target] > order[module]
    ]
