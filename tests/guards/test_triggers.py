"""Unique things have derived ids: a batch that holds one that exists records all the others, and that one too."""

from dataclasses import replace

from contracts import ids
from contracts.events.run import RunCreated, Trigger, UserRef
from libs.bus.port import ACK
from libs.domain import run
from libs.domain.inbound import trigger_key
from tests.service.test_ingest import RUN_AS, World, world

__all__ = ["world"]

BATCH = 200


async def test_one_run_that_exists_leaves_199_others_recorded(world: World) -> None:
    await world.sync("core-dev")
    deliveries = [replace(world.delivery(str(n)), keys={"jira_key": f"CORE-{n}", "to": "Ready"}) for n in range(BATCH)]
    twice = deliveries[BATCH // 2]
    run_id = ids.triggered_run(world.record.group, "core-dev", trigger_key("jira", twice.external_id))
    begun = RunCreated(
        at=await world.record.store.now(),
        definition_id="core-dev",
        hash="0" * 64,
        bundle=await world.record.keep({}),
        context={},
        initiated_by=UserRef(id=ids.user(world.record.group, RUN_AS), email=RUN_AS),
        trigger=Trigger(kind="manual"),
    )
    await world.record.plant(run.CATEGORY, run_id, begun)
    for delivery in deliveries:
        assert await world.accept(delivery)

    dispositions = await world.buses[0].notify("jira", *(delivery.id for delivery in deliveries))

    assert dispositions == [ACK] * BATCH
    assert await world.record.types("run", run_id) == ["run.created"]
    started = {start.run_id for delivery in deliveries for start in (await world.routed(delivery)).started}
    assert len(started) == BATCH
