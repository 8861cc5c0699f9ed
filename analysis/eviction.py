"""What memory costs in speed: a layer off the device, and states that are only kept.

Two runs. In the first llama-server decodes with every layer on the device and with one layer off
it, in turns. In the second the tracer, where room for rolling back and number of drafts are
separate, keeps the room of the deepest depth at every depth, in turns with just the room needed.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd

from analysis import arms, model, stats
from analysis.arm_runs import measured, traced
from analysis.arms import Pair
from analysis.parameters import PageParameters
from analysis.placement import ALL, PARTIAL, is_host
from analysis.spec import SweepSpec
from analysis.stats import ON_THESE, SCOPES
from analysis.tables import interval

ARMS = {"natural": "all on it", "synthetic": "all on it", "evicted": "one layer off"}
MISSING = "This part was not measured here: {}"


def evicted_spec(spec: SweepSpec, layers: int, *, emulated: bool) -> SweepSpec:
    """Return the spec of the pair: all of the model's `layers` on the device, and all but one.

    `layers` counts the output, as llama.cpp does. An emulated device and the server get one thread
    each, since they share this processor.
    """
    more = {"device": "emulated", "threads": spec.threads or 1} if emulated else {}
    return replace(
        spec, more_arms=("evicted",), gpu_layers=layers - 1, lossless_prompts=0, **more  # type: ignore[arg-type]
    )  # fmt: skip


def measure_evicted(
    page: PageParameters, notebook: str, *, emulated: bool, covered_by: str = ""
) -> Pair:
    """Measure the first run, or take it from another notebook that has measured it here."""
    layers = model.blocks(page.spec.model) + 1
    spec = evicted_spec(page.spec, layers, emulated=emulated)
    return measured(spec, page, notebook, covered_by)


def measure_room(page: PageParameters, notebook: str, *, covered_by: str = "") -> Pair:
    """Measure the second run, up to the deepest depth of the page."""
    room = max(page.spec.depths)
    return traced(page, notebook, more_arms=("room",), room=room, covered_by=covered_by)


def placements(pair: Pair) -> pd.DataFrame:
    """Return where the layers lay in each arm, as the server's logs told it."""
    base, _ = pair.both
    rows = {}
    for launch in base.recorded.launches:
        found = launch.placement
        on, total = found.get("layers_on_device"), found.get("layers_total")
        rows[launch.depth, ARMS.get(launch.arm, launch.arm)] = {
            "layers on the device": "–" if on is None else f"{on}/{total}",
            "verdict of the log": {ALL: "all on the device", PARTIAL: "partly"}.get(
                found.get("verdict", ""), found.get("verdict", "–")
            ),
            "model buffers": _buffers(found.get("model_buffers_mib")),
            "state buffers": _buffers(found.get("state_buffers_mib")),
        }
    table = pd.DataFrame.from_dict(rows, orient="index").sort_index()
    table.index = pd.MultiIndex.from_tuples(table.index, names=["depth", "layers"])
    return table


def _buffers(found: dict[str, float] | None) -> str:
    if not found:
        return "–"
    named: dict[str, float] = {}
    for device, mib in found.items():
        place = "host" if is_host(device) else "the device"
        named[place] = named.get(place, 0.0) + mib
    return ", ".join(f"{name} {mib:.2f} MiB" for name, mib in sorted(named.items()))


def cost(pair: Pair) -> pd.DataFrame:
    """Return the second arm's speed against the first's at each depth, in both scopes."""
    base, other = pair.both
    rows = {}
    for depth in base.depths:
        rows[depth] = {
            f"speed with one layer off against none, {scope}": interval(
                arms.ratio(other, base, depth, scope)
            )
            for scope in SCOPES
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("depth")


def room_cost(pair: Pair) -> pd.DataFrame:
    """Return what room alone does, and what depth alone does with the room held.

    At the deepest depth both arms have the same room: their ratio shows the noise of the method.
    """
    base, other = pair.both
    room = max(base.depths)
    rows = {}
    for depth in base.depths:
        rows[depth] = {
            **{
                f"depth held: room {room} against just enough, {scope}": interval(
                    arms.ratio(other, base, depth, scope)
                )
                for scope in SCOPES
            },
            f"room {room} held: speed against depth 0": interval(
                arms.ratio(other, other, depth, stats.LIKE_THESE, base=0)
            ),
            "room as needed: speed against depth 0": interval(
                arms.ratio(base, base, depth, stats.LIKE_THESE, base=0)
            ),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("depth")


def sentence(pair: Pair, *, emulated: bool) -> str:
    """Return what one layer off the device did, as one sentence for each depth."""
    if pair.base is None or pair.other is None:
        return MISSING.format(pair.why)
    told = _told(pair, pair.base.depths)
    where = (
        "On the emulated device, which shows the mechanism and says nothing of its size on a card, "
        if emulated
        else "On this device, "
    )
    return f"{where}one layer off it gave, {ON_THESE}, {'; '.join(told)}."


def room_sentence(pair: Pair) -> str:
    """Return what room that is only kept did to the speed, as one sentence."""
    if pair.base is None or pair.other is None:
        return MISSING.format(pair.why)
    room = max(pair.base.depths)
    told = _told(pair, tuple(d for d in pair.base.depths if d < room))
    return (
        f"Room for {room} tokens that is kept and not used gave, in the tracer and {ON_THESE}, "
        f"{'; '.join(told)}."
    )


def _told(pair: Pair, depths: tuple[int, ...]) -> list[str]:
    """Return the ratio of the two arms at each depth in words, on these prompts."""
    base, other = pair.both
    told = []
    for depth in depths:
        found = arms.ratio(other, base, depth, ON_THESE)
        if found is not None:
            clear = "slower" if found.high < 1 else "faster" if found.low > 1 else ""
            word = clear or "not distinguishable"
            word = word if math.isfinite(found.high) else "one launch can not tell"
            told.append(f"{interval(found)} times the speed at depth {depth} ({word})")
    return told


def device_note(*, emulated: bool) -> str:
    """Return what kind of device the measurement ran on."""
    if emulated:
        return (
            "**No graphics card was found.** The device is emulated: a second process on this "
            "processor, reached over loopback, one thread a side. The mechanism is real, a layer "
            "leaves and the work crosses between two back ends; the size of the loss is not that "
            "of a card and is compared with nothing."
        )
    return "The device is the one that llama-server found on this machine."
