"""Run as a program: `flows.py KIND`, in a process that `begin` has begun; trains five updates, prints JSON about them.

KIND: adamw, sgd, muon (in float32), with "ddp-" before it in a group of one, or "compile-": goes on compiled.
"""

import json
import sys
from typing import Any

# what `begin` leaves: the notes of the overlays and of the modules that wait
BEGUN: dict[str, Any] = {"note": {}, "waiting": {"modules": [], "touched": []}}


def begin(start: str) -> None:
    """plain, fast (with overlays), or lazy (with modules that wait too); then imports torch."""
    if start == "lazy":
        from trainer_boot import lazy

        BEGUN["waiting"] = lazy.install()
    if start != "plain":
        from trainer_boot import overlays

        BEGUN["note"] = overlays.install()
        assert "torch" not in sys.modules
    import torch  # noqa: F401  # for those that are forked


def main(kind: str) -> None:
    from tests.boot.overlays.flows import BEGUN

    note, waiting = BEGUN["note"], BEGUN["waiting"]
    torch: Any = sys.modules["torch"]
    torch.set_num_threads(1)
    torch.manual_seed(5)
    model: Any = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    matrices = [each for each in model.parameters() if each.ndim == 2]
    vectors = [each for each in model.parameters() if each.ndim < 2]
    if kind.startswith("ddp-"):
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizers = {
        "sgd": lambda: [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)],
        "muon": lambda: [torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(vectors, lr=0.01, fused=True)],
    }.get(kind.rpartition("-")[2], lambda: [torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)])()
    losses = []

    def updates(run: Any, count: int) -> None:
        for _ in range(count):
            loss = run(torch.randn(32, 8)).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item().hex())

    updates(model, 5)
    for optimizer in optimizers:
        optimizer.load_state_dict(optimizer.state_dict())
    before = [name for name in ("torch._dynamo", "sympy") if name in sys.modules]
    touched = list(waiting["touched"])
    during = {each["name"]: each["state"] for each in note.get("overlays", [])}
    if kind.startswith("compile-"):
        updates(torch.compile(model, backend="eager"), 3)
    after = {each["name"]: each["why"] for each in note.get("overlays", [])}
    codes = {
        "step": torch.optim.AdamW.step.__code__.co_filename,
        "check": " ".join(torch._check_with.__code__.co_names),
    }
    weights = [each.sum().item().hex() for each in model.parameters()]
    lazily = [len(waiting["modules"]), touched, waiting["touched"]]
    print(json.dumps([losses, weights, before, during, after, codes, lazily]))


if __name__ == "__main__":
    main(*sys.argv[1:])
