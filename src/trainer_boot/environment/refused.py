"""The one error of this package that a user is meant to see."""

WRONG_ENVIRONMENT = 3


class Refused(Exception):
    """What went wrong and how to mend it; `status` is the exit status: 3 environment, 2 usage, 1 anything else."""

    def __init__(self, what: str, fix: str, status: int = WRONG_ENVIRONMENT) -> None:
        super().__init__(f"{what}; {fix}")
        self.what = what
        self.fix = fix
        self.status = status
