"""One generated text as a strip of tokens: drafted and kept, drafted and refused, the target's."""

from __future__ import annotations

from html import escape

from analysis.steps import Traced

_STYLE = """<style>
.strip{line-height:2.1;font-family:monospace;max-width:100%}
.strip span{padding:.12em .22em;margin:0 .06em;border-radius:.25em;color:#111;white-space:pre-wrap;
border:1px solid transparent}
.strip .kept{background:#a6d8c7;border-bottom:2px solid #00664b}
.strip .refused{background:#f6d2b8;border-bottom:2px dotted #9a4a00;text-decoration:line-through}
.strip .own{background:#d5e3f5;border:1px solid #1f5fa8}
</style>"""
_LEGEND = (
    '<p class="strip"><span class="kept">drafted and kept</span> '
    '<span class="refused">drafted and refused</span> '
    '<span class="own">chosen by the target</span></p>'
)


def strip(traced: Traced, steps: int = 40) -> str:
    """Return the first steps of a text as HTML, with a legend and a text alternative.

    Marks differ in underline, strike and frame as well as in colour. A drafted token's tooltip
    holds its draft probability.
    """
    shown = traced.steps[:steps]
    parts = []
    for step in shown:
        for place, (token, p) in enumerate(
            zip(step.drafted, step.draft_probabilities, strict=True)
        ):
            kept = place < step.accepted
            kind, what = ("kept", "kept") if kept else ("refused", "refused")
            title = f"drafted with probability {p:.2f}, {what}"
            parts.append(_span(kind, title, traced.pieces[token]))
        parts.append(_span("own", "chosen by the target", traced.pieces[step.chosen]))
    return "\n".join(
        [
            _STYLE,
            _LEGEND,
            f'<div class="strip" role="img" aria-label="{escape(in_words(traced, steps))}">',
            "".join(parts),
            "</div>",
            f"<p>{escape(in_words(traced, steps))}</p>",
        ]
    )


def in_words(traced: Traced, steps: int = 40) -> str:
    """Return what a strip shows, as text."""
    shown = traced.steps[:steps]
    drafted = sum(len(s.drafted) for s in shown)
    kept = sum(s.accepted for s in shown)
    whole = sum(s.accepted == len(s.drafted) > 0 for s in shown)
    none = sum(s.accepted == 0 and bool(s.drafted) for s in shown)
    text = "".join(
        traced.pieces[t] for s in shown for t in (*s.drafted[: s.accepted], s.chosen)
    ).strip()
    return (
        f"In {len(shown)} steps the head drafted {drafted} tokens. The target kept {kept} and "
        f"refused {drafted - kept}, and chose {len(shown)} of its own, one a step; {whole} drafts "
        f"were kept whole, {none} not at all. The text: {text!r}"
    )


def _span(kind: str, title: str, piece: str) -> str:
    shown = escape(piece).replace("\n", "↵<br>").replace("\t", "→") or "∅"
    return f'<span class="{kind}" title="{title}">{shown}</span>'
