"""The results of runs that are completed by hand: they are read as the function's own would be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.codec import check_size, value_codec
from mainspring.errors import InvalidInput, NotSerializable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.engine.registry import Registry


def results_by_hand(registry: Registry, value: Any, limit: int) -> Callable[[str], str]:
    """What is stored, for a function of a given name, when one of its runs is completed with `value`.

    Whatever is not JSON or too large is an error now, what does not fit the function's annotation when its name is given.
    """
    loose = value_codec(Any, "the result of a run that is completed by hand")
    codecs = {function.name: function.codec.result for function in registry}
    texts: dict[str, str] = {}

    def text_for(workflow: str) -> str:
        if workflow not in texts:
            codec = codecs.get(workflow, loose)
            try:
                text = codec.encode(value)
                codec.decode(text)  # a class of the user's may refuse what was written
            except NotSerializable as error:
                raise InvalidInput(
                    f"{workflow!r} cannot be completed with {value!r}: {error} Give a result= of the type that it returns"
                ) from None
            texts[workflow] = check_size(text, value, limit, f"a result for {workflow!r}")
        return texts[workflow]

    return text_for
