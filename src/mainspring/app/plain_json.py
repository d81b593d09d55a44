"""Results as a client decodes them: plain JSON, because a client has no code and so no types."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias, cast

if TYPE_CHECKING:
    from mainspring.codec import ValueCodec

JSON: TypeAlias = bool | int | float | str | list["JSON"] | dict[str, "JSON"] | None
"""The result of a run whose function's code is elsewhere: a Decimal is a string, a dataclass a dict."""


class _PlainJson:
    """Decodes stored results without types."""

    annotation: object = object
    where = "the result of a run"

    def decode(self, text: str) -> JSON:
        found: JSON = json.loads(text)
        return found


PLAIN_JSON = cast("ValueCodec", _PlainJson())
