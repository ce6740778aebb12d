"""Every setting of a run, one class a section of the run file. No torch, no dataclasses: read at every start."""

from trainer.settings import Section, setting

PRECISIONS = ("auto", "fp64", "fp32", "bf16", "fp16")


class Run(Section):
    """What is run, where it is kept and for how long."""

    folder: str = setting("runs/default", "run folder: checkpoints, metrics, prepared data; resumed when it exists")
    seed: int = setting(0, "seed of weights, data order and dropout", minimum=0, maximum=2**63 - 1)
    steps: int = setting(0, "updates to train; 0: as many as `epochs` give", minimum=0, maximum=10**12)
    epochs: int = setting(1, "passes over the training data, when `steps` is 0", minimum=1)
    device: str = setting("auto", "auto (cuda if there is one, else cpu), cpu, cuda")
    resume: str = setting(
        "auto",
        "auto: from the newest whole checkpoint if there is one; must: refuse to start without; "
        "never: refuse a folder that holds a run; or the path of a checkpoint",
    )
    threads: int = setting(0, "CPU threads per rank; 0: cores of this node / ranks on this node", minimum=0)


class Start(Section):
    """How the run gets going. Every layer steps aside by itself where it does not know what it sees."""

    layers: list[str] = setting(
        ["gc", "snapshot", "prefetch", "libraries", "lazy", "overlays", "fork", "exit"],
        "layers of the fast start: gc (no collection while importing), snapshot (Python code of the environment and of "
        "the library from one file), prefetch (pages of shared objects are read at once where they are not in memory), "
        "libraries (shared objects are opened where they were found before), lazy (modules of torch that nobody uses "
        "are not run; see `policy`), overlays (what only torch.compile needs comes when it is wanted), fork (ranks of "
        "--nproc are forked from one process that has imported), exit (ends without taking the interpreter apart); an "
        "empty list: a plain start",
    )
    policy: str = setting(
        "auto",
        "whether modules may be lazy: fast (yes), safe (no), auto (where the run is of a kind that is proven to need "
        "none of them: built-in model, loss, data and optimizer, on CPU)",
        choices=("auto", "fast", "safe"),
    )
    report: bool = setting(False, "print where the time of the start went (always in <run folder>/start)")
    calls: bool = setting(False, "count the system calls of the start, by kind, in its report (slow; needs strace)")
    check: str = setting("fast", "how the snapshot is compared with the environment", choices=("fast", "full"))
    node_local: str = setting(
        "auto",
        "read the snapshot from a copy on the node ($TRAINER_NODE_DIR, else memory, else /tmp); auto: where it lies on "
        "a shared file system",
        choices=("auto", "on", "off"),
    )


class Model(Section):
    """What is trained: a built-in model sized here, or your own."""

    kind: str = setting("gpt", "built-in model", choices=("gpt", "mlp", "vit", "resnet"))
    build: str = setting(
        "",
        "your own model: `file.py:function` or `package.module:function`, called with `options`",
        code=True,
    )
    loss: str = setting("", "your own loss: `file.py:function`, loss(model, batch) -> (sum, count)", code=True)
    options: dict[str, object] = setting({}, "keyword arguments of your `build` function (a table)")
    layers: int = setting(4, "gpt, vit: blocks; mlp: hidden layers", minimum=1)
    width: int = setting(256, "gpt, vit: model width; mlp: hidden width", minimum=1)
    heads: int = setting(4, "gpt, vit: query heads", minimum=1)
    kv_heads: int = setting(0, "gpt, vit: key/value heads (grouped-query attention); 0: as many as `heads`", minimum=0)
    hidden: int = setting(0, "gpt, vit: width inside the SwiGLU; 0: 8/3 of `width`, rounded up to 32", minimum=0)
    vocabulary: int = setting(0, "gpt: size of the vocabulary; 0: what the tokenizer needs", minimum=0)
    tied: bool = setting(False, "gpt: the output layer shares the embedding's weights")
    qk_norm: bool = setting(False, "gpt, vit: RMSNorm on queries and keys")
    bigram: int = setting(0, "gpt: rows of a hashed table of token-pair embeddings; 0: none", minimum=0)
    rope_base: float = setting(10000.0, "gpt: base of the rotary positions", above=0)
    dropout: float = setting(0.0, "gpt, mlp, vit: probability of dropout", minimum=0)
    inputs: int = setting(0, "mlp: width of a sample", minimum=0)
    classes: int = setting(0, "mlp, vit, resnet: number of classes; 0: as many as `data.images` has", minimum=0)
    image: int = setting(32, "vit, resnet: height and width of an image; those of folders are brought to it", minimum=1)
    channels: int = setting(3, "vit, resnet: 3 (colours), 1 (grey) or what your arrays have", minimum=1)
    patch: int = setting(4, "vit: height and width of a patch", minimum=1)
    stages: list[int] = setting(
        [2, 2, 2, 2], "resnet: basic blocks of each stage; every stage but the first halves the image"
    )
    filters: int = setting(64, "resnet: filters of the first stage; each stage has twice those before", minimum=1)
    stem: str = setting(
        "small",
        "resnet: small (3x3) for images of some 32 pixels, large (7x7, a quarter of the size) for some 224",
        choices=("small", "large"),
    )
    compile: str = setting(
        "none",
        "torch.compile: none, or blocks (each by itself, in training; evaluation and generation run as written)",
        choices=("none", "blocks"),
    )


class Data(Section):
    """What it is trained on. One of `text`, `jsonl`, `images`, `dataset`."""

    text: list[str] = setting(
        [], "text files, globs or folders, a document each; `python:stdlib` is the interpreter's own library"
    )
    jsonl: list[str] = setting([], "JSON-lines files or globs, a document a line")
    field: str = setting("text", "jsonl: the field that holds the text, or a list of token ids")
    images: str = setting(
        "",
        "images and their classes: a folder with a folder of files for each class (extra `images`), a folder with "
        "images.npy and labels.npy, or an .npz file with `images` and `labels`",
    )
    dataset: str = setting(
        "", "your own data: `file.py:Name`, a map-style torch Dataset (class, function or object)", code=True
    )
    options: dict[str, object] = setting({}, "keyword arguments of your `dataset` (a table)")
    tokenizer: str = setting(
        "bytes", "bytes (256 values + end of document), ids (already numbers), or a tokenizer.json"
    )
    sequence: int = setting(256, "tokens per sample", minimum=1)
    mask_documents: bool = setting(False, "attention does not cross the documents packed into one sample")
    crop: int = setting(0, "images: random shifts by so many pixels, with black around; 0: none", minimum=0)
    flip: bool = setting(False, "images: mirrored left to right at random")
    mean: list[float] = setting([0.5], "images: taken off, of values from 0 to 1; one number, or one a channel")
    deviation: list[float] = setting([0.5], "images: what is left is divided by; one number, or one a channel")
    validation: list[str] = setting(
        [], "validation files, read like `text`, `jsonl` or `images`; empty: split off by `holdout`"
    )
    holdout: int = setting(
        10, "every n-th document or image is validation, of a single text its last n-th; 0: no validation", minimum=0
    )
    binary: bool = setting(False, "text: read files that are not text (compressed, images, NUL bytes) as they are")
    shuffle: bool = setting(True, "a new order each epoch; false: the order of the files")
    workers: int = setting(0, "loader processes per rank, for images and your own dataset", minimum=0)
    cache: str = setting("", "folder of prepared token files; empty: inside the run folder")


class Batch(Section):
    """Sizes of one update. Global: they do not change with the number of ranks."""

    size: int = setting(0, "samples per update over all ranks; 0: from `tokens`, else 32", minimum=0)
    tokens: int = setting(0, "the same in tokens (a multiple of data.sequence)", minimum=0)
    micro: int = setting(
        0,
        "samples per forward on one rank; 0: all of the rank's share at once, in a pipeline 4 forwards to a rank",
        minimum=0,
    )
    last: str = setting(
        "keep", "a shorter batch at the end of an epoch: keep it (weighted right) or drop it", choices=("keep", "drop")
    )


class Optim(Section):
    """How weights are updated."""

    name: str = setting(
        "adamw",
        "optimizer; muon: Muon for matrices, AdamW for the rest; lion: the sign of a momentum, half of AdamW's state; "
        "adafactor: a number a row and a column as state; schedule_free: AdamW whose averaged weights are used",
        choices=("adamw", "sgd", "muon", "lion", "adafactor", "schedule_free"),
    )
    build: str = setting("", "your own: `file.py:function`, called with (model, config.optim)", code=True)
    lr: float = setting(1e-3, "peak learning rate", above=0)
    matrix_lr: float = setting(0.02, "muon: peak learning rate of the matrices", above=0)
    matrix_precision: str = setting(
        "auto",
        "muon: number format in which matrices are made orthogonal; auto: bf16 on cuda, fp32 on cpu; with fp64 weights "
        "always fp64",
        choices=("auto", "fp32", "bf16"),
    )
    betas: list[float] = setting(
        [0.9, 0.95],
        "adamw: decay of the two moments; lion: of the momentum in the update and of the one kept, for it 0.9, 0.99 or "
        "0.95, 0.98; schedule_free: the average's share where gradients are taken, decay of the second moment",
    )
    eps: float = setting(1e-8, "adamw, schedule_free: added to the root of the second moment", above=0)
    momentum: float = setting(0.0, "sgd and muon: momentum; for muon 0.95, in short runs 0.85", minimum=0)
    weight_decay: float = setting(
        0.0, "decoupled decay; of matrices only, never of norms, biases and embeddings", minimum=0
    )
    average: str = setting(
        "none",
        "ema: an exponential average of the weights is evaluated, sampled from and saved; training goes on without it",
        choices=("none", "ema"),
    )
    ema_decay: float = setting(
        0.999, "ema: share of the average that an update leaves; (1 + n) / (10 + n) after n updates if less", minimum=0
    )
    clip: float = setting(1.0, "largest global gradient norm; 0: no clipping", minimum=0)
    schedule: str = setting("cosine", "shape after the warm-up", choices=("cosine", "linear", "wsd", "constant"))
    warmup: int = setting(0, "updates of linear warm-up", minimum=0)
    decay: float = setting(0.2, "wsd: last share of the updates, in which the rate falls", above=0)
    final: float = setting(0.0, "learning rate at the end, as a share of the peak", minimum=0)


class Precision(Section):
    """Number formats. Weights and optimizer state stay in fp32 (fp64 for fp64) unless `weights` says otherwise."""

    compute: str = setting(
        "auto",
        "matrix products: auto (bf16 where the CPU or GPU has instructions for it, else fp32), fp64, fp32, bf16, fp16, "
        "fp8 (on GPUs that have it)",
        choices=(*PRECISIONS, "fp8"),
    )
    attention: str = setting(
        "auto", "attention: auto (as `compute`; on CPU fp32 under bf16, which is faster), or fixed", choices=PRECISIONS
    )
    weights: str = setting("fp32", "fp32, or bf16: pure bf16 weights and optimizer state", choices=("fp32", "bf16"))
    update: str = setting(
        "stochastic",
        "weights bf16: how an update too small for the format is kept: stochastic (rounded at random, the same on "
        "every layout), kahan (the remainder is kept beside each weight), plain (it is lost)",
        choices=("plain", "stochastic", "kahan"),
    )
    gathered: str = setting(
        "weights",
        "sharded weights are sent and used in the format of: weights, compute (half the bytes, all layers in it; "
        "gradients are added up in fp32 all the same)",
        choices=("weights", "compute"),
    )
    loss_scale: float = setting(65536.0, "fp16: loss scale at the start; 0: no scaling", minimum=0)
    growth: int = setting(2000, "fp16: applied updates without overflow before the scale doubles", minimum=1)
    min_scale: float = setting(1.0, "fp16: a scale that falls below this ends the run", above=0)


class Parallel(Section):
    """How the run is cut over ranks."""

    backend: str = setting("auto", "collectives: auto (nccl on cuda, gloo on cpu)", choices=("auto", "gloo", "nccl"))
    strategy: str = setting(
        "ddp",
        "what each rank keeps of the model: ddp (all of it), optimizer (ZeRO-1: all of it, but the optimizer state of "
        "some weights only, which it updates for all ranks), gradients (FSDP2: its part of weights, gradients and "
        "optimizer state, and all weights from forward to backward), full (FSDP2: its part, and a block's weights only "
        "while they are used)",
        choices=("ddp", "optimizer", "gradients", "full"),
    )
    shard: int = setting(
        0,
        "gradients, full: ranks that keep a whole model between them; the others keep copies of it (hybrid); 0: all",
        minimum=0,
    )
    pipeline: int = setting(1, "parts of its blocks that the model is cut into, a group of ranks each", minimum=1)
    schedule: str = setting(
        "1f1b",
        "pipeline: order of the micro-batches, which are the forwards of an update: gpipe (all forwards, then all "
        "backwards; with one micro-batch plain model parallelism), 1f1b (as early a backward as can be: fewer held in "
        "memory), interleaved (1f1b with several stages to a rank: less waiting, more sending), zero_bubble (and the "
        "backward for weights fills the gaps), zbv, dualpipev (two stages to a rank, there and back)",
        choices=("gpipe", "1f1b", "interleaved", "zero_bubble", "zbv", "dualpipev"),
    )
    virtual: int = setting(0, "interleaved, zero_bubble: stages to a rank; 0: 2", minimum=0)
    cut: list[int] = setting([], "pipeline: blocks of each stage; empty: so that the dearest is as cheap as can be")
    balance: str = setting(
        "counted",
        "pipeline: what a block costs where cut is empty: the size of its matrices, or its time (measured at the "
        "start, logged, and kept by resumed runs)",
        choices=("counted", "measured"),
    )
    context: int = setting(1, "parts that every sequence is cut into, a rank each (gpt)", minimum=1)
    tensor: int = setting(1, "parts that every matrix is cut into, a rank each", minimum=1)
    sequence_parallel: bool = setting(
        False, "tensor: norms, dropout and what is added up are cut over the tokens too; less memory, same exchanges"
    )
    loss_parallel: bool = setting(True, "tensor: logits stay cut over the vocabulary (built-in losses)")
    prefetch: int = setting(
        0,
        "full: blocks whose weights are gathered ahead of the one in use; 0: as torch does it, the next one where the "
        "device runs behind",
        minimum=0,
    )
    bucket_mb: int = setting(25, "ddp, optimizer: size of a gradient bucket in MiB", minimum=1)
    unused: str = setting(
        "error",
        "ddp: a parameter that the loss does not depend on is an error, or find it in every update (slower)",
        choices=("error", "find"),
    )
    static_graph: bool = setting(False, "ddp: every update uses the same parameters, in one forward")
    compress: str = setting(
        "none",
        "ddp: gradients are sent as they are, or lossy: in bf16 or fp16, or as matrices of low rank (PowerSGD)",
        choices=("none", "bf16", "fp16", "powersgd"),
    )
    powersgd_rank: int = setting(4, "compress powersgd: rank of the matrices", minimum=1)
    sync_batch_norm: bool = setting(
        False, "batch norms take the statistics of a micro-batch of all ranks together, not each rank its own"
    )


class Memory(Section):
    """What is kept in memory between its uses, and where."""

    recompute: str = setting(
        "none",
        "what blocks keep from forward to backward: none (everything is kept), full (their inputs, the rest is made "
        "again), every (so for one block in `every`), selective (inputs and the outputs of matrix products and "
        "attention), budget (what the compiler chooses within `budget`; needs model.compile)",
        choices=("none", "full", "every", "selective", "budget"),
    )
    every: int = setting(2, "recompute every: one in so many blocks is recomputed", minimum=1)
    budget: float = setting(
        0.5, "recompute budget: from 0 (a block keeps its inputs) to 1 (all that the compiler would keep)", minimum=0
    )
    offload: str = setting(
        "none",
        "gradients, full: where this rank's part of weights, gradients and optimizer state lies: none (on the device), "
        "parameters (in the host's memory, where the update is made too)",
        choices=("none", "parameters"),
    )
    meta: str = setting(
        "auto",
        "whether the model is built without memory, and a rank makes its own part of the same weights: on, off, auto "
        "(built-in models of 100 million parameters or more that several ranks keep between them)",
        choices=("auto", "on", "off"),
    )


class Checkpoint(Section):
    """What is saved and when."""

    every: int = setting(0, "updates between checkpoints; 0: by time only", minimum=0)
    every_minutes: float = setting(
        10.0, "minutes between checkpoints, whatever the number of updates; 0: by updates only", minimum=0
    )
    keep: int = setting(3, "newest checkpoints kept", minimum=1)
    final: bool = setting(True, "save at the end")


class Log(Section):
    """What is told while training."""

    every: int = setting(10, "updates between lines where the output is not a terminal", minimum=1)
    norms: int = setting(0, "updates between gradient and weight norms of every layer; 0: never", minimum=0)
    underflow: int = setting(
        0, "updates between counts of gradients that fp16 holds as zero, with their exponents; 0: never", minimum=0
    )
    tensorboard: bool = setting(False, "write TensorBoard event files (needs the extra `tensorboard`)")
    progress: str = setting(
        "auto", "auto: a line that is redrawn on a terminal, else lines; lines; none", choices=("auto", "lines", "none")
    )


class Eval(Section):
    """Evaluation on the validation data and the sample at the end."""

    every: int = setting(0, "updates between evaluations; 0: only at the end", minimum=0)
    samples: int = setting(0, "validation samples used; 0: all", minimum=0)
    micro: int = setting(0, "samples per forward on one rank; 0: as batch.micro", minimum=0)
    sample_tokens: int = setting(0, "tokens of text generated at the end; 0: none", minimum=0)
    prompt: str = setting("import ", "what the generated text starts with")


class Fault(Section):
    """What happens when something goes wrong."""

    timeout: float = setting(600.0, "seconds a rank waits for the others before the run is ended", above=0, maximum=1e9)
    max_restarts: int = setting(0, "starts after a failed rank, each from the newest checkpoint", minimum=0)
    nan: str = setting(
        "stop",
        "an update whose loss or gradient is not finite: end the run, or skip the update",
        choices=("stop", "skip"),
    )
    max_skipped: int = setting(50, "consecutive skipped updates that end the run", minimum=1)


class Config(Section):
    """A whole run file."""

    run: Run
    start: Start
    model: Model
    data: Data
    batch: Batch
    optim: Optim
    precision: Precision
    parallel: Parallel
    memory: Memory
    checkpoint: Checkpoint
    log: Log
    eval: Eval
    fault: Fault
