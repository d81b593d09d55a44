"""A codec that a setting names, for processes without the app's code."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from mainspring.model.payloads import PayloadCodec


def named_codec(name: str) -> PayloadCodec | None:
    """The codec that `module:name` stands for; None for "none". The current folder is importable."""
    if name == "none":
        return None
    module, _, attribute = name.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        codec: PayloadCodec = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(f"the setting payloads is {name!r}, and not the module:name of a codec: {error}") from error
    if not (hasattr(codec, "encode") and hasattr(codec, "decode")):
        raise InvalidInput(f"the setting payloads names {codec!r}, which has no encode and decode")
    return codec
