"""Count things.

usage: count [--from N]
"""
import argparse


def fill(**values):
    def decorate(function):
        function.__doc__ = function.__doc__.format(**values)
        return function

    return decorate


@fill(unit="steps")
def speed():
    """How many {unit} in a second."""
    return 1


class Computed:
    """{what} is an expression, no docstring""".format(what="this")


class Base:
    """base"""

    def go(self):
        """goes"""


class Heir(Base):
    __doc__ = Base.__doc__ + " and heir"

    def go(self):
        return 2

    go.__doc__ = Base.go.__doc__.title()


class Grammar:
    def p_sum(self):
        "sum : number PLUS number"

    def p_number(self):
        "number : DIGITS"

    def rules(self):
        return [getattr(self, name).__doc__ for name in dir(self) if name.startswith("p_")]


def only():
    """nothing else"""


seen = []


def record(value):
    seen.append(value)
    return True


def checked(value):
    assert record(value), "an assert with an effect"
    assert (following := value + 1) > 0
    return following


def guarded(value):
    assert isinstance(value, int), f"an int, not {value!r}"
    return value


parser = argparse.ArgumentParser(prog="count", description=__doc__.split("\n\n")[0])

if __name__ == "__main__":
    print(speed.__doc__, Computed.__doc__, Heir.__doc__, Heir.go.__doc__, Grammar().rules(), only(), repr(only.__doc__))
    print(parser.format_help().splitlines()[2])
    print(checked(3), seen)
    try:
        guarded("3")
    except AssertionError as error:
        print("refused:", error)
