"""Bytes of the storages of all tensors that live, as torch's own memory tracker counts them, where it cannot look: it
follows modules, and a pipeline's run again and again before their backward."""

import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]  # no types in torch
    """Counts every storage from the operation that made it until it is gone. `now`, `peak`: bytes. Storages that are
    resized afterwards (FSDP2's gathered weights) are not followed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.now = 0
        self.peak = 0
        self._known: dict[int, Any] = {}

    def forget_peak(self) -> None:
        """The peak is counted from here."""
        self.peak = self.now

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for each in tree_leaves(found):
            if type(each) in (Tensor, nn.Parameter):  # a DTensor's storage is not there
                self._count(each.untyped_storage())
        return found

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        known = self._known.get(key)
        if known is not None and known() is storage:
            return
        size = storage.nbytes()

        def gone(_: object) -> None:
            self.now -= size
            if self._known.get(key) is own:
                del self._known[key]

        own = self._known[key] = weakref.ref(storage, gone)
        self.now += size
        self.peak = max(self.peak, self.now)
