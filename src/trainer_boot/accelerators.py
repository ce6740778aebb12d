"""Is there an accelerator on this machine? Asked before torch is imported, by device files alone."""

import os

DEVICE_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


def present() -> bool:
    """Whether the driver of one has made its device file."""
    return any(map(os.path.exists, DEVICE_FILES))
