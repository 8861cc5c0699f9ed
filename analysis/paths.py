"""Taking the paths of this machine out of what is stored and published."""

from __future__ import annotations

import re

_ABSOLUTE = re.compile(r"(^|=)(?:~|[A-Za-z]:)?[\\/](?:.*[\\/])?([^\\/]*)$")


_QUOTED = re.compile(r"(['\"])(?:~|[A-Za-z]:)?[\\/](?:[^'\"]*[\\/])?([^'\"\\/]*)\1")
_BARE = re.compile(r"(?<![\w:/.'\"])(?:~|[A-Za-z]:)?/(?:[^\s'\"|/]+/)+")


def without_folders(text: str) -> str:
    """Return text, such as lines of a log, with each absolute path cut to its last part."""
    return _BARE.sub("", _QUOTED.sub(r"\1\2\1", text))


def last_part(path: str) -> str:
    """Return a path's last part."""
    return path.replace("\\", "/").rsplit("/", 1)[-1]


def redacted(word: str) -> str:
    r"""Return a word of a command line without its folder, if it is or holds an absolute path.

    ``--lora=/a/b`` becomes ``--lora=b``; a pattern such as ``blk\.1\.ffn=CPU`` stays as it is.
    """
    return _ABSOLUTE.sub(r"\1\2", word)
