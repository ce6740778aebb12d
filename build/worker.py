"""Runs in each interpreter that bytecode is made for: original text and passes on standard input, code on output.

Started as a file, in a clean process; standard library only.
"""

import importlib.util
import marshal
import pickle
import sys
from pathlib import Path

Job = tuple[str, str, bytes, tuple[str, ...]]  # module, file name in the code, original text, passes
Answer = tuple[bytes, str]  # canonically marshalled code, or what is wrong with the text


def main() -> None:
    """One list of jobs in, one list of answers out."""
    jobs: list[Job] = pickle.load(sys.stdin.buffer)
    pickle.dump([_compile(job) for job in jobs], sys.stdout.buffer, protocol=4)


def _compile(job: Job) -> Answer:
    from build.canonical import canonical
    from build.minify.transform import transform

    _, filename, original, passes = job
    try:
        source = transform(original, passes) if passes else original
        # asserts and __debug__ as in a plain start; `-O` does not change what is in the file
        code = compile(source, filename, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return b"", f"{type(error).__name__}: {error}"
    return canonical(marshal.dumps(code)), ""


def describe() -> None:
    """Prints what this interpreter is: minor version, magic number, all that its code may depend on."""
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    print(minor, importlib.util.MAGIC_NUMBER.hex(), sys.implementation.name, sys.version.replace("\n", " "), sep="\n")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    if sys.argv[1:] == ["--describe"]:
        describe()
    else:
        main()
