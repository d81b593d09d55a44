"""The examples in the documentation of recurrence run, and the specs in it are read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mainspring.recurrence import Spec

PAGE = (Path(__file__).parents[2] / "docs" / "recurrence.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"))
def test_an_example_runs(code: str) -> None:
    scope: dict[str, Any] = {}
    exec(code, scope)


@pytest.mark.parametrize("text", blocks("json"))
def test_a_spec_in_json_is_read(text: str) -> None:
    assert Spec.from_dict(json.loads(text)).next(1_800_000_000) is not None
