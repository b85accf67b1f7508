"""Bytes of CPU tensors by what they are for, and the allocator that counts them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from . import _core
from ._text import html_table

__all__ = ["Usage", "free", "install", "installed", "reset_peaks", "trim", "usage"]


@dataclass(frozen=True)
class Usage:
    """Bytes of all CPU tensors that were made since `install()`."""

    live: int
    peak: int
    activations_live: int
    """All but parameters, gradients and optimizer state."""
    activations_peak: int
    live_by_tag: dict[str, int]
    peak_by_tag: dict[str, int]

    def __repr__(self) -> str:
        def text(by_tag: dict[str, int]) -> str:
            return ", ".join(f"{tag} {_core.bytes_text(count)}" for tag, count in by_tag.items() if count)

        return (
            f"live {_core.bytes_text(self.live)} ({text(self.live_by_tag)})\n"
            f"peak {_core.bytes_text(self.peak)} ({text(self.peak_by_tag)})"
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def _repr_html_(self) -> str:
        rows = [(tag, live, self.peak_by_tag[tag]) for tag, live in self.live_by_tag.items()]
        rows += [("activations", self.activations_live, self.activations_peak), ("all together", self.live, self.peak)]
        cells = [[tag, _core.bytes_text(live), _core.bytes_text(peak)] for tag, live, peak in rows]
        return html_table(["used for", "live", "peak"], cells)


def install() -> None:
    """Makes pareprop's caching allocator that of all new CPU tensors of this process, until it ends. Call it early."""
    _core.install_allocator()


def installed() -> bool:
    """Whether `install()` was called."""
    return _core.allocator_installed()


def usage() -> Usage:
    """What is live now, and the peaks since the last `reset_peaks()`. Raises RuntimeError before `install()`."""
    if not installed():
        raise RuntimeError("pareprop.memory: nothing is counted yet; call pareprop.memory.install() at the start")
    return Usage(**_core.usage())


def reset_peaks() -> None:
    """Peaks begin again with what is live now."""
    _core.reset_peaks()


def trim() -> None:
    """Gives unused memory of the allocator back to the system."""
    _core.trim()


def free() -> int:
    """Bytes that this process can still allocate: the tightest of the machine's, its control groups' and ulimit's."""
    return _core.free_memory()
