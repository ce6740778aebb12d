"""How long a start takes on many ranks of one shared file system: an extrapolation from what one start asks of it.

The demand of one rank is measured here by strace, or given: --demand FILE, JSON of {name: {"opens", "names", "bytes",
"seconds"}} (opens of files, different names asked for, bytes read, seconds that a start takes where files cost
nothing). Its way through a metadata server and a link is a queue simulation (simpy). The first name is what the others
are compared with.

    uv run python -m tools.startup_scale                       16, 256, 4,096 and 16,384 ranks
    uv run python -m tools.startup_scale --ranks 1024 --rate 50000 --link 100
    uv run python -m tools.startup_scale --demand demand.json --json FILE

Takes a minute or two; of it 16,384 ranks most.
"""

import argparse
import json
import random
import statistics
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from tools.proof import PYZ, need_pyz

GROUP = "uv run python -m tools.startup_scale"
RANKS = (16, 256, 4096, 16384)
PIECES = 20  # in which a client asks for what it needs
ASSUMED = """assumed:
  the metadata server answers {rate:,.0f} requests/s, one after the other in the order in which they come; a request
    takes {latency:g} ms of network besides, and a client asks for one name after the other, as an import does
  the file server gives {link:g} Gbit/s to all clients together, in the order in which they ask
  {per_node} ranks a node, all started within {spread:g} s
  plain: the ranks of a node start together and share its kernel's caches, so each name and each byte comes to a node
    once; but each open of each rank is a request, since closed files are asked for again (close-to-open)
  ours: one process of a node reads, the other ranks are forked from it or read what it has put node-locally
  bytes measured by strace alone count every mapped file as read whole: an upper bound
  a client's requests are simulated in {pieces} pieces, each served in one go for as long as its requests take one by
    one; its wait in the queue may be wrong by the service of one piece of each client"""


class Demand(NamedTuple):
    """What the start of one rank asks for; `seconds`: what it takes besides."""

    opens: int
    names: int
    bytes: int
    seconds: float


class Service(NamedTuple):
    """`rate`: metadata requests a second; `latency`: seconds a request; `link`: bytes a second."""

    rate: float
    latency: float
    link: float


class Client(NamedTuple):
    """What one client of the server does: `requests`, one after the other, `bytes`, `seconds` of its own."""

    requests: float
    bytes: float
    seconds: float


class Outcome(NamedTuple):
    """Seconds from the start of the job: when the first, the middle and the last client were done; the mean wait of a
    piece in the metadata server's queue."""

    first: float
    middle: float
    last: float
    mean_wait: float


def clients(demand: Demand, ranks: int, per_node: int, *, one_reader: bool) -> list[Client]:
    """The clients of a job: a process a node, or all ranks, of which one a node asks for what its node has not yet."""
    per_node = min(per_node, ranks)
    reader = Client(demand.opens + demand.names, demand.bytes, demand.seconds)
    if one_reader:
        return [reader] * (ranks // per_node)
    other = Client(demand.opens, 0, demand.seconds)
    return ([reader] + [other] * (per_node - 1)) * (ranks // per_node)


def simulate(all_of: list[Client], service: Service, starts: list[float], pieces: int = PIECES) -> Outcome:
    """Runs the clients, each from its start, through the two queues."""
    import simpy

    env = simpy.Environment()
    metadata, link = simpy.Resource(env, 1), simpy.Resource(env, 1)
    done: list[float] = []
    waits: list[float] = []

    def through(client: Client, start: float) -> Any:
        yield env.timeout(start)
        for _ in range(pieces):
            yield env.timeout(client.seconds / pieces)
            requests = client.requests / pieces
            if requests:
                asked = env.now
                with metadata.request() as turn:
                    yield turn
                    waits.append(env.now - asked)
                    yield env.timeout(requests / service.rate)
                yield env.timeout(requests * service.latency)
            if client.bytes:
                with link.request() as turn:
                    yield turn
                    yield env.timeout(client.bytes / pieces / service.link)
        done.append(env.now)

    for client, start in zip(all_of, starts, strict=True):
        env.process(through(client, start))
    env.run()
    return Outcome(min(done), statistics.median(done), max(done), statistics.fmean(waits) if waits else 0.0)


def extrapolate(
    demands: dict[str, Demand], ranks: int, per_node: int, service: Service, spread: float
) -> dict[str, dict[str, float]]:
    """{name: {"clients", "requests", "gigabytes", "first_s", "middle_s", "last_s", "ratio"}}; the first is plain."""
    found: dict[str, dict[str, float]] = {}
    base = 0.0
    for number, (name, demand) in enumerate(demands.items()):
        all_of = clients(demand, ranks, per_node, one_reader=number > 0)
        draw = random.Random(0)
        outcome = simulate(all_of, service, [draw.uniform(0, spread) for _ in all_of])
        base = base or outcome.last
        found[name] = {
            "clients": len(all_of),
            "requests": sum(client.requests for client in all_of),
            "gigabytes": round(sum(client.bytes for client in all_of) / 1e9, 1),
            "first_s": round(outcome.first, 2),
            "middle_s": round(outcome.middle, 2),
            "last_s": round(outcome.last, 2),
            "ratio": round(outcome.last / base, 4),
        }
    return found


def measured(pyz: Path) -> dict[str, Demand]:
    """Of the hand-written script in one process, and of the file as it is. Names by strace; bytes as a mounted file
    system counts them, where one can be mounted, else by strace."""
    import tempfile

    from tools import startup_calls, startup_places, startup_steps
    from trainer.bench.contenders import Place

    startup_calls.need_strace()
    found = {}
    with tempfile.TemporaryDirectory(prefix="startup-") as name:
        bed = startup_steps.bed(Path(name))
        all_of = startup_steps.contenders("one", pyz, Path(name))
        for contender in ("plain", "trainer"):
            each = all_of[contender]
            if each.cache:
                bed.make_snapshot(each)
            seconds = min(bed.run(each).seconds for _ in range(3))
            command, environ, _ = bed.prepare(each)
            demand = startup_calls.demand(command, bed.folder, environ)
            if not startup_places.lacks("slow"):
                bed.place = startup_places.counting(pyz)
                bed.run(each)
                demand["bytes"] = bed.facts["bytes"]
                bed.place = Place()
            found[contender] = Demand(demand["opens"], demand["names"], demand["bytes"], round(seconds, 3))
    return found


def read(path: Path) -> dict[str, Demand]:
    """A demand file. SystemExit with what is wrong with it."""
    try:
        content = json.loads(path.read_text())
        return {
            name: Demand(int(each["opens"]), int(each["names"]), int(each["bytes"]), float(each["seconds"]))
            for name, each in content.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SystemExit(
            f"error: {path}: {type(error).__name__}: {error}\n"
            'fix: {"plain": {"opens": 3000, "names": 30000, "bytes": 600000000, "seconds": 2.5}, "trainer": {...}}'
        ) from None


def lines(ranks: int, rows: dict[str, dict[str, float]]) -> list[str]:
    """The table of one number of ranks."""
    told = [f"{ranks:,} ranks"]
    for name, row in rows.items():
        told.append(
            f"  {name:<12} {row['clients']:>7,.0f} clients {row['requests']:>13,.0f} requests "
            f"{row['gigabytes']:>9,.1f} GB   first {row['first_s']:>9,.1f} s  middle {row['middle_s']:>9,.1f} s  "
            f"last {row['last_s']:>9,.1f} s  {row['ratio']:.3f}"
        )
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pyz", type=Path, default=PYZ, metavar="FILE")
    parser.add_argument("--demand", type=Path, metavar="FILE.json", help="instead of measuring")
    parser.add_argument("--ranks", default=",".join(map(str, RANKS)), help="comma-separated (default: %(default)s)")
    parser.add_argument("--per-node", type=int, default=8, help="ranks a node (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=20_000, help="metadata requests/s (default: %(default)s)")
    parser.add_argument("--latency", type=float, default=0.5, help="ms a request (default: %(default)s)")
    parser.add_argument("--link", type=float, default=200, help="Gbit/s of the file server (default: %(default)s)")
    parser.add_argument("--spread", type=float, default=1.0, help="seconds within which ranks start (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    if find_spec("simpy") is None:
        raise SystemExit(f"error: simpy is not installed\nfix: {GROUP}")
    try:
        counts = [int(word) for word in arguments.ranks.split(",")]
    except ValueError:
        parser.error(f"--ranks: {arguments.ranks!r} is not a list of whole numbers")
    per_node = arguments.per_node
    if min(arguments.rate, arguments.link, per_node, *counts) <= 0 or min(arguments.latency, arguments.spread) < 0:
        parser.error("rates, links and counts must be more than 0, times at least 0")
    if any(count % min(per_node, count) for count in counts):
        parser.error(f"--ranks: not all are multiples of {per_node} ranks a node")
    demands = read(arguments.demand) if arguments.demand else measured(need_pyz(arguments.pyz))
    service = Service(arguments.rate, arguments.latency / 1000, arguments.link * 1e9 / 8)
    assumed = {name: getattr(arguments, name) for name in ("rate", "latency", "link", "per_node", "spread")}
    print(ASSUMED.format(pieces=PIECES, **assumed))
    for name, demand in demands.items():
        print(
            f"one start, {name}: {demand.opens:,} opens, {demand.names:,} different names, "
            f"{demand.bytes / 1e6:,.0f} MB, {demand.seconds:g} s besides"
        )
    result: dict[str, Any] = {"assumed": assumed, "demand": {name: each._asdict() for name, each in demands.items()}}
    began = time.monotonic()
    for count in counts:
        result[str(count)] = extrapolate(demands, count, per_node, service, arguments.spread)
        print("\n".join(lines(count, result[str(count)])), flush=True)
    print(f"simulated in {time.monotonic() - began:.0f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
