"""Arrays that are sent as text arrive as they are."""

from __future__ import annotations

import psycopg
import pytest

from mainspring.store.postgres.libpq import array

TEXTS = ["", "a", "NULL", 'say "x"', "back\\slash", "{1,2}", "a,b", " space ", "line\n", "\\", '"', "é𝄞"]


@pytest.mark.parametrize("texts", [[], [""], TEXTS, [None], [*TEXTS, None, "after"]])
def test_texts_arrive_as_they_are(postgres_url: str, texts: list[str | None]) -> None:
    with psycopg.connect(postgres_url) as db:
        assert db.execute("SELECT %s::text[]", [array(texts)]).fetchone() == (texts,)


def test_a_zero_byte_is_refused_and_divides_nothing() -> None:
    for texts in (["a\0b"], ["a", "b\0"], ["\0", None]):
        with pytest.raises(psycopg.DataError, match="NUL"):
            array(texts)
