"""Numbers as people read them."""

_DECIMAL = ("", "k", "M", "G", "T")
_BINARY = ("bytes", "KiB", "MiB", "GiB", "TiB")


def format_duration(seconds: float) -> str:
    """Whole seconds as 0:41, 12:05, 3:00:00 or 2d 3:00:00."""
    minutes, second = divmod(max(0, round(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour}:{minute:02d}:{second:02d}"
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"


def format_count(number: float) -> str:
    """Three digits and a power of 1000: 7, 12.3k, 1.50M."""
    return _scaled(number, 1000, _DECIMAL, "")


def format_bytes(number: int) -> str:
    """Three digits and a power of 1024: 512 bytes, 12.3 KiB, 1.50 GiB."""
    return _scaled(number, 1024, _BINARY, " ")


def _scaled(number: float, base: int, units: tuple[str, ...], space: str) -> str:
    power = 0
    # 999.5 would be shown as 1000 of the smaller unit
    while abs(number) >= base - 0.5 and power < len(units) - 1:
        number /= base
        power += 1
    if power == 0:
        digits = 0 if float(number).is_integer() else 2
    else:
        digits = 2 if abs(number) < 9.995 else 1 if abs(number) < 99.95 else 0
    return f"{number:.{digits}f}{space}{units[power]}"
