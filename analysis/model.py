"""What a GGUF file says of itself: architecture, quantization, layers, MTP layers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis import digests, gguf_file, shape_models
from analysis.errors import ModelError
from analysis.spec import EMBEDDED, EMBEDDED_DRAFTERS, SweepSpec

_EMBEDDED_FILES = {
    EMBEDDED: "specdepth-9m-q8_0.gguf",
    EMBEDDED_DRAFTERS[0]: "drafters/specdepth-9m-deep-head-q8_0.gguf",
    EMBEDDED_DRAFTERS[1]: "drafters/specdepth-2m-q8_0.gguf",
}
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
MIB = 2**20


@dataclass(frozen=True)
class ModelFacts:
    """Facts of a model; sizes are of the file's tensors, all parts together."""

    name: str  # file name of the first part, without its folder
    sha256: str
    architecture: str
    quantization: str  # the most frequent tensor type by bytes
    size_mib: float
    parameters: int
    layers: int  # all blocks, the MTP ones included
    mtp_layers: int
    context_train: int
    has_chat_template: bool

    def to_json(self) -> dict[str, Any]:
        """Return the facts as a JSON-ready dict."""
        return asdict(self)


def embedded_path(name: str = EMBEDDED) -> Path:
    """Return the path of the embedded model, or of one of its drafters."""
    file = Path(__file__).resolve().parent.parent / "models" / _EMBEDDED_FILES[name]
    if not file.is_file():
        raise ModelError(
            f"the model {name} is not there", f"no {file.name}", "restore it from the repository"
        )
    return file


def resolve(model: str) -> Path:
    """Return the path of the model's first part, or raise :class:`ModelError`.

    A shape (``shape:NAME``) is written into the cache where it is not there. The models of this
    repository are ``embedded`` and its drafters ``embedded-deep-head`` and ``embedded-small``.
    """
    if model in _EMBEDDED_FILES:
        return embedded_path(model)
    if shape_models.named(model):
        return shape_models.cached(model)
    path = Path(model).expanduser().absolute()  # a link keeps its own name
    if path.is_dir():
        inside = ", ".join(sorted(p.name for p in path.glob("*.gguf"))[:5]) or "no GGUF in it"
        raise ModelError("the model is a folder", inside, "name the GGUF file itself")
    if not path.is_file():
        raise ModelError(
            "the model file is not there",
            path.name,
            "give the path of a GGUF with an MTP head, model=embedded, or a shape such as "
            "model=shape:qwen3.6-27b",
        )
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise ModelError(
            f"{path.name} is not a GGUF file", f"it starts with {magic!r}", "convert the model"
        )
    part = _PART.fullmatch(path.name)
    if part and int(part[2]) != 1:
        first = f"{part[1]}-00001-of-{part[3]}.gguf"
        raise ModelError("this part of the model is not its first", path.name, f"name {first}")
    return path


def blocks(model: str) -> int:
    """Return how many blocks a model has, the MTP ones included; a shape needs no file for it."""
    if shape_models.named(model):
        return shape_models.parse(model).shape.blocks
    return facts(resolve(model)).layers


def parts(path: Path) -> list[Path]:
    """Return all parts of a model that is split as ``name-00001-of-00003.gguf``."""
    match = _PART.fullmatch(path.name)
    if not match:
        return [path]
    stem, _, count = match.groups()
    found = [path.with_name(f"{stem}-{i:05d}-of-{count}.gguf") for i in range(1, int(count) + 1)]
    missing = [p.name for p in found if not p.is_file()]
    if missing:
        told = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if missing[3:] else "")
        raise ModelError("parts of the model are missing", told, "fetch all parts")
    return found


def facts(path: Path) -> ModelFacts:
    """Read a model's facts; the weights themselves are only hashed.

    Raises
    ------
    ModelError
        If a part is missing or the file can not be read as GGUF.
    """
    files = parts(path)
    by_type: Counter[str] = Counter()
    parameters = 0
    with reading(path):
        readers = [gguf_file.reader(file) for file in files]
        for reader in readers:
            for tensor in reader.tensors:
                by_type[tensor.tensor_type.name] += int(tensor.n_bytes)
                parameters += int(tensor.n_elements)
        head = readers[0]
        architecture = str(_value(head, "general.architecture"))
        return ModelFacts(
            name=files[0].name,
            sha256=digests.sha256(files),
            architecture=architecture,
            quantization=by_type.most_common(1)[0][0] if by_type else "none",
            size_mib=round(sum(by_type.values()) / MIB, 2),
            parameters=parameters,
            layers=int(_value(head, f"{architecture}.block_count", 0)),
            mtp_layers=int(_value(head, f"{architecture}.nextn_predict_layers", 0)),
            context_train=int(_value(head, f"{architecture}.context_length", 0)),
            has_chat_template=_value(head, "tokenizer.chat_template", None) is not None,
        )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what goes wrong in reading a GGUF into a :class:`ModelError` that names the file."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # the reader raises many kinds on damaged files
        raise ModelError(
            f"{path.name} can not be read as GGUF",
            f"{type(error).__name__}: {error}",
            "check that the file is complete",
        ) from error


def _value(reader: Any, name: str, *default: Any) -> Any:
    field = reader.get_field(name)
    if field is None:
        if default:
            return default[0]
        raise ModelError("the file lacks a key", name, "convert the model anew")
    return field.contents()


def check_drafter(found: ModelFacts, spec: SweepSpec) -> None:
    """Raise :class:`ModelError` where a model can not be drafted for as asked."""
    own_head = spec.drafter == "mtp" and not spec.draft_model
    if own_head and max(spec.depths) > 0 and found.mtp_layers == 0:
        raise ModelError(
            f"{found.name} has no MTP layer",
            f"architecture {found.architecture}, nextn_predict_layers 0",
            "measure depth 0 alone, draft with ngram-simple, or use a GGUF with its MTP head",
        )
