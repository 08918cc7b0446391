"""What the shipped workflows show of the language: revisions, a variant, an effect per item, a schedule."""

import json
from pathlib import Path
from typing import Any

from tests.support.stack import DEFINITIONS, Dev

PRIYA = "priya@example.com"
LENA = "lena@example.com"


def demo(workflow: str, name: str) -> Any:
    return json.loads((Path(DEFINITIONS) / "workflows" / workflow / "demo" / name).read_text("utf-8"))


def start(dev: Dev, workflow: str, **body: Any) -> str:
    answer = dev.call("POST", f"/definitions/{workflow}/runs", by=PRIYA, json={"project_id": "core", **body})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["run_id"])


def test_a_proposal_is_sent_back_revised_and_noted_once(dev: Dev) -> None:
    run_id = start(dev, "growth-proposal", context=demo("growth-proposal", "context.json"))
    run = dev.play(run_id, demo("growth-proposal", "decisions.json"))
    assert (run["state"], run["outcome"]) == ("completed", "succeeded")
    [call] = dev.calls(run_id)
    assert call["tool"] == "create_record"
    assert call["arguments"]["sobject"] == "Note"
    fields = call["arguments"]["fields"]
    assert fields["ParentId"] == "0065g00000XyZbQAAV"
    assert fields["Title"] == "Atlântico Ports: berth slots that carriers book themselves", "as the person revised it"
    assert "trial" in fields["Body"], "what the second round answered"


def test_the_variant_asks_its_own_presales(dev: Dev) -> None:
    run_id = start(dev, "growth-proposal", context=demo("growth-proposal", "context.json"), variant="uk")
    asked = dev.waiting(run_id, "presales_review")
    assert dev.decide(asked["decision_id"], "approve", by=PRIYA).status_code == 403
    assert dev.decide(asked["decision_id"], "approve", by=LENA).status_code == 200
    assert dev.ended(run_id)["outcome"] == "succeeded"
    assert len(dev.calls(run_id)) == 1


def test_each_approved_action_is_filed_as_an_issue(dev: Dev) -> None:
    run_id = start(dev, "pmo-review")
    run = dev.play(run_id, demo("pmo-review", "decisions.json"))
    assert (run["state"], run["outcome"]) == ("completed", "succeeded")
    calls = dev.calls(run_id)
    assert {(call["tool"], call["arguments"]["projectKey"]) for call in calls} == {("createJiraIssue", "FERRY")}
    actions = demo("pmo-review", "model.json")[0]["output"]["actions"]
    assert sorted(call["arguments"]["summary"] for call in calls) == sorted(a["issue"]["summary"] for a in actions)


def test_the_review_is_due_on_mondays(dev: Dev) -> None:
    [schedule] = dev.get("/schedules", definition="pmo-review")["items"]
    assert (schedule["line"], schedule["timezone"], schedule["state"]) == ("0 0 7 * * MON", "Europe/Lisbon", "active")
    assert all("T07:00:00" in slot["local"] for slot in schedule["next"])
