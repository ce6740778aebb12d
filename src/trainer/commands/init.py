"""`trainer init`: a commented run file to start from."""

from pathlib import Path

from trainer.arguments import split
from trainer.config import keys, toml_value
from trainer.errors import UserError
from trainer.schema import Config

HELP = """usage: trainer init [RUN.toml]

Writes a run file (default: run.toml) with every setting, its default and what it does. Nothing is overwritten.

examples:
  trainer init
  trainer init experiments/first.toml"""


def run(arguments: list[str]) -> int:
    """Writes the file."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP)
        return 0
    given = split(arguments, {}, 1, "init")
    if given.settings:
        raise UserError(f"init takes no settings (--{given.settings[0][0]})", "Edit the file that it writes.", 2)
    path = Path(given.places[0] if given.places else "run.toml")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template())
    except FileExistsError:
        raise UserError(f"{path} already exists", "Give another name, or remove it first.", 2) from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", "Give a path in a folder that exists.", 2) from None
    print(f"wrote {path}; name your data in [data], then: trainer train {path}")
    return 0


def template() -> str:
    """Every section; all keys are commented out except the one that must be given."""
    lines = ["# A run file. Lines that begin with # show the defaults; paths are relative to the current folder."]
    section_before = ""
    for section, key, declared in keys():
        if section != section_before:
            purpose = (Config.__annotations__[section].__doc__ or "").strip().splitlines()
            lines += ["", f"[{section}]", *(f"# {line}" for line in purpose[:1])]
            section_before = section
        note = declared.help
        if not all(choice in note for choice in declared.choices):
            note += f" ({', '.join(declared.choices)})"
        if (section, key) == ("data", "text"):
            lines.append(f'text = ["python:stdlib"]  # {note}')
            continue
        value = toml_value(declared.default)
        lines.append(f"# {key} = {value}  # {note}")
    return "\n".join(lines) + "\n"
