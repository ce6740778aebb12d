"""Every setting of a run, one class a section of the run file. No torch, no dataclasses: read at every start."""

from trainer.settings import Section, setting

PRECISIONS = ("auto", "fp64", "fp32", "bf16", "fp16")


class Run(Section):
    """What is run, where it is kept and for how long."""

    folder: str = setting(
        "runs/default", "run folder for checkpoints, metrics and prepared data; an existing run is resumed"
    )
    seed: int = setting(0, "seed of weights, data order and dropout", minimum=0, maximum=2**63 - 1)
    steps: int = setting(0, "updates to train; 0: as many as `epochs` give", minimum=0, maximum=10**12)
    epochs: int = setting(1, "passes over the training data, when `steps` is 0", minimum=1)
    device: str = setting("auto", "auto (cuda if available, else cpu), cpu or cuda")
    resume: str = setting(
        "auto",
        "auto: resume from the newest whole checkpoint, if any; must: require one; never: require a folder without a "
        "run; or the path of a checkpoint",
    )
    threads: int = setting(0, "CPU threads per rank; 0: the cores of the node divided by its ranks", minimum=0)


class Start(Section):
    """The fast start. A layer that meets something it does not support turns itself off."""

    layers: list[str] = setting(
        ["gc", "snapshot", "prefetch", "libraries", "lazy", "overlays", "fork", "exit"],
        "layers of the fast start: gc (no garbage collection during imports), snapshot (Python code is read from one "
        "file), prefetch (shared libraries are read ahead into the page cache), libraries (shared libraries are "
        "opened without a search), lazy (unused modules of torch are not executed; see `policy`), overlays (what only "
        "torch.compile needs is imported on first use), fork (ranks of --nproc are forked from one process that has "
        "imported torch), exit (the interpreter is not torn down at the end); an empty list: a plain start",
    )
    policy: str = setting(
        "auto",
        "whether modules may be lazy: fast (yes), safe (no), auto (only with built-in model, loss, data and "
        "optimizer, on CPU)",
        choices=("auto", "fast", "safe"),
    )
    report: bool = setting(False, "print how long each phase of the start took (always written to <run folder>/start)")
    calls: bool = setting(False, "count the system calls of the start by kind (slow; needs strace)")
    check: str = setting(
        "fast", "how thoroughly the snapshot is compared with the environment", choices=("fast", "full")
    )
    node_local: str = setting(
        "auto",
        "read the snapshot from a copy on the node (in $TRAINER_NODE_DIR, else memory, else /tmp); auto: if it is on "
        "a shared file system",
        choices=("auto", "on", "off"),
    )


class Model(Section):
    """The model: a built-in one, or your own."""

    kind: str = setting("gpt", "built-in model", choices=("gpt", "mlp", "vit", "resnet"))
    build: str = setting(
        "",
        "your own model: `file.py:function` or `package.module:function`, called with `options`",
        code=True,
    )
    loss: str = setting("", "your own loss: `file.py:function`, with loss(model, batch) -> (sum, count)", code=True)
    options: dict[str, object] = setting({}, "keyword arguments of your `build` function (a table)")
    layers: int = setting(4, "gpt, vit: blocks; mlp: hidden layers", minimum=1)
    width: int = setting(256, "gpt, vit: model width; mlp: hidden width", minimum=1)
    heads: int = setting(4, "gpt, vit: query heads", minimum=1)
    kv_heads: int = setting(0, "gpt, vit: key/value heads (grouped-query attention); 0: as many as `heads`", minimum=0)
    hidden: int = setting(
        0, "gpt, vit: hidden width of the SwiGLU; 0: 8/3 of `width`, rounded up to a multiple of 32", minimum=0
    )
    vocabulary: int = setting(0, "gpt: vocabulary size; 0: that of the tokenizer", minimum=0)
    tied: bool = setting(False, "gpt: share the weights of the embedding and the output layer")
    qk_norm: bool = setting(False, "gpt, vit: RMSNorm on queries and keys")
    bigram: int = setting(0, "gpt: rows of a hashed table of token-pair embeddings; 0: none", minimum=0)
    rope_base: float = setting(10000.0, "gpt: base of the rotary position embeddings", above=0)
    dropout: float = setting(0.0, "gpt, mlp, vit: dropout probability", minimum=0)
    inputs: int = setting(0, "mlp: number of input features", minimum=0)
    classes: int = setting(0, "mlp, vit, resnet: number of classes; 0: as many as `data.images` has", minimum=0)
    image: int = setting(32, "vit, resnet: height and width of an image; image files are resized to it", minimum=1)
    channels: int = setting(3, "vit, resnet: 3 (RGB), 1 (gray) or as many as your arrays have", minimum=1)
    patch: int = setting(4, "vit: height and width of a patch", minimum=1)
    stages: list[int] = setting(
        [2, 2, 2, 2], "resnet: basic blocks per stage; every stage but the first halves the image"
    )
    filters: int = setting(64, "resnet: filters of the first stage; each later stage doubles them", minimum=1)
    stem: str = setting(
        "small",
        "resnet: small (3x3) for images of about 32 pixels, large (7x7, downsampled by 4) for about 224",
        choices=("small", "large"),
    )
    compile: str = setting(
        "none",
        "torch.compile: none, or blocks (each block separately, in training only)",
        choices=("none", "blocks"),
    )


class Data(Section):
    """The training data: one of `text`, `jsonl`, `images` and `dataset`."""

    text: list[str] = setting(
        [],
        "text files, globs or folders, one document per file; `python:stdlib` is the standard library of this Python",
    )
    jsonl: list[str] = setting([], "JSON-lines files or globs, one document per line")
    field: str = setting("text", "jsonl: the field with the text or the list of token ids")
    images: str = setting(
        "",
        "images with classes: a folder with one subfolder per class (needs the extra `images`), a folder with "
        "images.npy and labels.npy, or an .npz file with `images` and `labels`",
    )
    dataset: str = setting(
        "", "your own data: `file.py:Name`, a map-style torch Dataset (class, function or object)", code=True
    )
    options: dict[str, object] = setting({}, "keyword arguments of your `dataset` (a table)")
    tokenizer: str = setting(
        "bytes", "bytes (256 values and end of document), ids (token ids already), or a tokenizer.json"
    )
    sequence: int = setting(256, "tokens per sample", minimum=1)
    mask_documents: bool = setting(
        False, "attention does not cross boundaries between the documents packed into a sample"
    )
    crop: int = setting(0, "images: random shifts by up to this many pixels, padded with black; 0: none", minimum=0)
    flip: bool = setting(False, "images: random horizontal flips")
    mean: list[float] = setting([0.5], "images: mean to subtract from values in 0 to 1; one number, or one per channel")
    deviation: list[float] = setting([0.5], "images: standard deviation to divide by; one number, or one per channel")
    validation: list[str] = setting(
        [], "validation files, read like `text`, `jsonl` or `images`; empty: split off by `holdout`"
    )
    holdout: int = setting(
        10, "every n-th document or image is validation data, or the last n-th of a single text; 0: none", minimum=0
    )
    binary: bool = setting(False, "text: read files that are not text (compressed, images, NUL bytes) as raw bytes")
    shuffle: bool = setting(True, "shuffle in every epoch; false: the order of the files")
    workers: int = setting(0, "loader processes per rank, for images and your own dataset", minimum=0)
    cache: str = setting("", "folder of prepared token files; empty: inside the run folder")


class Batch(Section):
    """The batch of one update. Sizes are global: they do not depend on the number of ranks."""

    size: int = setting(0, "samples per update over all ranks; 0: from `tokens`, else 32", minimum=0)
    tokens: int = setting(
        0, "tokens per update over all ranks, instead of `size` (a multiple of data.sequence)", minimum=0
    )
    micro: int = setting(
        0,
        "samples per forward on one rank (micro-batch); 0: all samples of the rank at once; in a pipeline, 4 forwards "
        "per rank; with batch norms, a quarter of `size` in every layout",
        minimum=0,
    )
    last: str = setting(
        "keep", "the last, smaller batch of an epoch: keep it (weighted correctly) or drop it", choices=("keep", "drop")
    )


class Optim(Section):
    """Optimizer and learning-rate schedule."""

    name: str = setting(
        "adamw",
        "optimizer; muon: Muon for matrices, AdamW for the rest; lion: sign of the momentum, half the state of AdamW; "
        "adafactor: one number per row and column as state; schedule_free: AdamW with averaged weights, no schedule",
        choices=("adamw", "sgd", "muon", "lion", "adafactor", "schedule_free"),
    )
    build: str = setting("", "your own optimizer: `file.py:function`, called with (model, config.optim)", code=True)
    lr: float = setting(1e-3, "peak learning rate", above=0)
    matrix_lr: float = setting(0.02, "muon: peak learning rate of the matrices", above=0)
    matrix_precision: str = setting(
        "auto",
        "muon: number format of the orthogonalization; auto: bf16 on cuda, fp32 on cpu; always fp64 with fp64 weights",
        choices=("auto", "fp32", "bf16"),
    )
    betas: list[float] = setting(
        [0.9, 0.95],
        "adamw: decay rates of the two moments; lion: of the update and of the momentum (0.9, 0.99 or 0.95, 0.98); "
        "schedule_free: interpolation between weights and average, decay of the second moment",
    )
    eps: float = setting(1e-8, "adamw, schedule_free: added to the square root of the second moment", above=0)
    momentum: float = setting(0.0, "sgd, muon: momentum; for muon use 0.95, or 0.85 in short runs", minimum=0)
    weight_decay: float = setting(
        0.0, "decoupled weight decay, of matrices only: not of norms, biases and embeddings", minimum=0
    )
    average: str = setting(
        "none",
        "ema: evaluate, sample from and save an exponential moving average of the weights",
        choices=("none", "ema"),
    )
    ema_decay: float = setting(0.999, "ema: decay rate; (1 + n) / (10 + n) after n updates if that is less", minimum=0)
    clip: float = setting(1.0, "maximum global gradient norm; 0: no clipping", minimum=0)
    schedule: str = setting(
        "cosine", "learning-rate schedule after the warm-up", choices=("cosine", "linear", "wsd", "constant")
    )
    warmup: int = setting(0, "updates of linear warm-up", minimum=0)
    decay: float = setting(0.2, "wsd: last fraction of the updates, in which the learning rate decays", above=0)
    final: float = setting(0.0, "final learning rate, as a fraction of the peak", minimum=0)


class Precision(Section):
    """Number formats. Weights and optimizer state stay in fp32 (fp64 for fp64) unless `weights` says otherwise."""

    compute: str = setting(
        "auto",
        "matrix products: auto (bf16 if the CPU or GPU has instructions for it, else fp32), fp64, fp32, bf16, fp16, "
        "fp8 (on GPUs that have it)",
        choices=(*PRECISIONS, "fp8"),
    )
    attention: str = setting(
        "auto",
        "attention: auto (as `compute`; on CPU fp32 instead of bf16, which is faster), or a format",
        choices=PRECISIONS,
    )
    weights: str = setting(
        "fp32", "weights and optimizer state: fp32, or bf16 (pure bf16 training)", choices=("fp32", "bf16")
    )
    update: str = setting(
        "stochastic",
        "weights bf16: how updates are rounded: stochastic (at random, alike in every layout), kahan (compensated: "
        "the remainder of each weight is kept), plain (to nearest; small updates are lost)",
        choices=("plain", "stochastic", "kahan"),
    )
    gathered: str = setting(
        "weights",
        "format in which sharded weights are gathered: weights, or compute (half the bytes; gradients are still "
        "reduced in fp32)",
        choices=("weights", "compute"),
    )
    loss_scale: float = setting(65536.0, "fp16: initial loss scale; 0: no scaling", minimum=0)
    growth: int = setting(2000, "fp16: updates without overflow before the scale doubles", minimum=1)
    min_scale: float = setting(1.0, "fp16: minimum loss scale; a run that needs less ends with an error", above=0)


class Parallel(Section):
    """How the model and the data are distributed over ranks."""

    backend: str = setting("auto", "collectives: auto (nccl on cuda, gloo on cpu)", choices=("auto", "gloo", "nccl"))
    strategy: str = setting(
        "ddp",
        "data parallelism: ddp (replicated), optimizer (ZeRO-1: optimizer state is sharded), gradients (ZeRO-2 by "
        "FSDP2: everything is sharded, weights stay gathered from forward to backward), full (ZeRO-3 by FSDP2: "
        "weights are gathered only while a block uses them)",
        choices=("ddp", "optimizer", "gradients", "full"),
    )
    shard: int = setting(
        0,
        "gradients, full: ranks to shard over; other ranks are replicas (hybrid sharding); 0: all ranks",
        minimum=0,
    )
    pipeline: int = setting(1, "pipeline-parallel ranks", minimum=1)
    schedule: str = setting(
        "1f1b",
        "pipeline: order of the micro-batches: gpipe (all forwards, then all backwards), 1f1b (backward as early as "
        "possible: less memory), interleaved (1f1b with several stages per rank: less idle time, more communication), "
        "zero_bubble (weight gradients fill the idle time), zbv and dualpipev (two stages per rank in a V)",
        choices=("gpipe", "1f1b", "interleaved", "zero_bubble", "zbv", "dualpipev"),
    )
    virtual: int = setting(0, "interleaved, zero_bubble: stages per rank; 0: 2", minimum=0)
    cut: list[int] = setting([], "pipeline: blocks of each stage; empty: balanced by `balance`")
    balance: str = setting(
        "counted",
        "pipeline: how stages are balanced if `cut` is empty: by counted matrix sizes, or by time measured at the "
        "start (and kept by resumed runs)",
        choices=("counted", "measured"),
    )
    context: int = setting(1, "context-parallel ranks: sequences are sharded (gpt)", minimum=1)
    tensor: int = setting(1, "tensor-parallel ranks: matrices are sharded", minimum=1)
    sequence_parallel: bool = setting(
        False, "tensor: shard norms, dropout and residuals over the tokens too (less memory, same communication)"
    )
    loss_parallel: bool = setting(True, "tensor: keep logits sharded over the vocabulary (built-in losses)")
    prefetch: int = setting(
        0,
        "full: blocks whose weights are gathered ahead of the current one; 0: the default of torch",
        minimum=0,
    )
    bucket_mb: int = setting(25, "ddp, optimizer: size of a gradient bucket in MiB", minimum=1)
    unused: str = setting(
        "error",
        "ddp: parameters that the loss does not depend on are an error, or are found in every update (slower)",
        choices=("error", "find"),
    )
    static_graph: bool = setting(False, "ddp: promise that every update uses the same parameters, in one forward")
    compress: str = setting(
        "none",
        "ddp: lossy compression of gradients: none, bf16, fp16, or powersgd (low-rank matrices)",
        choices=("none", "bf16", "fp16", "powersgd"),
    )
    powersgd_rank: int = setting(4, "powersgd: rank of the matrices", minimum=1)
    sync_batch_norm: bool = setting(False, "batch norms use the statistics of the micro-batches of all ranks together")


class Memory(Section):
    """Trade time for memory."""

    recompute: str = setting(
        "none",
        "activation checkpointing: none, full (keep only the inputs of blocks), every (full for one block in "
        "`every`), selective (keep inputs and the outputs of matrix products and attention), budget (the compiler "
        "chooses within `budget`; needs model.compile)",
        choices=("none", "full", "every", "selective", "budget"),
    )
    every: int = setting(2, "recompute every: recompute one block in this many", minimum=1)
    budget: float = setting(
        0.5,
        "recompute budget: from 0 (keep only the inputs of blocks) to 1 (keep all that the compiler would)",
        minimum=0,
    )
    offload: str = setting(
        "none",
        "gradients, full: none (shards stay on the device), or parameters (weights, gradients and optimizer state in "
        "host memory, updated there)",
        choices=("none", "parameters"),
    )
    meta: str = setting(
        "auto",
        "build the model on the meta device, so that no rank ever holds all of it: on, off, auto (on for sharded "
        "built-in models of 100 million parameters or more)",
        choices=("auto", "on", "off"),
    )


class Checkpoint(Section):
    """What is saved, and when."""

    every: int = setting(0, "updates between checkpoints; 0: by time only", minimum=0)
    every_minutes: float = setting(10.0, "minutes between checkpoints; 0: by updates only", minimum=0)
    keep: int = setting(3, "number of newest checkpoints to keep", minimum=1)
    final: bool = setting(True, "save at the end")


class Log(Section):
    """Progress and metrics."""

    every: int = setting(10, "updates between progress lines if the output is not a terminal", minimum=1)
    norms: int = setting(
        0, "updates between gradient and weight norms of each layer in the metrics; 0: never", minimum=0
    )
    underflow: int = setting(
        0, "updates between counts of gradients that underflow to zero in fp16, with a histogram; 0: never", minimum=0
    )
    tensorboard: bool = setting(False, "write TensorBoard event files (needs the extra `tensorboard`)")
    progress: str = setting(
        "auto", "auto: a progress bar on a terminal, else lines; lines; none", choices=("auto", "lines", "none")
    )


class Eval(Section):
    """Evaluation on the validation data, and the text sample at the end."""

    every: int = setting(0, "updates between evaluations; 0: only at the end", minimum=0)
    samples: int = setting(0, "validation samples to use; 0: all", minimum=0)
    micro: int = setting(0, "samples per forward on one rank; 0: as batch.micro", minimum=0)
    sample_tokens: int = setting(0, "tokens of text to generate at the end; 0: none", minimum=0)
    prompt: str = setting("import ", "start of the generated text")


class Fault(Section):
    """Failures: time-outs, restarts, numbers that are not finite."""

    timeout: float = setting(600.0, "seconds a rank waits for the others before the run ends", above=0, maximum=1e9)
    max_restarts: int = setting(0, "restarts after a failed rank, each from the newest checkpoint", minimum=0)
    nan: str = setting(
        "stop",
        "if the loss or gradient of an update is not finite: stop the run, or skip the update",
        choices=("stop", "skip"),
    )
    max_skipped: int = setting(50, "consecutive skipped updates after which the run ends", minimum=1)


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
