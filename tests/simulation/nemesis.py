"""What comes from outside and breaks things: deaths, freezes, clocks that jump, a bus that forgets, servers that go."""

import asyncio
from datetime import timedelta

from contracts.subjects import DURABLES, STREAMS
from services.scheduler.incarnations import OPEN
from tests.simulation.faults import QUIET
from tests.simulation.world import Replica, World


async def haunt(world: World) -> None:
    """Break something again and again, by what this seed's profile allows."""
    if not world.faults.nemeses:
        return
    while True:
        await asyncio.sleep(world.random.expovariate(1 / world.faults.nemesis_seconds))
        kind = world.random.choice(world.faults.nemeses)
        world.note("nemesis", kind)
        world.count(kind)
        _strike(world, kind)


def heal(world: World) -> None:
    """End every fault. What is down comes back by itself."""
    world.faults = QUIET
    world.take_database(0.0)
    world.take_bus(0.0)
    for replica in world.replicas:
        if replica.process is not None:
            replica.process.thaw()
    world.note("nemesis", "goes")


def _strike(world: World, kind: str) -> None:
    random = world.random
    match kind:
        case "kill":
            _kill(random.choice(world.replicas))
        case "kill_everything":
            for replica in world.replicas:
                _kill(replica)
        case "freeze":
            if (process := random.choice(world.replicas).process) is not None:
                world.stall(process)
        case "drain":
            world.apart(random.choice(world.replicas).drain(), "a drain")
        case "jump" if world.faults.settled and world.auditor.effects.may_be_under_way(world.store.clock):
            world.note("nemesis", "lets the clock be")
        case "jump":
            world.jump(timedelta(seconds=random.choice((5, 40, 200, 900)) * random.random()))
        case "jump_back":
            world.jump(timedelta(seconds=-2 * random.random()))
        case "power_cut":
            for replica in world.replicas:
                _kill(replica)
            _wipe(world, 1.0)
        case "wipe_bus":
            _wipe(world, 0.8)
        case "delete_durable":
            durable = random.choice(DURABLES)
            if world.broker.exists(durable):
                world.broker.delete(durable)
        case "early_wakes":
            for category, states in OPEN.items():
                world.apart(world.store.wake_open(category, states, limit=1_000), "wakes that come early")
        case "database_away":
            world.take_database(random.choice((0.5, 5.0, 40.0)) * random.random())
        case "bus_away":
            world.take_bus(random.choice((0.5, 5.0, 40.0)) * random.random())


def _wipe(world: World, chance: float) -> None:
    """The bus loses the storage of each stream with this chance."""
    for name in [stream.name for stream in STREAMS if stream.name in world.broker.incarnations()]:
        if world.random.random() < chance:
            world.broker.delete_stream(name)


def _kill(replica: Replica) -> None:
    if replica.process is not None:
        replica.process.kill("by a nemesis")
