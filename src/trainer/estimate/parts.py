"""A built-in model as the parts that are gathered, recomputed or sent as one, and what each keeps for its backward.

Counted from what the layers in `trainer.models` save; `tools/prove_estimates.py` compares it with measurements.
"""

from trainer.estimate.job import Job
from trainer.models.check import class_count, hidden_width, key_value_heads, vocabulary_size
from trainer.schema import Model

KINDS = ("gpt", "vit", "mlp")


class Part:
    """One unit of a model on one rank, `count` of them alike. Numbers of weights, the rest in bytes of one forward.

    `weights`: all of it before tensor parallelism; `own`: after it; `matrices`: those among `own` in matrices, which
    autocast copies; `work`: those of all its matrices that are multiplied, uncut; `kept`: from its forward to its
    backward; `selected`: of that, outputs of products and attention; `entry`: its input; `working`: the most that its
    backward needs on top.
    """

    def __init__(
        self,
        name: str,
        *,
        weights: int,
        own: int,
        matrices: int,
        work: int,
        kept: int,
        selected: int,
        entry: int,
        working: int,
    ) -> None:
        self.name = name
        self.weights = weights
        self.own = own
        self.matrices = matrices
        self.work = work
        self.kept = kept
        self.selected = selected
        self.entry = entry
        self.working = working


class Parts:
    """What comes first, the blocks in between (all alike, or of several kinds), what comes last. `logits`: bytes;
    `copies`: of them while the loss's backward begins: log-softmax, its gradient and that of the logits; torch's
    loss_parallel has the logits and one more. `width`: of what one part hands to the next. `sample`: bytes of one."""

    def __init__(
        self,
        first: Part,
        blocks: list[Part],
        last: Part,
        *,
        logits: int,
        copies: int = 3,
        width: int,
        sample: int,
    ) -> None:
        self.first = first
        self.blocks = blocks
        self.last = last
        self.logits = logits
        self.copies = copies
        self.width = width
        self.sample = sample

    @property
    def loss(self) -> int:
        """Bytes of copies of the logits while the loss is made."""
        return self.copies * self.logits

    @property
    def weights(self) -> int:
        """Number of weights of the whole model."""
        return self.first.weights + sum(block.weights for block in self.blocks) + self.last.weights


def parts_of(model: Model, vocabulary: int, job: Job, *, masked: bool = False) -> Parts:
    """A built-in model of `KINDS`, whose data needs `vocabulary` (or has as many classes); `masked`: documents do not
    see each other."""
    if model.kind == "gpt":
        return _gpt(model, vocabulary_size(model, vocabulary), job, masked)
    return _vit(model, class_count(model, vocabulary), job) if model.kind == "vit" else _mlp(model, job)


def _gpt(model: Model, vocabulary: int, job: Job, masked: bool) -> Parts:
    formats, width, tokens, tensor = job.formats, model.width, job.tokens, job.layout.tensor
    block = _gpt_block(model, job, masked)
    shared = tensor if job.sequence_parallel else 1
    rows = vocabulary * width
    tables = rows + model.bigram * width
    noise = width * job.stream if model.dropout else 0
    first = Part(
        "embedding",
        weights=tables,
        own=tables // tensor,
        matrices=0,
        work=0,
        kept=tokens * ((8 if model.bigram else 0) + noise // shared),
        selected=0,
        entry=0,
        working=tokens * width * job.stream // shared,
    )
    head_input = width * (formats.product if job.cast else job.stream)
    cut_loss = tensor > 1 and job.loss_parallel
    logits = tokens * vocabulary // (tensor if cut_loss else 1) * formats.loss
    last = Part(
        "norm and output",
        weights=width + (0 if model.tied else rows),
        own=width + (0 if model.tied else rows // tensor),
        matrices=rows // tensor,
        work=rows,
        kept=tokens * (width * formats.norm // shared + formats.norm + head_input),
        selected=0,
        entry=tokens * width * job.stream // shared,
        working=tokens * width * (job.stream + formats.product),
    )
    sample = (job.sequence + 1) * 8 * (2 if masked else 1)
    return Parts(
        first,
        [block] * model.layers,
        last,
        logits=logits,
        copies=5 if cut_loss else 3,
        width=width,
        sample=sample,
    )


def _vit(model: Model, classes: int, job: Job) -> Parts:
    formats, width, tokens = job.formats, model.width, job.tokens
    patch = model.channels * model.patch**2
    first = Part(
        "patches",
        weights=(patch + 1) * width,
        own=(patch + 1) * width,
        matrices=patch * width,
        work=patch * width,
        kept=tokens * patch * (job.stream + (formats.product if job.cast else 0)),
        selected=0,
        entry=0,
        working=tokens * width * job.stream,
    )
    last = Part(
        "norm and output",
        weights=width + width * classes,
        own=width + width * classes,
        matrices=width * classes,
        work=width * classes,
        kept=tokens * width * formats.norm + job.micro * width * job.stream,
        selected=0,
        entry=tokens * width * job.stream,
        working=tokens * width * job.stream,
    )
    block = _gpt_block(model, job, masked=False)
    logits = job.micro * classes * formats.loss
    sample = model.channels * model.image**2 * formats.weights + 8
    return Parts(first, [block] * model.layers, last, logits=logits, width=width, sample=sample)


def _gpt_block(model: Model, job: Job, masked: bool) -> Part:
    formats, width, tensor = job.formats, model.width, job.layout.tensor
    kv_heads = key_value_heads(model)
    head = width // model.heads
    keys, hidden = kv_heads * head, hidden_width(model)
    shared = tensor if job.sequence_parallel else 1
    # autocast copies a norm's output once for each product that takes it, and keeps each copy
    normal = width * formats.norm // shared + formats.norm
    to_attention = 3 * width * formats.product if job.cast else width * job.stream
    to_feed_forward = 2 * width * formats.product if job.cast else width * job.stream
    attention = (2 * width + 2 * keys) // tensor * formats.attention + model.heads // tensor * max(4, formats.attention)
    if formats.attention != formats.product:
        attention += width // tensor * formats.product
    if model.qk_norm:
        attention += ((width + keys) * formats.norm + (model.heads + kv_heads) * formats.norm) // tensor
    if masked:
        attention += job.sequence * formats.attention // tensor
    feed_forward = 4 * hidden // tensor * formats.product
    noise = 2 * width * formats.product if model.dropout else 0
    products = (width + 2 * keys + 2 * hidden) // tensor + 2 * width
    selected = products * formats.product + width // tensor * formats.attention + model.heads * 4 // tensor
    matrices = (2 * width * width + 2 * width * keys + 3 * width * hidden) // tensor
    norms = 2 * width + (2 * head if model.qk_norm else 0)
    # in the SwiGLU: its own gradient, those of its two factors, and of one matrix
    backward = width * job.stream + 2 * hidden // tensor * formats.product
    return Part(
        "block",
        weights=matrices * tensor + norms,
        own=matrices + norms,
        matrices=matrices,
        work=matrices * tensor,
        kept=job.tokens * (2 * normal + to_attention + attention + to_feed_forward + feed_forward + noise),
        selected=job.tokens * selected,
        entry=job.tokens * width * job.stream // shared,
        working=job.tokens * backward + width * hidden // tensor * formats.weights,
    )


def _mlp(model: Model, job: Job) -> Parts:
    formats, tokens = job.formats, job.tokens
    tensor = job.layout.tensor
    noise = formats.product if model.dropout else 0

    def layer(name: str, inputs: int, outputs: int, relu: bool) -> Part:
        # a product keeps its input; ReLU its own output, which is the next one's input
        kept = inputs * (formats.product if job.cast else 0) + (outputs * formats.product if relu else 0)
        size = (inputs + 1) * outputs
        return Part(
            name,
            weights=size,
            own=size // tensor,
            matrices=size // tensor if job.cast else 0,
            work=inputs * outputs,
            kept=tokens * (kept + noise * outputs) // tensor,
            selected=tokens * outputs * formats.product // tensor,
            entry=tokens * inputs * formats.product,
            working=tokens * (inputs + outputs) * formats.product,
        )

    first = layer("first layer", model.inputs, model.width, True)
    between = [layer("hidden layer", model.width, model.width, True)] * (model.layers - 1)
    last = layer("output", model.width, model.classes, False)
    logits = tokens * model.classes * formats.loss
    sample = model.inputs * formats.weights + 8
    return Parts(first, between, last, logits=logits, width=model.width, sample=sample)
