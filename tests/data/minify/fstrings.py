"""f-strings that printers of syntax trees have broken."""


class Shade:
    on, off = "[", "]"

    def __format__(self, spec):
        return "<" + spec + ">"


table = {"name": "value", 'two"quotes': 2}
width, digits, number = 9, 2, 2.71828
line = "\n"


def paint(text, end=Shade.off, strong=False):
    return f'{Shade.on if strong else ""}{end}{text}{Shade.off}'


results = [
    paint("x", strong=True),
    f"{table['name']!r:>{width}}|{number:{width}.{digits}f}|{number!s:^{len('abcdefgh')}}",
    f"{{plain}} {'{'}{table['name']}{'}'}",
    f"{number=:.1f} {table['name']=} { number = }",
    f'{line.join(["a", "b"])}' f"{chr(10)}" 'it''s' f"\N{BULLET}",
    (
        f"first {width} "
        "plain, with {braces} and a # no comment "  # a comment
        f'third {"nested"}'
        ""
        "" f"{digits}"
    ),
    f'''{"""long "double" and 'single'"""} and {'p' "q"}''',
    f"'''{1}\"\"\"{2}",
    rf"\w{number:.0f}\n" + rb"\x00".decode(),
    f"{Shade():a'b}" + f'{Shade():a"b}' + f"{(lambda x: x * 2)(3)}" + f"{ {'a': 1}['a'] }",
    f"{number if number > 2 else 'small'!r}" + f"{'outer ' + f'{table[chr(110) + chr(97) + chr(109) + chr(101)]}'}",
    f"""two
lines {width
+ 1} and é {'ü'!a}""",
    f"{1_000_000:,} {0xFF} {1e400} {-0.0!r} {1j * 2}",
    f"",
    "\ud800".encode("utf-8", "surrogatepass") + "\x00\x7f\u2028".encode(),
    b"\xff\\'" + br'\"',
]

if __name__ == "__main__":
    for result in results:
        print(ascii(result))
