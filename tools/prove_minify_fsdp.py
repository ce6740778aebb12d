"""torch's own FSDP2, minified: a run on two ranks has the same losses and weights, bit for bit.

All modules of torch.distributed.fsdp and torch.distributed._composable go through the minifier with the policy that
builds have by default, which finds nothing there that reads docstrings, and take the place of the originals in
processes of their own. A small model is sharded by `fully_shard`, with and without mixed precision, and trained on CPU
over Gloo.

    uv run python -m tools.prove_minify_fsdp                 writes docs/proofs/minify-fsdp.json
    uv run python -m tools.prove_minify_fsdp --updates 3 --no-json
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import traceback
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from build.minify import Policy, minify
from build.tree import File, Tree
from tools.proof import ROOT, write

PACKAGES = ("torch.distributed.fsdp", "torch.distributed._composable")
WORLD = 2


class Replaced:
    """On `sys.meta_path`: serves these packages from a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not any(fullname == package or fullname.startswith(f"{package}.") for package in PACKAGES):
            return None
        place = self.folder.joinpath(*fullname.split("."))
        if place.is_dir():
            return spec_from_file_location(fullname, place / "__init__.py", submodule_search_locations=[str(place)])
        found = spec_from_file_location(fullname, place.with_suffix(".py"))
        return (
            found if found is not None and place.with_suffix(".py").exists() else PathFinder.find_spec(fullname, path)
        )


def originals() -> Tree:
    """The modules, without importing torch."""
    spec = find_spec("torch")
    assert spec is not None and spec.submodule_search_locations
    site = Path(spec.submodule_search_locations[0]).parent
    files = []
    for package in PACKAGES:
        for path in sorted(site.joinpath(*package.split(".")).rglob("*.py")):
            place = path.relative_to(site)
            name = ".".join(place.with_suffix("").parts).removesuffix(".__init__")
            data = path.read_bytes()
            files.append(File(place.as_posix(), data, "torch", name, place.stem == "__init__", data))
    return Tree.of(files)


def lay(tree: Tree, folder: Path) -> None:
    """Writes the modules there."""
    for file in tree:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)


def ranks(folder: Path | None, updates: int) -> dict[str, Any]:
    """What rank 0 prints of a run whose ranks take the modules from `folder` (None: torch's own)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(WORLD)}
    words = [sys.executable, "-m", "tools.prove_minify_fsdp", "--ranks", str(folder or ""), "--updates", str(updates)]
    # numpy's library would start threads, of which a forked rank has none
    variables["OPENBLAS_NUM_THREADS"] = "1"
    done = subprocess.run(words, cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True, check=False, timeout=300)
    if done.returncode:
        raise SystemExit("error: a rank failed")
    first: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return first


def forked(folder: str, updates: int) -> int:
    """All ranks, from a process that has imported torch and its compiler but nothing of the packages; their status."""
    if folder:
        sys.meta_path.insert(0, Replaced(Path(folder)))
    import torch._dynamo  # noqa: F401  # for all ranks

    children = []
    for number in range(WORLD):
        pid = os.fork()
        if pid == 0:
            os.environ["RANK"] = str(number)
            status = 1
            try:
                rank(folder, updates)
                status = 0
            except Exception:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(status)
        children.append(pid)
    statuses = [os.waitpid(pid, 0)[1] for pid in children]
    return int(any(statuses))


def rank(folder: str, updates: int) -> None:
    """One rank; rank 0 prints losses and a digest of the weights, as JSON."""
    import hashlib

    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import DTensor

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    told: dict[str, Any] = {"losses": []}
    for policy in (MixedPrecisionPolicy(), MixedPrecisionPolicy(torch.bfloat16, torch.float32)):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Embedding(64, 32), *(nn.TransformerEncoderLayer(32, 2, 64) for _ in range(2)))
        model.append(nn.Linear(32, 64))
        for module in model:
            fully_shard(module, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        torch.manual_seed(2 + dist.get_rank())
        for _ in range(updates):
            words = torch.randint(64, (8, 4))
            loss = nn.functional.cross_entropy(model(words).flatten(0, 1).float(), words.flatten())
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no hints for it
            optimizer.step()
            optimizer.zero_grad()
            told["losses"].append(float(loss).hex())
        total = hashlib.sha256()
        for parameter in model.parameters():
            assert isinstance(parameter, DTensor)
            total.update(parameter.full_tensor().detach().numpy().tobytes())
        told.setdefault("weights", []).append(total.hexdigest())
    ours = [module for name, module in sys.modules.items() if f"{name}.".startswith(tuple(f"{p}." for p in PACKAGES))]
    told["modules"] = len(ours)
    told["minified"] = sum(bool(folder) and str(module.__file__).startswith(folder) for module in ours)
    if dist.get_rank() == 0:
        print(json.dumps(told))
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=50, help="with each precision")
    parser.add_argument("--ranks", help=argparse.SUPPRESS)
    parser.add_argument("--no-json", action="store_true", help="print only, leave docs/proofs as it is")
    arguments = parser.parse_args()
    if arguments.ranks is not None:
        return forked(arguments.ranks, arguments.updates)
    tree = originals()
    plain = ranks(None, arguments.updates)
    with tempfile.TemporaryDirectory() as name:
        made, report = minify(tree, Policy(), Path(name, "minified"))
        lay(made, Path(name))
        small = ranks(Path(name), arguments.updates)
    same = {each: small[each] == plain[each] for each in ("losses", "weights")}
    good = all(same.values()) and small["minified"] == small["modules"] and not report.refused
    print(f"{small['minified']} of {small['modules']} modules minified; losses and weights {same}")
    result = {
        "ranks": WORLD,
        "updates": len(plain["losses"]),
        "modules": len(tree),
        "modules_run": small["minified"],
        "bytes": report.rows[0].raw,
        "docstrings": report.rows[0].docstrings,
        "refused": len(report.refused),
        "first_loss": float.fromhex(plain["losses"][0]),
        "last_loss": float.fromhex(plain["losses"][-1]),
        "identical": same,
    }
    write("minify-fsdp", result, arguments)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
