"""The one error that the build tool means its user to see."""


class BuildError(Exception):
    """What went wrong and how to mend it; `python -m build` prints an `error:` and a `fix:` line and ends with 1."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
