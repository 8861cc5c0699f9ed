"""The buffers of the computation, which follow no law: an estimate.

llama.cpp packs the intermediate results of its largest graph, a pass of 512 tokens, into one
buffer a context; how they pack is the allocator's affair. The numbers below were read off the
layouts that the pinned build (0c1e570) makes on a device for the shapes that ship, each at
thirteen settings. They reach the target's buffer to 4 MiB and the MTP context's to 15 MiB there;
another back end packs otherwise. Where an engine can be asked it is (:mod:`analysis.planner`).
"""

from __future__ import annotations

from analysis import memory
from analysis.memory import MIB, STATE_BYTES, Layout

PASS_TOKENS = 512  # llama-server's --ubatch-size, as it is by default
MASK_BYTES = 2  # of the attention mask, in 16-bit floats
MTP_SHARE = 0.6  # of the target's widths that the MTP block holds beside its mask


def buffers_mib(layout: Layout, context: int, slots: int, depth: int, *, unified: bool) -> float:
    """Return the estimate for the target's context, and the MTP block's where one drafts."""
    held = memory.cells(context, slots, unified=unified)
    mask = PASS_TOKENS * (held if unified else held / slots) * MASK_BYTES / MIB
    width = _width_mib(layout)
    target = max(width, _states_mib(layout, slots * memory.copies(layout, depth))) + mask
    return target + (max(width, mask + MTP_SHARE * width) if depth else 0.0)


def _width_mib(layout: Layout) -> float:
    """Return what a pass holds at its widest: feed-forward, experts or linear attention."""
    numbers = max(
        3 * layout.ffn + 2 * layout.width,
        3 * layout.channels + 2 * layout.width,
        (2 * layout.experts_used + 1) * layout.width,
    )
    return numbers * PASS_TOKENS * 4 / MIB


def _states_mib(layout: Layout, copies: int) -> float:
    """Return what a linear layer holds with its states; nothing where they fit into a gap."""
    states = copies * layout.linear_inner * layout.linear_state * STATE_BYTES / MIB
    if states < layout.channels * PASS_TOKENS * 4 / MIB:
        return 0.0
    keys = layout.linear_groups * layout.linear_state
    numbers = 4 * layout.linear_inner + 6 * keys + 2 * layout.width
    return numbers * PASS_TOKENS * 4 / MIB + states
