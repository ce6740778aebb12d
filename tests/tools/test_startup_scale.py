"""The queue simulation against sums done by hand, and against what queueing theory has."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tools.startup_scale import Client, Demand, Service, clients, extrapolate, read, simulate

ROOT = Path(__file__).resolve().parents[2]


def test_three_that_come_at_once_are_served_one_after_the_other() -> None:
    """One request a second, half a second of network: done after 1.5, 2.5 and 3.5 s; they waited 0, 1 and 2 s."""
    found = simulate([Client(1, 0, 0)] * 3, Service(1, 0.5, 1), [0.0] * 3, pieces=1)
    assert found == pytest.approx((1.5, 2.5, 3.5, 1.0))


def test_bytes_wait_for_the_link() -> None:
    """Two requests take a second, then 30 bytes three seconds each, one client after the other, after 0.5 s of work."""
    found = simulate([Client(2, 30, 0.5)] * 2, Service(4, 0.0, 10), [0.0, 0.0], pieces=1)
    assert (found.first, found.last) == pytest.approx((0.5 + 0.5 + 3, 0.5 + 0.5 + 3 + 3))


def test_a_client_alone_never_waits_whatever_the_pieces() -> None:
    for pieces in (1, 7, 50):
        found = simulate([Client(100, 1000, 2.0)], Service(50, 0.01, 500), [3.0], pieces)
        assert found == pytest.approx((3 + 2 + 2 + 1 + 2,) * 3 + (0.0,))


def test_poisson_arrivals_wait_as_long_as_the_formula_says() -> None:
    """M/D/1 with utilization u: a mean wait of u / (2 (1 - u)) services (Pollaczek and Khinchine)."""
    utilization, draw = 0.7, random.Random(1)
    starts, now = [], 0.0
    for _ in range(60_000):
        now += draw.expovariate(utilization)
        starts.append(now)
    found = simulate([Client(1, 0, 0)] * len(starts), Service(1, 0, 1), starts, pieces=1)
    assert found.mean_wait == pytest.approx(utilization / (2 * (1 - utilization)), rel=0.05)


def test_pieces_are_fine_enough() -> None:
    all_of, starts = [Client(5000, 10**8, 2.0)] * 64, [at / 64 for at in range(64)]
    service = Service(20_000, 0.0005, 25e9)
    coarse, fine = (simulate(all_of, service, starts, pieces) for pieces in (20, 200))
    assert coarse.last == pytest.approx(fine.last, rel=0.02)
    assert coarse.last >= 64 * 5000 / 20_000  # nothing is served faster than the server serves


def test_one_rank_of_a_node_asks_for_names_and_all_for_opens() -> None:
    demand = Demand(opens=10, names=100, bytes=1000, seconds=1.0)
    reader, other = Client(110, 1000, 1.0), Client(10, 0, 1.0)
    assert clients(demand, 4, 2, one_reader=False) == [reader, other, reader, other]
    assert clients(demand, 4, 2, one_reader=True) == [reader, reader]
    assert clients(demand, 2, 8, one_reader=True) == [reader]


def test_the_first_is_what_others_are_compared_with() -> None:
    demands = {"plain": Demand(30, 70, 0, 0.0), "ours": Demand(10, 15, 0, 0.0)}
    rows = extrapolate(demands, 16, 8, Service(100, 0.0, 1), 0.0)
    assert (rows["plain"]["clients"], rows["plain"]["requests"]) == (16, 2 * 70 + 16 * 30)
    assert (rows["ours"]["clients"], rows["ours"]["requests"]) == (2, 2 * 25)
    assert rows["plain"]["last_s"] == pytest.approx(6.2)
    assert rows["ours"]["ratio"] == pytest.approx(0.5 / 6.2, abs=1e-4)


def test_the_tool_prints_what_it_assumes(tmp_path: Path) -> None:
    given = {"plain": {"opens": 3000, "names": 7000, "bytes": 6e8, "seconds": 2.5}}
    given["trainer"] = {"opens": 500, "names": 2000, "bytes": 5e8, "seconds": 0.9}
    (tmp_path / "demand.json").write_text(json.dumps(given))
    words = ["--demand", str(tmp_path / "demand.json"), "--ranks", "16,64", "--json", str(tmp_path / "found.json")]
    done = subprocess.run(
        [sys.executable, "-m", "tools.startup_scale", *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "the metadata server answers 20,000 requests/s" in done.stdout
    found = json.loads((tmp_path / "found.json").read_text())
    assert 0 < found["64"]["trainer"]["last_s"] < found["64"]["plain"]["last_s"]


def test_a_demand_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "demand.json").write_text('{"plain": {"opens": 1}}')
    with pytest.raises(SystemExit, match="KeyError: 'names'"):
        read(tmp_path / "demand.json")
