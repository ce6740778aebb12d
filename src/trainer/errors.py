"""The one error a user is meant to see."""


class UserError(Exception):
    """What went wrong and how to fix it; printed as an `error:` and a `fix:` line, without a traceback.

    `status` is the exit status: 2 usage or run file, 3 environment, 1 anything else. `others`: further errors of the
    same kind, printed after it.
    """

    def __init__(self, what: str, fix: str = "", status: int = 1, others: "tuple[UserError, ...]" = ()) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.status = status
        self.others = others


def together(errors: "list[UserError]") -> UserError:
    """Return one error that carries all of `errors`, of which there is at least one."""
    first, *others = errors
    return UserError(first.what, first.fix, first.status, tuple(others)) if others else first
