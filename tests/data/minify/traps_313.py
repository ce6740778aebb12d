"""Syntax of Python 3.13: PEP 696."""

type Default[T = int, *Ts = *tuple[int, str], **P = [int, str]] = tuple[T, *Ts]


class Box[T: int = bool]:
    "a docstring"
    value: T


def identity[T = Undefined](value: T) -> T:
    "a docstring"
    return value


print(Default.__type_params__[0].__default__, Default.__type_params__[1].__default__, Default.__type_params__[2].__default__)
print(Box.__type_params__[0].__default__, Box.__type_params__[0].__bound__, identity(3), Box.__annotations__)
try:
    identity.__type_params__[0].__default__
except NameError as error:
    print(error)
