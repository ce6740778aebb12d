"""What `auto` in [precision] means. Rules without torch, so that `check` shows what training will use."""

from trainer.processor import bf16_instructions
from trainer.schema import Precision

LOW = ("bf16", "fp16", "fp8")


def choose_compute(precision: Precision, device: str, gpu_has_bf16: bool | None = None) -> tuple[str, str]:
    """`precision.compute` with auto decided: (format, reason in a few words).

    `device`: cpu or cuda; `gpu_has_bf16`: None where no GPU has been asked. What decides is what the processor has,
    never a timing: the same run file on the same machine always gets the same format.
    """
    if precision.compute != "auto":
        return precision.compute, "as set"
    if precision.weights == "bf16":
        return "bf16", "the format of precision.weights"
    if device == "cuda":
        if gpu_has_bf16 is None:
            return "bf16", "on GPUs of compute capability 8.0 or newer; fp32 on older ones"
        return ("bf16", "this GPU has bf16") if gpu_has_bf16 else ("fp32", "this GPU has no bf16")
    found = bf16_instructions()
    if found:
        return "bf16", f"this CPU has {' and '.join(found)}"
    return "fp32", "this CPU has no bf16 instructions"


def choose_attention(attention: str, compute: str, device: str) -> str:
    """`precision.attention` with auto decided: as `compute`, but fp32 on CPU (the backward of bf16 attention takes
    2.8 times as long there), and bf16 under fp8."""
    if attention != "auto":
        return attention
    if device == "cpu" and compute in LOW:
        return "fp32"
    return "bf16" if compute == "fp8" else compute
