"""The description of the API is true: whatever it allows is answered as it says, and nothing breaks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring.web.site import ACTIONS, VIEWS
from tests.support.samples import of

if TYPE_CHECKING:
    from tests.web.conftest import Shop

EXAMPLES = of(400, 15)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much, HealthCheck.large_base_example]
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=50),
    st.sampled_from(["", "order-4", "nightly", "mail", "\x00", "\ud800", "🪤" * 100, "x" * 5_000, "1/1m", "[]", "{}"]),
    st.lists(st.text(max_size=5), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


async def test_every_view_and_action_is_described_with_its_parameters(one_shop: Shop) -> None:
    async with one_shop.asking(prefix="/ops") as asking:
        found = (await asking.get("/ops/api/openapi.json")).json()
    assert found["servers"] == [{"url": "/ops"}]
    for view in VIEWS:
        path = view.path.replace(":path", "")
        described = found["paths"][f"/api{path}"]["get"]
        names = {each["name"] for each in described["parameters"]}
        assert names == set(view.query.__struct_fields__), path
    for action in ACTIONS:
        described = found["paths"][f"/api{action.path}"]["post"]
        reference = described["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert set(found["components"]["schemas"][reference]["properties"]) == set(action.body.__struct_fields__)
    operations = [each["operationId"] for path in found["paths"].values() for each in path.values()]
    assert len(set(operations)) == len(operations)


async def test_answers_are_what_the_description_says(one_shop: Shop) -> None:
    places = {
        "/runs/{id:path}": "/runs/order-2",
        "/schedules/{id:path}": "/schedules/nightly",
        "/queues/{name:path}": "/queues/mail",
        "/workflows/{name:path}": "/workflows/checkout",
    }
    extra = {
        "/runs/timeline": "?id=order-2",
        "/runs/count": "?verb=retry&matching=state%3Dfailed",
        "/schedules/preview": '?spec={"cron":["0 9 * * *"]}',
        "/schedules/backfill-preview": "?id=nightly&start=2026-01-01T00:00:00Z&end=2026-01-02T00:00:00Z",
    }
    async with one_shop.asking() as asking:
        for view in VIEWS:
            path = places.get(view.path, view.path) + extra.get(view.path, "")
            answer = await asking.get(f"/api{path}")
            assert answer.status_code == 200, (path, answer.text)
            msgspec.json.decode(answer.content, type=view.answer)


@pytest.mark.sampled
async def test_whatever_is_sent_is_answered_with_a_sentence(shop: Shop) -> None:
    """Every parameter and every field, with values that nobody expects."""
    requests: list[tuple[str, str, Any]] = []

    @settings(max_examples=EXAMPLES, database=None, deadline=None, suppress_health_check=SLOW)
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        view = data.draw(st.sampled_from(VIEWS))
        query = {name: data.draw(ODD) for name in view.query.__struct_fields__ if data.draw(st.booleans())}
        requests.append(("GET", view.path.replace("{id:path}", "order-1").replace("{name:path}", "mail"), query))
        action = data.draw(st.sampled_from(ACTIONS))
        fields = data.draw(st.sets(st.sampled_from(action.body.__struct_fields__)))
        requests.append(("POST", action.path, {name: data.draw(ODD) for name in fields}))

    collect()
    async with shop.asking() as asking:
        for method, path, values in requests:
            if method == "GET":
                query = {name: str(value).encode("utf-8", "replace").decode() for name, value in values.items()}
                answers = [await asking.get(f"/api{path}", params=query), await asking.get(path, params=query)]
            else:
                body = json.dumps(values).encode("utf-8", "replace")
                answers = [await asking.post(f"/api{path}", content=body, headers={"content-type": "application/json"})]
            for answer in answers:
                assert answer.status_code in {200, 400, 404, 409}, (method, path, values, answer.text[:300])


@pytest.mark.sampled
async def test_a_reader_of_openapi_finds_nothing_wrong(shop: Shop) -> None:
    """schemathesis reads the description and makes requests of its own from it."""
    schemathesis: Any = pytest.importorskip("schemathesis")
    async with shop.asking() as asking:
        raw = (await asking.get("/api/openapi.json")).json()
        schema = schemathesis.openapi.from_dict(raw)
        operations = [each.ok() for each in schema.get_all_operations()]
        assert len(operations) == len(VIEWS) + len(ACTIONS)
        cases: list[Any] = []
        for operation in operations:

            @settings(
                max_examples=max(2, EXAMPLES // 10),
                database=None,
                deadline=None,
                suppress_health_check=SLOW,
            )
            @given(operation.as_strategy())
            def collect(case: Any) -> None:
                cases.append(case)

            collect()
        for case in cases:
            made = case.as_transport_kwargs(base_url="http://localhost")
            made.pop("cookies", None)
            made["headers"] = {
                name: value for name, value in dict(made.get("headers") or {}).items() if isinstance(value, str)
            }
            sent = await asking.request(
                made["method"], made["url"], params=made.get("params"), json=made.get("json"), headers=made["headers"]
            )
            assert sent.status_code < 500, (
                made["method"],
                made["url"],
                made.get("params"),
                made.get("json"),
                sent.text[:300],
            )


async def test_a_parameter_that_does_not_exist_is_refused_by_the_api(shop: Shop) -> None:
    async with shop.asking() as asking:
        answer = await asking.get("/api/runs", params={"sate": "failed"})
        assert (answer.status_code, answer.json()["error"]) == (
            400,
            "there is no parameter 'sate' here; did you mean state?",
        )
        assert (await asking.get("/api/schedules", params={"xyz": "1"})).status_code == 400
        assert (await asking.get("/runs", params={"sate": "failed"})).status_code == 200


async def test_a_schedule_takes_the_objects_that_it_is_shown_with(shop: Shop) -> None:
    async with shop.asking() as asking:
        shown = (await asking.get("/api/schedules/nightly")).json()["schedule"]
        body = {"id": "copy", "workflow": shown["workflow"]}
        body |= {"spec": shown["spec"], "policy": {"maxRunning": 2}}
        made = await asking.post("/api/schedules/create", json=body)
        assert made.status_code == 200, made.text
        assert (await asking.get("/api/schedules/copy")).json()["schedule"]["spec"] == shown["spec"]
        refused = await asking.post(
            "/api/schedules/update", json={"id": "copy", "spec": {"cron": ["99 * * * *"], "x": 1}}
        )
        assert refused.status_code == 400
        for part in ("x: is not a key of a spec", "cron[0].minute: 99"):
            assert part in refused.json()["error"]
