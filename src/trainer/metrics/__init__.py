"""Numbers of a run, to JSON lines (`writer`), the terminal (`progress`) and TensorBoard (`tensorboard`). No torch."""
