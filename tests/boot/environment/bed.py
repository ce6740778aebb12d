"""A folder like site-packages, with distributions as installers leave them."""

import base64
import hashlib
from pathlib import Path


def install(site: Path, name: str, version: str, files: dict[str, bytes] | None = None, folder: str = "") -> Path:
    """Code and metadata of one; where its metadata lie."""
    contents = {f"{name}/__init__.py": b"x = 1\n", f"{name}/part.py": b"y = 2\n"} if files is None else files
    information = site / (folder or f"{name}-{version}.dist-info")
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    rows = []
    for path, data in contents.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(data)}\n")
    (information / "RECORD").write_text("".join([*rows, f"{information.name}/RECORD,,\n"]))
    return information


def requirement(name: str, version: str, *hashes: str) -> dict[str, object]:
    """As the lock asks for it."""
    return {"name": name, "version": version, "marker": None, "kind": "environment", "hashes": list(hashes)}
