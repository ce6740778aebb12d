"""What this machine's processor can multiply, asked without torch and, where glibc can tell, without /proc."""

import os
from collections.abc import MutableMapping

# x86: (leaf of glibc's feature table, register, bit) of AVX512_BF16 and AMX_BF16
_X86 = {"avx512_bf16": (6, 0, 5), "amx_bf16": (1, 3, 22)}
# what torch's kernels of each capability need
_VECTORS = {
    "avx512": {"avx512vl": (1, 1, 31), "avx512bw": (1, 1, 30), "avx512dq": (1, 1, 17), "fma3": (0, 2, 12)},
    "avx2": {"avx2": (1, 1, 5), "fma3": (0, 2, 12)},
}
_CAPABILITY = "ATEN_CPU_CAPABILITY"
# ARM: bit of the auxiliary vector's AT_HWCAP2
_HWCAP2, _ARM_BF16 = 26, 1 << 14
_CPUINFO = "/proc/cpuinfo"


def bf16_instructions() -> list[str]:
    """Names of the instruction sets for products of bf16 that this processor and its kernel offer; empty if none, or
    if nothing tells. A fact of the machine: neither its load nor its free cores change it."""
    machine = os.uname().machine
    try:
        if machine in ("x86_64", "AMD64"):
            return _of_x86()
        if machine == "aarch64":
            return _of_arm()
    except (OSError, AttributeError, ValueError):  # another C library than glibc 2.33 or newer
        pass
    return _of_cpuinfo(_read_cpuinfo())


def prepare_torch(environ: MutableMapping[str, str], cpuinfo: str = _CPUINFO) -> None:
    """Tell torch its vector instructions where /proc is missing; call it before torch is imported.

    torch reads them from /proc/cpuinfo only. Without it, it takes its plain kernels, which are slower and add in
    another order: the losses of a run would depend on whether /proc is mounted.
    """
    if _CAPABILITY in environ or os.access(cpuinfo, os.R_OK) or os.uname().machine not in ("x86_64", "AMD64"):
        return
    try:
        found = next((name for name, bits in _VECTORS.items() if len(_active(bits)) == len(bits)), "")
    except (OSError, AttributeError):
        found = ""
    if found:
        environ[_CAPABILITY] = found


def _of_x86() -> list[str]:
    return _active(_X86)


def _active(wanted: dict[str, tuple[int, int, int]]) -> list[str]:
    """Return those of the instruction sets that this processor has and the kernel has switched on, by glibc's
    `__x86_get_cpuid_feature_leaf` (sys/platform/x86.h)."""
    import ctypes

    class Leaf(ctypes.Structure):
        _fields_ = (("cpuid", ctypes.c_uint * 4), ("active", ctypes.c_uint * 4))

    ask = ctypes.CDLL(None)["__x86_get_cpuid_feature_leaf"]
    ask.restype, ask.argtypes = ctypes.POINTER(Leaf), [ctypes.c_uint]
    found = []
    for name, (leaf, register, bit) in wanted.items():
        if ask(leaf).contents.active[register] >> bit & 1:
            found.append(name)
    return found


def _of_arm() -> list[str]:
    import ctypes

    ask = ctypes.CDLL(None).getauxval
    ask.restype, ask.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    return ["bf16"] if ask(_HWCAP2) & _ARM_BF16 else []


def _of_cpuinfo(text: str) -> list[str]:
    """From the flags (x86) or features (ARM) of the first processor in /proc/cpuinfo."""
    for line in text.splitlines():
        name, _, words = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return [word for word in (*_X86, "bf16") if word in words.split()]
    return []


def _read_cpuinfo() -> str:
    try:
        with open(_CPUINFO, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
