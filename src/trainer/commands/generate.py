"""`trainer generate`: text from a trained run."""

from pathlib import Path

from trainer.arguments import real, split, whole
from trainer.errors import UserError

HELP = """usage: trainer generate RUN_FOLDER [--prompt TEXT] [--tokens N] [--temperature T] [--top-k K] [--seed N]
                        [--checkpoint FOLDER]

Continues a text with the newest whole checkpoint of a run (or the one given).

  --prompt TEXT      what the text starts with (default: the run's eval.prompt)
  --tokens N         tokens to add (default 200)
  --temperature T    0 takes the likeliest token each time (default 0.8)
  --top-k K          choose among the K likeliest; 0: all (default 40)
  --seed N           another seed, another text (default 0)

example:
  trainer generate runs/default --prompt "def main(" --tokens 400"""

FLAGS = dict.fromkeys(("prompt", "tokens", "temperature", "top-k", "seed", "checkpoint"), True)


def run(arguments: list[str]) -> int:
    """Prints prompt and continuation."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP)
        return 0
    given = split(arguments, FLAGS, 1, "generate")
    place = Path(run_place(given.places, "generate"))
    tokens = whole(given.flags, "tokens", 200, 1)
    temperature = real(given.flags, "temperature", 0.8)
    top_k = whole(given.flags, "top-k", 40)
    seed = whole(given.flags, "seed", 0)
    from trainer.needs import need

    need("torch", "numpy")
    from trainer.loaded import load
    from trainer.sample import generate

    loaded = load(place, given.settings, given.flags.get("checkpoint", ""))
    if loaded.data.tokenizer is None or not hasattr(loaded.model, "new_cache"):
        raise UserError(
            "this run's model does not generate text", "Use a run of model.kind gpt that was trained on text.", 2
        )
    prompt = given.flags.get("prompt", loaded.config.eval.prompt)
    text = generate(
        loaded.model,
        loaded.data.tokenizer,
        prompt,
        tokens,
        seed=seed,
        policy=loaded.policy,
        temperature=temperature,
        top_k=top_k,
    )
    print(prompt + text)
    return 0


def run_place(places: list[str], command: str) -> str:
    """The run folder of the command line."""
    if not places:
        raise UserError(
            "no run folder is given", f"Run `trainer {command} RUN_FOLDER`, for example with runs/default.", 2
        )
    if not Path(places[0]).is_dir():
        raise UserError(
            f"{places[0]} is not a folder", f"Run `trainer {command} RUN_FOLDER`, for example with runs/default.", 2
        )
    return places[0]
