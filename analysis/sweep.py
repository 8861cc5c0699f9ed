"""The protocol: fresh launches in balanced order, a warm-up, then the same requests everywhere."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis import lossless, machine, model, prompts, records, store
from analysis.audit import audit
from analysis.engines import binary, choose
from analysis.errors import EngineError, StoreError
from analysis.folders import REPLAY_VARIABLE, machines_folder, replaying
from analysis.launch import Bench, PlannedLaunch, measure_launches, missing
from analysis.progress import Progress, here
from analysis.spec import SweepSpec

# Chooses a round's depths from what was measured before it.
Steer = Callable[[store.Recorded, int], Collection[int]]


def plan(spec: SweepSpec) -> list[PlannedLaunch]:
    """Return the launches: every arm and depth once a round, rounds in alternating order (ABBA).

    A drift of the machine that is linear in time then falls on all of them alike over each pair
    of rounds. The arms of a depth follow each other.
    """
    cells = spec.cells
    launches: list[PlannedLaunch] = []
    for number in range(spec.rounds):
        order = cells if number % 2 == 0 else cells[::-1]
        launches += [
            PlannedLaunch(number, len(launches) + i, depth, arm)
            for i, (depth, arm) in enumerate(order)
        ]
    return launches


def measure(
    spec: SweepSpec,
    notebook: str = "depth_sweep",
    machine_name: str = "",
    folder: Path | None = None,
    progress: Progress | None = None,
    covered_by: str = "",
    beside: str = "",
    steer: Steer | None = None,
) -> store.Recorded:
    """Measure what is not yet measured of a spec, and return all its samples.

    Samples go to ``<folder>/<machine>/samples/<notebook>-<key>.jsonl`` and the engines' logs to
    ``logs`` beside it. Interrupted at any moment, a second call continues. With
    ``SPECDEPTH_REPLAY=1`` nothing is started and the stored samples are returned. Samples of the
    notebook `covered_by` are taken instead where they hold all that is asked for. An engine named
    by `beside` runs next to the spec's own and answers the same requests in turns. `steer` chooses
    the depths of a round from the samples of the rounds before (:mod:`analysis.racing`); none ends
    the run.

    Raises
    ------
    EngineError
        If no launch at all worked; single failures are kept as samples with their error.
    """
    here_facts = machine.facts(machine_name)
    samples = (folder or machines_folder()) / here_facts.name / "samples"
    if replaying():
        fuller = _covering(samples, covered_by, spec)
        return fuller[0] if fuller else find(samples, notebook, spec)
    build = choose.probe(spec)
    path = model.resolve(spec.model)
    facts = model.facts(path)
    model.check_drafter(facts, spec)
    files = _drafter_files(spec)
    other = replace(spec, engine=beside) if beside else None
    other_build = choose.probe(other) if other else None
    more = {"beside": other_build.fingerprint} if other_build else {}
    key = spec.key(
        model=facts.sha256,
        **_in_key(spec, files),
        engine=build.fingerprint,
        settings=binary.settings(),
        **more,
    )
    for recorded in _covering(samples, covered_by, spec):
        stored_engine = recorded.run.engine
        if (
            recorded.run.model["sha256"] == facts.sha256
            and stored_engine["fingerprint"] == build.fingerprint[:16]
            and stored_engine["settings"] == binary.settings()
            and store.hardware(recorded.run.machine) == store.hardware(here_facts.to_json())
        ):
            return recorded
    file = samples / f"{notebook}-{key}.jsonl"
    bench = Bench(spec, build, path, (), f"{notebook}-{key}", samples / "logs" / key)
    bench = replace(bench, encoded=_encode(bench, facts))
    if other and other_build:
        bench = replace(bench, beside=replace(bench, spec=other, build=other_build))
    run = _run_facts(bench, notebook, key, here_facts, facts)
    run = replace(run, drafters={name: f.to_json() for name, f in files.items()})
    with store.Writer(file, run) as writer:
        stored = store.read(file)
        _check_prompts(stored.run, run)
        _run_plan(bench, writer, stored, progress or here(), steer)
        audit(bench, writer, store.read(file))
    recorded = store.read(file)
    if not recorded.done():
        errors = [s.error for s in recorded.samples if s.error]
        raise EngineError("no launch worked", errors[-1] if errors else "", "see the logs")
    return recorded


def _drafter_files(spec: SweepSpec) -> dict[str, model.ModelFacts]:
    """Return the facts of the files that draft, by their drafter's name."""
    paths = {spec.label: spec.draft_model} | {n: path for n, (_, path) in spec.rivals.items()}
    return {n: model.facts(model.resolve(path)) for n, path in paths.items() if path}


def _in_key(spec: SweepSpec, files: dict[str, model.ModelFacts]) -> dict[str, Any]:
    """Return what a run's key has of them: the first drafter's file, and those of the others."""
    own = files[spec.label].sha256 if spec.label in files else ""
    further = {n: files[n].sha256 if n in files else "" for n in spec.rivals}
    return {"draft": own} | ({"drafts": further} if further else {})


def _run_facts(
    bench: Bench, notebook: str, key: str, here: records.Machine, facts: model.ModelFacts
) -> records.Run:
    build = bench.build
    return records.Run(
        run=bench.run,
        key=key,
        notebook=notebook,
        spec=bench.spec.to_json(),
        machine=here.to_json(),
        model=facts.to_json(),
        engine={
            "version": build.version,
            "build": build.build,
            "commit": build.commit,
            "fingerprint": build.fingerprint[:16],
            "settings": binary.settings(),
            "flags": sorted(build.flags),
        },
        packages=machine.packages(),
        prompt_facts={e.key: e.facts for e in bench.encoded},
        started=machine.utc_now(),
    )


def _run_plan(
    bench: Bench,
    writer: store.Writer,
    stored: store.Recorded,
    progress: Progress,
    steer: Steer | None,
) -> None:
    spec, done, launches = bench.spec, stored.done(), plan(bench.spec)
    earlier = len({s.launch for s in stored.samples} | {x.launch for x in stored.launches})
    prefixes: lossless.Prefixes = {}
    made = 0
    try:
        for number in range(spec.rounds):
            depths = steer(store.read(writer.path), number) if steer else spec.depths
            # Arms are compared with each other, prompt by prompt; given acceptance has no text.
            if number > 0 and not prefixes and spec.arms == ("natural",):
                prefixes = lossless.common_prefixes(store.read(writer.path), spec.temperature)
            ahead = [
                x
                for x in launches
                if x.round >= number and x.depth in depths and missing(bench, x, done, prefixes)
            ]
            total = made + len(ahead)
            for together in _together(spec, [x for x in ahead if x.round == number]):
                tell = functools.partial(_tell, progress, spec, made, total, together)
                tell(0.0)
                measure_launches(bench, together, writer, done, prefixes, earlier, tell)
                made += len(together)
            if not depths:
                break
        if made:
            progress.update(made, made, "done")
    finally:
        progress.close()


def _together(spec: SweepSpec, launches: list[PlannedLaunch]) -> list[list[PlannedLaunch]]:
    """Return the launches of a round by what runs side by side."""
    return [launches] if spec.takes_turns and launches else [[x] for x in launches]


def _tell(
    progress: Progress,
    spec: SweepSpec,
    made: int,
    total: int,
    now: list[PlannedLaunch],
    share: float,
) -> None:
    """Tell what is measured now, of which a share is done."""
    arm = "" if now[0].arm == spec.arm else f", {now[0].arm}"
    doing = f"depth {now[0].depth}{arm}"
    if len(now) > 1:
        doing = f"round {now[0].round + 1}, {len(now)} launches in turns, {share:.0%}"
    progress.update(made + int(share * len(now)), total, doing)


def _encode(bench: Bench, facts: model.ModelFacts) -> tuple[prompts.Encoded, ...]:
    """Encode all prompts by the model's own tokenizer, in a launch that decodes nothing."""
    spec = bench.spec
    chat = spec.prompt_format == "chat" or (
        spec.prompt_format == "auto" and facts.has_chat_template
    )
    texts = [p for w in spec.workloads for p in prompts.load(w, spec.prompt_count(w))]
    with bench.at(spec.arm).engine(0, "encode") as engine:
        return tuple(prompts.encode(engine, prompt, spec, chat=chat) for prompt in texts)


def _check_prompts(old: records.Run, new: records.Run) -> None:
    if old.prompt_facts != new.prompt_facts:
        changed = [k for k, v in new.prompt_facts.items() if old.prompt_facts.get(k) != v]
        raise StoreError(
            "the prompts have changed since these samples were measured",
            ", ".join(changed[:5]),
            "measure into another machine folder (parameter `machine`)",
        )


def _covering(samples: Path, notebook: str, spec: SweepSpec) -> list[store.Recorded]:
    """Return the stored runs of a notebook that hold all of a spec and more, the newest first."""
    if not notebook:
        return []
    found = [store.read(path) for path in store.files(samples, notebook)]
    fuller = [r for r in found if store.covers(r, spec)]
    return sorted(fuller, key=lambda r: r.run.started, reverse=True)


def find(samples: Path, notebook: str, spec: SweepSpec) -> store.Recorded:
    """Return the newest stored run of a spec; engine and model need not be there."""
    wanted: dict[str, Any] = spec.to_json()
    matching = [
        recorded
        for recorded in map(store.read, store.files(samples, notebook))
        if store.same_spec(recorded.run.spec, wanted)
    ]
    if not matching:
        raise StoreError(
            f"no stored samples of this {notebook} in {samples.parent.name}",
            f"{len(store.files(samples, notebook))} runs with other parameters",
            f"unset {REPLAY_VARIABLE} to measure",
        )
    return max(matching, key=lambda r: r.run.started)
