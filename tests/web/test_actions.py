"""Every action, by form and by JSON, on a live app; and the record of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mainspring import Spec
from mainspring.app.declarations.schedules import define
from mainspring.operations.runs import bulk
from mainspring.operations.schedules.declared import Declared
from mainspring.web import User
from mainspring.web.site import ACTIONS
from tests.web.conftest import form

if TYPE_CHECKING:
    import httpx
    from starlette.requests import HTTPConnection

    from tests.web.conftest import Shop


def _ada(request: HTTPConnection) -> User:
    del request
    return User("ada")


async def done(asking: httpx.AsyncClient, path: str, **fields: Any) -> str:
    """What the page says after an action by form."""
    answer = await form(asking, path, back="/audit", **fields)
    assert (answer.status_code, answer.headers["location"]) == (303, "/audit"), answer.text
    return (await asking.get("/audit")).text


async def test_runs_are_cancelled_and_terminated_and_the_page_says_so(shop: Shop) -> None:
    await shop.checkout.options(id="order-5").start("slow")
    await shop.world.advance("1s")
    async with shop.asking() as asking:
        assert "order-4 is cancelled" in await done(asking, "/runs/cancel", ids="order-4", reason="by mistake")
        assert "order-5 is terminated" in await done(asking, "/runs/terminate", ids="order-5")
        assert "order-1 had ended before" in await done(asking, "/runs/cancel", ids="order-1")
        many = await done(asking, "/runs/cancel", ids=["order-1", "order-2"])
        assert "0 runs cancelled; 2 had ended before" in many
    await shop.world.advance("1s")
    assert (await shop.app.runs.get("order-4")).reason == "by mistake"
    assert (await shop.app.runs.get("order-5")).state == "cancelled"


async def test_what_differs_from_the_code_is_said_and_goes_back_by_a_click(shop: Shop) -> None:
    definition = define("declared", shop.report.bind("eu"), Spec(intervals=["1h"]), None, note="for the office")
    Declared(
        shop.app._runtime.connection().store, shop.world.clock, shop.app._runtime.ids, app=shop.app.name, version="v1"
    ).apply([definition], alone=True)
    async with shop.asking() as asking:
        assert "differs from the code" not in (await asking.get("/schedules")).text
        await done(asking, "/schedules/update", id="declared", spec='{"intervals": ["2h"]}')
        await done(asking, "/schedules/pause", id="declared", reason="holidays")
        assert "differs from the code" in (await asking.get("/schedules")).text
        page = (await asking.get("/schedules/declared")).text
        assert "It differs from the code, in spec" in page
        assert "for the office" in page
        assert "holidays" in page
        assert "Upcoming, once it is resumed" in page
        assert "declared is as declared again" in await done(asking, "/schedules/reset", id="declared")
        found = await shop.app.schedules.describe("declared")
        assert (found.differs, found.spec["intervals"], found.paused) == ([], [{"every": "1h"}], True)


async def test_runs_are_retried_resumed_forked_and_deleted(shop: Shop) -> None:
    async with shop.asking() as asking:
        await done(asking, "/runs/cancel", ids="order-4")
        await shop.world.advance("1s")
        assert "order-4 is queued again" in await done(asking, "/runs/resume", ids="order-4")
        assert "order-3 is queued again" in await done(asking, "/runs/retry", ids="order-3")
        assert "order-1 has not failed" in await done(asking, "/runs/retry", ids="order-1")
        assert "forked: " in await done(asking, "/runs/fork", ids="order-1", beginning="true")
        assert "forked: " in await done(asking, "/runs/fork", ids="order-1", step="1")
        lost = await asking.post("/api/runs/fork", json={"ids": ["order-1", "unknown"], "beginning": True})
        assert lost.status_code == 404
        await shop.world.advance("1m")
        forks = (await asking.get("/api/runs/order-1")).json()["forks"]
        assert [fork["forked_from"] for fork in forks] == ["order-1"] * 2  # none with an unknown one
        assert "forked from" in (await asking.get(f"/runs/{forks[0]['id']}")).text
        assert (await asking.get("/api/runs/order-3")).json()["run"]["state"] == "failed"
        assert (await asking.get("/api/runs/order-4")).json()["run"]["state"] == "waiting"
        assert "order-2 is deleted" in await done(asking, "/runs/delete", ids="order-2")
        assert (await asking.get("/runs/order-2")).status_code == 404


async def test_failed_runs_are_completed_marked_and_retried_later(shop: Shop) -> None:
    async with shop.asking() as asking:
        page = (await asking.get("/runs/order-3")).text
        for action in ("retry", "reschedule", "complete", "fail"):
            assert f'id="action-{action}"' in page
        assert "order-3 is marked as failed" in await done(asking, "/runs/fail", ids="order-3", reason="refunded")
        found = (await asking.get("/api/runs/order-3")).json()["run"]
        assert (found["state"], found["reason"], found["error"]["type"]) == (
            "failed",
            "refunded",
            "builtins:ValueError",
        )
        assert "order-3 is rescheduled" in await done(asking, "/runs/reschedule", ids="order-3", after="2h")
        page = (await asking.get("/runs/order-3")).text
        for action in ("reschedule", "complete", "fail", "cancel"):
            assert f'id="action-{action}"' in page
        found = (await asking.get("/api/runs/order-3")).json()["run"]
        assert (found["state"], found["due"]) == ("scheduled", "2026-03-27T12:00:03Z"), "two hours from now"
        answer = await asking.post("/api/runs/reschedule", json={"ids": ["order-3"], "at": "2026-04-01T00:00:00Z"})
        assert answer.json()["result"] == {"order-3": True}
        assert "order-3 is completed" in await done(asking, "/runs/complete", ids="order-3", result='{"by": "hand"}')
        found = (await asking.get("/api/runs/order-3")).json()["run"]
        assert (found["state"], found["output"]) == ("succeeded", {"by": "hand"})
        assert "order-3 has ended without failing" in await done(asking, "/runs/fail", ids="order-3")
        for path, wrong in (
            ("complete", {"result": "{"}),
            ("reschedule", {"after": "1h", "at": "2026-04-01T00:00:00Z"}),
            ("reschedule", {"after": "soon"}),
        ):
            refused = await asking.post(f"/api/runs/{path}", json={"ids": ["order-4"], **wrong})
            assert refused.status_code == 400, refused.text


async def test_a_schedule_is_paused_resumed_triggered_skipped_edited_filled_in_and_deleted(shop: Shop) -> None:
    async with shop.asking() as asking:
        assert "nightly is paused until 2026-04-01 00:00 UTC" in await done(
            asking, "/schedules/pause", id="nightly", until="2026-04-01T00:00", reason="holidays"
        )
        found = await shop.app.schedules.describe("nightly")
        assert (found.paused, found.note) == (True, "holidays")
        assert "nightly is active again" in await done(asking, "/schedules/resume", id="nightly")
        assert "nightly was triggered" in await done(asking, "/schedules/trigger", id="nightly", overlap="allow_all")
        assert "will skip 2026-03-28 08:00:00" in await done(asking, "/schedules/skip", id="nightly")
        assert "will not skip" in await done(asking, "/schedules/unskip", id="nightly", when="2026-03-28T08:00:00Z")
        filled = await done(
            asking, "/schedules/backfill", id="nightly", start="2026-03-01T00:00", end="2026-03-03T23:00", again="true"
        )
        assert "has begun" in filled
        await shop.world.advance("1m")
        (backfill,) = (await asking.get("/api/schedules/nightly")).json()["backfills"]
        assert (backfill["state"], backfill["started"]) == ("done", 3)
        edited = await done(asking, "/schedules/update", id="nightly", spec='{"cron": ["30 6 * * *"]}', revision="1")
        assert "revision" in edited  # somebody else had changed it since
        edited = await done(asking, "/schedules/update", id="nightly", spec='{"cron": ["30 6 * * *"]}')
        assert "nightly is now" in edited
        assert (await shop.app.schedules.describe("nightly")).upcoming[0].hour == 6
        assert "nightly is deleted" in await done(asking, "/schedules/delete", id="nightly")
        assert (await asking.get("/schedules/nightly")).status_code == 404


async def test_a_backfill_is_looked_at_before_and_stopped_half_way(one_shop: Shop) -> None:
    async with one_shop.asking() as asking:
        query = {"id": "nightly", "start": "2026-03-01T00:00:00Z", "end": "2026-03-05T00:00:00Z"}
        seen = (await asking.get("/api/schedules/backfill-preview", params=query)).json()
        assert [when[:10] for when in seen["times"]] == ["2026-03-01", "2026-03-02", "2026-03-03", "2026-03-04"]
        assert (await one_shop.app.schedules.describe("nightly")).starts == 0
        answer = (await asking.post("/api/schedules/backfill", json=query)).json()
        await one_shop.world.advance("1m")
        again = (await asking.get("/api/schedules/backfill-preview", params=query)).json()
        assert (again["times"], again["skipped"]) == ([], 4)
        backfill = answer["result"]["backfill"]
        stopped = await asking.post("/api/schedules/stop-backfill", json={"id": "nightly", "backfill": backfill})
        assert stopped.json()["result"]["state"] == "done"


async def test_an_edit_is_looked_at_before(one_shop: Shop) -> None:
    async with one_shop.asking() as asking:
        query = {"id": "nightly", "spec": '{"cron": ["30 6 * * mon"], "timezone": "Asia/Tokyo"}'}
        seen = (await asking.get("/api/schedules/preview", params=query)).json()
        page = (await asking.get("/schedules/preview", params=query)).text
    assert seen["upcoming"][0] == "2026-03-30T06:30:00+09:00"
    assert len(seen["gone"]) == 10
    assert "Asia/Tokyo" in page
    assert "<html" not in page


async def test_a_queue_is_changed_opened_paused_and_deleted(shop: Shop) -> None:
    async with shop.asking() as asking:
        assert (await asking.get("/api/queues/mail")).json()["partitions"][0]["ready"] == 1
        changed = await done(asking, "/queues/set", name="mail", concurrency="7", rate="100/1m", worker_concurrency="0")
        assert "queue mail has new limits" in changed
        limits = (await asking.get("/api/queues/mail")).json()["queue"]["limits"]
        assert (limits["concurrency"], limits["rate"], limits["worker_concurrency"]) == (7, "100/60s", None)
        assert "queue mail is resumed" in await done(asking, "/queues/resume", name="mail")
        await shop.world.advance("1s")
        assert (await asking.get("/api/runs/mail-1")).json()["run"]["state"] == "succeeded"
        assert "queue mail is paused" in await done(asking, "/queues/pause", name="mail")
        assert "a rate is a number" in await done(asking, "/queues/set", name="mail", rate="rubbish")
        assert "queue mail is deleted" in await done(asking, "/queues/delete", name="mail")
        assert (await asking.get("/queues/mail")).status_code == 404


async def test_pending_functions_are_cancelled_by_name(shop: Shop) -> None:
    async with shop.asking() as asking:
        assert "0 pending functions of nobody cancelled" in await done(asking, "/functions/cancel", name="nobody")
        assert "1 pending function of report cancelled" in await done(asking, "/functions/cancel", name="report")
        assert "0 pending functions cancelled" in await done(asking, "/functions/cancel", all="true")
        assert "Nothing is scheduled" in (await asking.get("/functions")).text


async def test_every_action_is_written_down_with_who_what_and_why(shop: Shop) -> None:
    async with shop.asking(auth=_ada) as asking:
        await asking.post("/api/schedules/pause", json={"id": "nightly", "reason": "holidays"})
        await shop.world.advance("1s")
        await asking.post("/api/runs/cancel", json={"ids": ["order-4"], "reason": "wrong"})
        await shop.world.advance("1s")
        missing = await asking.post("/api/schedules/pause", json={"id": "none"})
        assert missing.status_code == 404
        entries = (await asking.get("/api/audit")).json()["entries"]
        page = (await asking.get("/audit")).text
    assert [(entry["who"], entry["action"], entry["subject"], entry["reason"]) for entry in entries] == [
        ("ada", "schedules.pause", ["none"], None),
        ("ada", "runs.cancel", ["order-4"], "wrong"),
        ("ada", "schedules.pause", ["nightly"], "holidays"),
    ]
    assert "not found" in entries[0]["outcome"]["error"]
    assert entries[1]["outcome"] == {"order-4": True}
    assert "holidays" in page


async def test_what_cannot_be_written_down_is_not_done(one_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    from mainspring.errors import StoreUnavailable  # noqa: PLC0415
    from mainspring.store.verbs.audit import Audit  # noqa: PLC0415

    def fail(*_: object) -> None:
        raise StoreUnavailable("the database is away")

    monkeypatch.setattr(Audit, "note", fail)
    async with one_shop.asking() as asking:
        assert (await asking.post("/api/runs/cancel", json={"ids": ["order-4"]})).status_code == 503
    assert (await one_shop.app.runs.get("order-4")).state == "waiting"


async def test_a_wrong_request_changes_nothing_and_says_what_is_wrong(one_shop: Shop) -> None:
    async with one_shop.asking() as asking:
        for action in ACTIONS:
            for body in ("", "null", "[]", "{}", '{"id": 5}', '{"ids": "order-4"}', '{"ids": []}', "{" * 500):
                answer = await asking.post(
                    f"/api{action.path}", content=body, headers={"content-type": "application/json"}
                )
                assert answer.status_code == 400, (action.path, body, answer.text)
                assert answer.json()["error"]
        big = await asking.post("/api/runs/cancel", json={"ids": ["x" * 2_000_000]})
        assert big.status_code == 400
        assert all("error" in entry["outcome"] for entry in (await asking.get("/api/audit")).json()["entries"])


@pytest.mark.parametrize("verb", ["cancel", "terminate", "retry", "resume", "complete", "fail", "reschedule"])
async def test_what_is_asked_of_a_run_that_does_not_exist_is_not_done(shop: Shop, verb: str) -> None:
    async with shop.asking() as asking:
        answer = await asking.post(f"/api/runs/{verb}", json={"ids": ["does-not-exist"]})
        assert (answer.status_code, "does-not-exist" in answer.json()["error"]) == (404, True)
        (entry,) = (await asking.get("/api/audit")).json()["entries"]
        assert "error" in entry["outcome"]


async def test_a_cursor_that_no_page_gave_is_refused(shop: Shop) -> None:
    async with shop.asking() as asking:
        for path in ("/runs", "/audit"):
            assert (await asking.get(f"/api{path}?after=abc")).status_code == 400


async def test_all_runs_that_match_are_counted_and_acted_on_in_parts(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BATCH", 2)
    for number in range(5):
        await shop.checkout.options(id=f"more-{number}").start("slow")
    async with shop.asking() as asking:
        matching = "id_prefix=more-&workflow=checkout"
        asked = {"verb": "cancel", "matching": matching}
        assert (await asking.get("/api/runs/count", params=asked)).json() == {"count": 5}
        first = (await asking.post("/api/runs/cancel", json={"matching": matching, "most": 2})).json()
        assert (first["message"], first["result"]["changed"]) == ("2 runs cancelled", 2)
        rest = {"matching": matching, "next": first["result"]["next"], "reason": "all of them"}
        second = (await asking.post("/api/runs/cancel", json=rest)).json()
        assert second["result"] == {"changed": 3, "next": None}
        await shop.world.advance("1s")
        assert (await asking.get("/api/runs/count", params=asked)).json() == {"count": 0}
        assert "0 runs cancelled" in await done(asking, "/runs/cancel", matching=matching)
        for wrong in (
            {"matching": ""},
            {"matching": "limit=5"},
            {"matching": "owner=me"},
            {"ids": ["a"], "matching": "state=failed"},
            {},
        ):
            assert (await asking.post("/api/runs/cancel", json=wrong)).status_code == 400
        assert (await asking.get("/api/runs/count", params={"verb": "eat", "matching": matching})).status_code == 400
        entry = (await asking.get("/api/audit")).json()["entries"][-1]
        assert (entry["action"], entry["details"]["matching"]) == ("runs.cancel", matching)


async def test_a_schedule_is_created_and_all_of_it_is_edited(shop: Shop) -> None:
    async with shop.asking() as asking:
        fields = {"workflow": "report", "cron": "0 6 * * mon", "timezone": "Asia/Tokyo", "overlap": "buffer_one"}
        more = {
            "input:json:": '{"where": "jp"}',
            "note:text?:": "for tokyo",
            "catchup": "2h",
            "pause_on_failure": "true",
        }
        said = await done(asking, "/schedules/create", id="weekly", paused="true", **fields, **more)
        assert "weekly is created:" in said
        made = await shop.app.schedules.describe("weekly")
        assert (made.workflow, made.paused, made.note) == ("report", True, "for tokyo")
        assert (made.policy["overlap"], made.policy["pauseOnFailure"]) == ("buffer_one", True)
        assert made.upcoming[0].isoformat() == "2026-03-29T21:00:00+00:00"
        assert "there is a schedule" in await done(asking, "/schedules/create", id="weekly", **fields)
        change = {"id": "weekly", "input": {"where": "kr"}, "overlap": "skip", "note": None, "revision": made.revision}
        changed = await asking.post("/api/schedules/update", json=change)
        assert changed.status_code == 200, changed.text
        found = await shop.app.schedules.describe("weekly")
        assert (found.policy["overlap"], found.note, found.spec) == ("skip", None, made.spec)
        stale = await asking.post("/api/schedules/update", json={**change, "catchup": "3h"})
        assert (stale.status_code, "revision" in stale.json()["error"]) == (409, True)
        for wrong, words in (
            ({"id": "x", "workflow": "report"}, "spec must be given"),
            ({"id": "x", "cron": "0 6 * * *"}, "workflow must be given"),
            ({"id": "x", "workflow": "report", "cron": "99 * * * *"}, "99"),
            ({"id": "x", "workflow": "report", "cron": "0 6 * * *", "spec": "{}"}, "not both"),
        ):
            refused = await asking.post("/api/schedules/create", json=wrong)
            assert (refused.status_code, words in refused.json()["error"]) == (400, True), refused.text
        assert (await asking.post("/api/schedules/update", json={"id": "weekly"})).status_code == 400
        seen = (
            await asking.get("/api/schedules/preview", params={"cron": "0 6 * * mon", "timezone": "Asia/Tokyo"})
        ).json()
        assert seen["upcoming"][0] == "2026-03-30T06:00:00+09:00"


async def test_a_queue_is_created(shop: Shop) -> None:
    async with shop.asking() as asking:
        assert (await asking.post("/api/queues/set", json={"name": "fresh", "concurrency": 3})).status_code == 404
        assert "queue fresh" in await done(asking, "/queues/set", name="fresh", create="true", concurrency="3")
        assert (await asking.get("/api/queues/fresh")).json()["queue"]["limits"]["concurrency"] == 3


async def test_times_in_a_form_are_of_the_zone_that_it_names(shop: Shop) -> None:
    async with shop.asking() as asking:
        page = (await asking.get("/schedules/nightly")).text
        assert "From (Europe/Paris)" in page
        said = await done(asking, "/schedules/pause", id="nightly", until="2026-04-01T02:00", zone="Europe/Paris")
        assert "nightly is paused until 2026-04-01 00:00 UTC" in said
        asked = {"id": "nightly", "start": "2026-03-26T00:00", "end": "2026-03-26T09:00", "zone": "Europe/Paris"}
        seen = (await asking.get("/api/schedules/backfill-preview", params=asked)).json()
        assert seen["times"] == ["2026-03-26T09:00:00+01:00"]
        wrong = await asking.get("/api/schedules/backfill-preview", params=asked | {"zone": "Mars/Olympus"})
        assert (wrong.status_code, "no time zone" in wrong.text) == (400, True)


async def test_all_of_a_policy_can_be_changed(shop: Shop) -> None:
    async with shop.asking() as asking:
        policy = '{"maxRunning": 2, "limit": 7, "coalesce": true}'
        await done(asking, "/schedules/update", id="nightly", overlap="buffer_all", policy=policy, workflow="report")
        found = (await asking.get("/api/schedules/nightly")).json()["schedule"]["policy"]
        assert (found["overlap"], found["maxRunning"], found["limit"], found["coalesce"]) == ("buffer_all", 2, 7, True)
        wrong = await asking.post("/api/schedules/update", json={"id": "nightly", "policy": '["x"]'})
        assert (wrong.status_code, "JSON object" in wrong.text) == (400, True)


async def test_a_notice_is_for_the_page_that_comes_next_not_for_the_script_of_another(one_shop: Shop) -> None:
    async with one_shop.asking() as asking:
        await form(asking, "/runs/cancel", ids="order-4")
        for header in ("mainspring-refresh", "hx-request"):
            refreshed = await asking.get("/runs", headers={header: "1"})
            assert "order-4 is cancelled" not in refreshed.text
        assert "order-4 is cancelled" in (await asking.get("/runs")).text
        assert "order-4 is cancelled" not in (await asking.get("/runs")).text


async def test_the_record_of_a_start_leads_to_its_run(one_shop: Shop) -> None:
    async with one_shop.asking() as asking:
        made = (await asking.post("/api/runs/start", json={"workflow": "report"})).json()["run"]
        assert f'<a href="/runs/{made}">{made}</a>' in (await asking.get("/audit")).text
