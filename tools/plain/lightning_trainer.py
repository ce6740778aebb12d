"""The first step of one_process.py by Lightning's Trainer: `lightning_trainer.py FOLDER`."""

import sys
import time

import lightning
import torch
from tiny import BATCH, SEQUENCE, Samples, Tiny, loss_sum  # type: ignore[import-not-found]  # beside it
from torch import Tensor
from torch.utils.data import DataLoader

losses: list[float] = []
done: list[int] = []


class Module(lightning.LightningModule):
    """The tiny model, with its loss and its optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Tiny()

    def training_step(self, rows: Tensor) -> Tensor:
        """Mean over the counted ids."""
        total, _ = loss_sum(self.model, rows)
        losses.append(total.item() / (BATCH * SEQUENCE))
        mean: Tensor = total / (BATCH * SEQUENCE)
        return mean

    def on_train_batch_end(self, *_: object) -> None:
        """The update is done."""
        done.append(time.monotonic_ns())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """As one_process.py has it."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0, fused=True)


torch.set_num_threads(1)
torch.manual_seed(0)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=1,
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Module(), DataLoader(Samples(), batch_size=BATCH))
with open(f"{sys.argv[1]}/rank-0.txt", "w") as file:
    print(done[0], *losses, file=file)
