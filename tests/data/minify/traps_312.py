"""Syntax of Python 3.12: PEP 695 and PEP 701."""

type Pair[T] = tuple[T, T]
type Recursive = list[Recursive] | None
type Late = Undefined


def first[T: (int, str), *Ts, **P](value: T, *more: *Ts) -> T:
    "a docstring"
    return value


class Box[T: "Bound"](list[T]):
    "a docstring"

    def get[U](self, other: U) -> T | U:
        return self[0] if self else other

    type Inner = T


print(first(1), first.__type_params__, Box.__type_params__, Pair.__value__, Recursive.__value__, Box.Inner.__name__)
print(first.__type_params__[0].__constraints__, Box([1]).get(2), Box().get(3), Box.__orig_bases__)
try:
    Late.__value__
except NameError as error:
    print(error)

T = "outer"


def shadow[T](T=T):
    return T


class Scope[T]:
    T = T
    U = lambda: T


print(shadow(), Scope.T, Scope.U() is Scope.T)
names = {"a": "x", 'b"': 1}
print(f"{names["a"]}", f'{names['b"']}', f"{'nested ' + f"{'deeper ' + f"{names["a"]!r:>{1 + 2}}"}"}")
print(f"{'\n'.join(["a", "b"])}", f"{
    names["a"]  # a comment inside
}", f"""{
    'x'
    'y'
}""", f"{1:{"0>5"}}", f"{names['a']=}", f"{ names["a"] = }", f"{{}}{'{'}", f"\N{BULLET}{'\N{BULLET}'}")
print(f"{(lambda x: x * 2)(3)}", f"{1!r:^{10}}|", f"{'a' 'b'}" f'{"c"}', rf"\d{'\d'}", f"{'''it's'''}")
