"""The options of a call (`fn.options(…)`), checked when they are given."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec

from mainspring.engine.retry import Retry, stored
from mainspring.errors import InvalidInput
from mainspring.model.given import attributes_json, check_flag, check_text, check_time, explained
from mainspring.model.ids import check_run_id
from mainspring.model.keys import KeyMode
from mainspring.operations.queues import check_queue_name
from mainspring.recurrence.durations import micros

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mainspring.app.declarations.declared import DeclaredQueue

Duration = timedelta | float | str
Moment = datetime | float
KeyModeName = Literal["replace", "preserve_run_at", "unsafe_dedupe", "return_existing", "reject"]
KEY_MODES = tuple(mode.value for mode in KeyMode if mode is not KeyMode.DEBOUNCE)


@explained()
@dataclass(frozen=True, slots=True)
class Debounce:
    """Delay a run until no call with its key has come for `wait`. The calls share one run, with the input of the last call.

    Each call restarts the wait; `max_wait` limits the delay after the first call.
    """

    key: str
    wait: Duration
    max_wait: Duration | None = None

    def __post_init__(self) -> None:
        _short_text("the key of debounce", self.key)
        if micros(self.wait) <= 0:
            raise InvalidInput(f"Debounce: wait is a length of time, not {self.wait!r}")
        if self.max_wait is not None and micros(self.max_wait) < micros(self.wait):
            raise InvalidInput(f"Debounce: max_wait ({self.max_wait!r}) is shorter than wait ({self.wait!r})")


class OptionArguments(TypedDict, total=False):
    """The keyword arguments of `options(…)`."""

    id: str
    timeout: Duration | None
    after: Duration
    at: Moment
    attributes: Mapping[str, Any]
    detached: bool
    version: str
    queue: str | DeclaredQueue
    priority: int
    partition: str
    key: str
    key_mode: KeyModeName
    debounce: Debounce
    retry: Retry | int
    user: str


_KNOWN = frozenset(OptionArguments.__annotations__)


class Options(msgspec.Struct, frozen=True):
    """Checked options, with times in microseconds."""

    id: str | None = None
    timeout: int | None = None
    after: int | None = None
    at: int | None = None
    attributes: str | None = None
    detached: bool = False
    version: str | None = None
    no_timeout: bool = False
    queue: str | None = None
    priority: int = 0
    partition: str = ""
    key: str | None = None
    key_mode: str | None = None
    debounce: Debounce | None = None
    retry: str | None = None
    user: str | None = None
    """The user of the run, stored as its attribute `user`."""

    @property
    def parentless(self) -> bool:
        """Whether a run that is started in a run is no child of it. A debounced run may be shared by several runs."""
        return self.detached or self.debounce is not None

    def with_(self, given: OptionArguments) -> Options:
        """Return these options with others on top."""
        if not _KNOWN.issuperset(given):
            unknown = given.keys() - _KNOWN
            known = ", ".join(sorted(_KNOWN))
            raise InvalidInput(f"options: there is no option {', '.join(sorted(unknown))}; there are {known}")
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name == "timeout":
                values["timeout"], values["no_timeout"] = None if value is None else _positive(value), value is None
            else:
                values[name] = _CHECKS[name](value)
        made = msgspec.structs.replace(self, **values)
        if made.after is not None and made.at is not None:
            raise InvalidInput("options: give `after` or `at`, not both")
        _check_keys(made)
        return made


def _check_keys(made: Options) -> None:
    if made.key_mode is not None and made.key is None:
        raise InvalidInput("options: key_mode says what to do about a run with the same key; give key= as well")
    if made.debounce is not None:
        wrong = [name for name in ("key", "after", "at") if getattr(made, name) is not None]
        if wrong:
            raise InvalidInput(f"options: debounce says when, and has a key of its own; leave out {', '.join(wrong)}")


def _key_mode(value: Any) -> str:
    if value not in KEY_MODES:
        raise InvalidInput(f"options: key_mode is one of {', '.join(KEY_MODES)}, not {value!r}")
    return str(value)


def _debounce(value: Any) -> Debounce:
    if not isinstance(value, Debounce):
        raise InvalidInput(f"options: debounce is a Debounce(key, wait), not {value!r}")
    return value


def _version(value: Any) -> str:
    if not check_text("options: version", value).strip():
        raise InvalidInput(f"options: version is a word, not {value!r}")
    return str(value)


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise InvalidInput(f"options: priority is a whole number, smaller ones first, not {value!r}")
    return value


def _partition(value: Any) -> str:
    return _short_text("partition", value)


def _short_text(name: str, value: Any) -> str:
    return check_text(f"options: {name}", value)


def _positive(value: Any) -> int:
    found = micros(value)
    if found <= 0:
        raise InvalidInput(f"options: a timeout must be longer than zero, not {value!r}")
    return found


def moment(value: Moment) -> int:
    """A point in time in microseconds: an aware datetime, or seconds since 1970."""
    return check_time("the time", value)


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "id": check_run_id,
    "after": micros,
    "at": moment,
    "attributes": lambda value: attributes_json(value, "options: attributes"),
    "detached": lambda value: check_flag("options: detached", value),
    "version": _version,
    "queue": lambda value: check_queue_name(getattr(value, "name", value)),
    "priority": _priority,
    "partition": _partition,
    "key": lambda value: _short_text("key", value),
    "key_mode": _key_mode,
    "debounce": _debounce,
    "retry": lambda value: stored(Retry.of(value)),
    "user": lambda value: _short_text("user", value),
}
