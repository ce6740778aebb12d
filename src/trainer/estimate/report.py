"""What was estimated, for people and for programs."""

from collections.abc import Iterator

from trainer.errors import UserError
from trainer.estimate import bubble, memory, traffic
from trainer.estimate.job import Job
from trainer.estimate.parts import Parts
from trainer.estimate.suggest import Suggestion

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def to_dict(job: Job, parts: Parts) -> dict[str, object]:
    """For JSON: bytes, counts and shares."""
    layout = job.layout
    of_all, of_ideal = bubble.idle_share(job.schedule, layout.pipeline, job.forwards, job.virtual)
    stages = range(layout.pipeline)
    return {
        "parameters": parts.weights,
        "memory": memory.peak(job, parts).to_dict(),
        "moments": [each.to_dict() for each in memory.moments(job, parts, 0)],
        "sent": [each.to_dict() for each in traffic.traffic(job, parts)],
        "sent_total": traffic.total(traffic.traffic(job, parts)),
        "parameter_server": traffic.parameter_server(job, parts),
        "idle_of_all_time": of_all,
        "idle_of_ideal_time": of_ideal,
        "in_flight": [
            bubble.in_flight(job.schedule, layout.pipeline, stage, job.forwards, job.virtual) for stage in stages
        ],
    }


def lines(job: Job, parts: Parts) -> Iterator[str]:
    """For people."""
    largest = memory.peak(job, parts)
    yield f"memory per rank      {size(largest.total)} at its peak, estimated ({largest.name})"
    for field in memory.Moment.FIELDS:
        if getattr(largest, field):
            yield f"  {field:<18} {size(getattr(largest, field))}"
    sent = traffic.traffic(job, parts)
    if sent:
        yield f"sent per rank        {size(traffic.total(sent))} in an update"
        for each in sent:
            yield (
                f"  {each.over:<10} {each.collective:<15} {size(each.sent):>10} = {each.times} x {size(each.each)} "
                f"{each.what}"
            )
    if job.layout.averaged > 1:
        yield f"  one parameter server's link would carry {size(traffic.parameter_server(job, parts))}"
    if job.layout.pipeline > 1:
        yield from _pipeline(job)


def _pipeline(job: Job) -> Iterator[str]:
    ranks = job.layout.pipeline
    of_all, of_ideal = bubble.idle_share(job.schedule, ranks, job.forwards, job.virtual)
    yield (
        f"pipeline             {job.schedule}, {job.forwards} micro-batches: {of_all:.1%} idle "
        f"(bubble/compute {of_ideal:.1%})"
    )
    counts = [bubble.in_flight(job.schedule, ranks, stage, job.forwards, job.virtual) for stage in range(ranks)]
    shown = " ".join(map(str, counts[:16])) + (" ..." if ranks > 16 else "")
    yield f"  in flight          {shown} (by rank)"


def table(found: list[Suggestion], world: int, room: int, most: int = 10) -> Iterator[str]:
    """Suggested layouts."""
    yield f"layouts of {world} ranks with {size(room)} each, the one that sends least first:"
    if not found:
        yield "  none fits: use a smaller batch.micro, more ranks or larger devices"
    for each in found[:most]:
        again = ", forward twice" if each.again else ""
        shape = " x ".join(f"{name} {count}" for name, count in each.layout.shape().items() if count > 1) or "one rank"
        yield (
            f"  {shape}: {each.strategy}, {each.forwards} x {each.micro} samples, {size(each.peak)}, "
            f"sends {size(each.sent)}, idle {each.idle:.1%}{again}"
        )
        yield f"    {each.flags()}"
    if len(found) > most:
        yield f"  and {len(found) - most} more in --json"


def size(number: float) -> str:
    """Bytes, as 1.5 GiB."""
    for unit in UNITS[:-1]:
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.2f} {unit}"
        number /= 1024
    return f"{number:.2f} {UNITS[-1]}"


def parse_size(text: str, flag: str) -> int:
    """80GiB, 80 GB, 80G (binary), 512MiB, 1024B. UserError (status 2) for anything else, also without a unit."""
    plain = text.replace(" ", "").lower()
    letters = plain.lstrip("0123456789.")
    if plain and not letters:
        raise UserError(f"{flag}: {text!r} has no unit", f"Write {flag} {plain}GiB if you mean GiB.", 2)
    powers = {"b": 0, **{name[0].lower(): power for power, name in enumerate(UNITS) if power}}
    power = powers.get(letters[:1])
    try:
        value = float(plain[: len(plain) - len(letters)])
        assert power is not None
    except (ValueError, AssertionError):
        raise UserError(f"{flag}: {text!r} is not a size", f"Write {flag} 80GiB, for example.", 2) from None
    base = 1000 if letters in ("kb", "mb", "gb", "tb", "pb") else 1024
    known = ("b", *(f"{name[0].lower()}{end}" for name in UNITS[1:] for end in ("", "b", "ib")))
    if letters not in known or value <= 0:
        raise UserError(f"{flag}: {text!r} is not a size", f"Write {flag} 80GiB, for example.", 2)
    return int(value * base**power)
