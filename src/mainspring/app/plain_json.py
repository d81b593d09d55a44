"""Results as a client sees them, which has no code and so knows no types: plain JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias, cast

if TYPE_CHECKING:
    from mainspring.codec import ValueCodec

JSON: TypeAlias = bool | int | float | str | list["JSON"] | dict[str, "JSON"] | None
"""What a run of a function whose code is elsewhere comes to: a Decimal is a string, a dataclass a dict."""


class _PlainJson:
    """Reads stored results as they are."""

    annotation: object = object
    where = "the result of a run"

    def decode(self, text: str) -> JSON:
        found: JSON = json.loads(text)
        return found


PLAIN_JSON = cast("ValueCodec", _PlainJson())
