"""Shapes as models: ``shape:NAME:QUANTIZATION`` names a file in the cache, written when asked for.

``shape:qwen3.6-27b`` has a hole for its weights, ``shape:qwen3.5-0.8b:q8_0:random`` random numbers.
The name stands for the file everywhere, so that a stored page needs no path.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from analysis import digests, shape_file, shapes
from analysis.errors import ModelError, SpecError
from analysis.quantization import MIXES, Mix, tensor_bytes
from analysis.shapes import Shape

PREFIX = "shape:"
DEFAULT_QUANTIZATION = "q4_k_m"
RANDOM_MOST_BYTES = 8 * 2**30  # of contents that must be made up and written
_FORM = 1  # of the files: raised when the same name would give another file
_SPARE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class ShapeModel:
    """A shape in a quantization, with a hole or random numbers for its weights."""

    shape: Shape
    quantization: str = DEFAULT_QUANTIZATION
    contents: str = shape_file.HOLE

    def __post_init__(self) -> None:
        Mix(self.quantization, 1)  # a name that is not known is an error
        if self.contents not in shape_file.CONTENTS:
            raise SpecError(
                f"a shape has no contents called {self.contents}",
                "",
                f"known are {', '.join(shape_file.CONTENTS)}",
            )

    @property
    def text(self) -> str:
        """The name by which parameters call it."""
        random = [self.contents] if self.contents == shape_file.RANDOM else []
        return PREFIX + ":".join([self.shape.name, self.quantization, *random])

    @property
    def file_name(self) -> str:
        """The name of its file in the cache."""
        random = "-random" if self.contents == shape_file.RANDOM else ""
        return f"{self.shape.name}-{self.quantization}{random}-shape.gguf"

    @property
    def weight_bytes(self) -> int:
        """The size of all weights, which the file declares."""
        mix = Mix(self.quantization, self.shape.blocks, tied=self.shape.tied == "yes")
        return sum(tensor_bytes(size, mix.kind(n, size)) for n, size in shapes.tensors(self.shape))


def named(model: str) -> bool:
    """Tell whether a parameter `model` names a shape rather than a file."""
    return model.lower().startswith(PREFIX)


def parse(model: str) -> ShapeModel:
    """Read ``shape:NAME[:QUANTIZATION[:CONTENTS]]``.

    Raises
    ------
    SpecError
        If a part is not known; the message lists what is.
    """
    name, *more = model.lower().removeprefix(PREFIX).split(":")
    quantization, contents, *rest = [*more, "", ""]
    if any(rest):
        raise SpecError(
            "a shape is named by up to three parts",
            model,
            f"{PREFIX}NAME:QUANTIZATION:random, with the quantizations {', '.join(MIXES)}",
        )
    return ShapeModel(
        shapes.shape(name), quantization or DEFAULT_QUANTIZATION, contents or shape_file.HOLE
    )


def canonical(model: str) -> str:
    """Return the one name of a shape, given by any name or by its file; others as they are."""
    if named(model):
        return parse(model).text
    path = Path(model).expanduser()
    said = ""
    with suppress(OSError):
        said = shape_file.said_of(path) if path.is_file() else ""
    return parse(PREFIX + said).text if said else model


def cached(model: str) -> Path:
    """Return the file of a shape in the cache, written first where it is not there.

    Raises
    ------
    SpecError
        If the name is not known, or the contents would be too large.
    ModelError
        If the file can not be written.
    """
    wanted = parse(model)
    folder = digests.cache_folder() / "shapes" / f"form-{_FORM}"
    path = folder / wanted.file_name
    if not path.is_file():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(path, error) from None
        make(wanted, path)
    return path


def make(wanted: ShapeModel, path: Path) -> None:
    """Write a shape's file, replacing one that is there; an interruption leaves none or the old.

    Raises
    ------
    SpecError
        If the contents would be too large.
    ModelError
        If the file can not be written.
    """
    random = wanted.contents == shape_file.RANDOM
    if random and wanted.weight_bytes > RANDOM_MOST_BYTES:
        raise SpecError(
            f"random contents are made up to {_gib(RANDOM_MOST_BYTES)}",
            f"{wanted.shape.name} in {wanted.quantization} has {_gib(wanted.weight_bytes)}",
            "leave the weights out (contents hole), or take a smaller shape",
        )
    if not path.parent.is_dir():
        raise ModelError("the folder is not there", path.parent.name, "make it first")
    needed = _SPARE_BYTES + (wanted.weight_bytes if random else 0)
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise ModelError(
            f"no room for {path.name}", f"{_gib(free)} free of {_gib(needed)}", "free some space"
        )
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        shape_file.write(wanted.shape, aside, wanted.quantization, wanted.contents)
        aside.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        aside.unlink(missing_ok=True)


def _unwritable(path: Path, error: OSError) -> ModelError:
    return ModelError(
        f"{path.name} can not be written", str(error.strerror), "choose another folder"
    )


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
