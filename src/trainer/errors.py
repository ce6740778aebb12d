"""The one error a user is meant to see."""


class UserError(Exception):
    """What went wrong and how to mend it; printed as an `error:` and a `fix:` line, without a traceback.

    `status` is the exit status: 2 usage or run file, 3 environment, 1 anything else.
    """

    def __init__(self, what: str, fix: str = "", status: int = 1) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.status = status
