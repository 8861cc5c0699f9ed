"""Measure, explain and decide the draft depth of speculative decoding.

Data flows one way: :mod:`analysis.spec` (what to measure) -> :mod:`analysis.engines` and
:mod:`analysis.sweep` (how to get it) -> :mod:`analysis.store` (raw samples) ->
:mod:`analysis.speculation`, :mod:`analysis.stats`, :mod:`analysis.verdict` (what follows) ->
:mod:`analysis.tables`, :mod:`analysis.figures` (how it is shown) -> :mod:`analysis.series`
(notebooks and the book) -> :mod:`analysis.cli`.

Importing the package does no work; import the module you need.
"""

__version__ = "0.1.0"
