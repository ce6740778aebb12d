"""The end of a complete run: evaluation, a generated sample, and where everything lies."""

from pathlib import Path

from trainer.launch import comm
from trainer.schema import Config
from trainer.session import Training
from trainer.surroundings import tell


def finish(config: Config, training: Training, folder: Path) -> None:
    """Collective: all ranks evaluate, rank 0 prints to standard output."""
    result = training.loop.evaluate_now()
    training.reporters.progress.close()
    first = training.world.rank == 0
    cut = training.loop.step.cut
    text = sample(config, training) if first or cut.sharded or cut.spread is not None else ""
    if first:
        for line in lines(config, training, folder, result, text):
            tell(line)
    comm.barrier()


def sample(config: Config, training: Training) -> str:
    """Prompt and generated text; "" where none is asked for. Collective where the model or the optimizer's state is."""
    if not (config.eval.sample_tokens and training.data.tokenizer is not None and config.model.kind == "gpt"):
        return ""
    from trainer.sample import generate

    with training.loop.step.optimizers.averaged():
        return config.eval.prompt + generate(
            training.model,
            training.data.tokenizer,
            config.eval.prompt,
            config.eval.sample_tokens,
            seed=config.run.seed,
            policy=training.loop.step.policy,
        )


def lines(config: Config, training: Training, folder: Path, result: dict[str, float], text: str) -> list[str]:
    """The summary, line by line; `text`: as `sample` gives it."""
    state, loop = training.state, training.loop
    told = [f"trained: {state.step} updates, {state.cursor} samples"]
    if loop.seconds:
        told[0] += f", {loop.seconds:.1f} s in updates"
    if result:
        told.append(
            "validation: " + ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in result.items())
        )
    zlib_bits = training.data.zlib_bits_per_byte
    if "bits_per_byte" in result and zlib_bits:
        told.append(f"zlib -9 needs {zlib_bits:.4f} bits per byte on the same text")
    if text:
        told += ["sample:", *("    " + line for line in text.splitlines())]
    newest = training.checkpoints.store.list()
    told.append(f"run folder: {folder} (resolved.toml, metrics.jsonl{', checkpoints/' if newest else ''})")
    if newest:
        told.append(f"newest checkpoint: {newest[-1]}")
    return told
