"""One generated text as a strip of tokens: drafted and kept, drafted and refused, the target's."""

from __future__ import annotations

from html import escape

from analysis.steps import Traced

STEPS = 24
_STYLE = """<style>
.strip{line-height:1.5;font-family:monospace;max-width:100%}
.strip span{display:inline-block;padding:.05em .2em;margin:.12em .05em;border-radius:.25em;
color:#111;white-space:pre;border:1px solid transparent}
.strip .kept{background:#a6d8c7;border-bottom:2px solid #00664b}
.strip .refused{background:#f6d2b8;border-bottom:2px dotted #9a4a00;text-decoration:line-through}
.strip .own{background:#d5e3f5;border:1px solid #1f5fa8}
</style>"""
_LEGEND = (
    '<p class="strip"><span class="kept">drafted and kept</span> '
    '<span class="refused">drafted and refused</span> '
    '<span class="own">chosen by the target</span></p>'
)


def strip(first: int, traced: Traced, steps: int = STEPS) -> str:
    """Return the start of a text as HTML, with a legend and a text alternative.

    `first` is the text's first token, which the prompt pass gives.

    Marks differ in underline, strike and frame as well as in colour. A drafted token's tooltip
    holds its draft probability.
    """
    shown = traced.steps[:steps]
    parts = [_span("own", "chosen by the target, in the prompt pass", traced.pieces[first])]
    for step in shown:
        for place, (token, p) in enumerate(
            zip(step.drafted, step.draft_probabilities, strict=True)
        ):
            kept = place < step.accepted
            kind, what = ("kept", "kept") if kept else ("refused", "refused")
            title = f"drafted with probability {p:.2f}, {what}"
            parts.append(_span(kind, title, traced.pieces[token]))
        parts.append(_span("own", "chosen by the target", traced.pieces[step.chosen]))
    said = in_words(first, traced, steps)
    return "\n".join(
        [
            _STYLE,
            _LEGEND,
            f'<div class="strip" role="img" aria-label="{escape(said)}">',
            "".join(parts),
            "</div>",
            f"<p>{escape(said)}</p>",
        ]
    )


def in_words(first: int, traced: Traced, steps: int = STEPS) -> str:
    """Return what a strip shows, as text."""
    shown = traced.steps[:steps]
    drafted = sum(len(s.drafted) for s in shown)
    kept = sum(s.accepted for s in shown)
    whole = sum(s.accepted == len(s.drafted) > 0 for s in shown)
    none = sum(s.accepted == 0 and bool(s.drafted) for s in shown)
    tokens = [first, *(t for s in shown for t in (*s.drafted[: s.accepted], s.chosen))]
    text = "".join(traced.pieces[t] for t in tokens).strip()
    return (
        f"In the first {len(shown)} steps the head drafted {drafted} tokens. The target kept "
        f"{kept} and refused {drafted - kept}, and chose {len(shown)} of its own, one a step; "
        f"{whole} drafts were kept whole, {none} not at all. The text: {text!r}"
    )


def _span(kind: str, title: str, piece: str) -> str:
    shown = escape(piece).replace("\n", "↵").replace("\t", "→") or "∅"
    ends = "<br>" if piece.endswith("\n") and kind != "refused" else ""
    return f'<span class="{kind}" title="{title}">{shown}</span>{ends}'
