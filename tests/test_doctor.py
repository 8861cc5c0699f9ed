"""What `specdepth doctor` tells of a machine, with programs in the place of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from analysis import machine, model
from analysis.cli import app
from analysis.doctor import examine
from analysis.engines import binary

CARDS = {
    "name,memory.total,driver_version,power.limit,clocks.max.sm":
        "NVIDIA GeForce RTX 4090, 24564, 560.35.03, 450.00, 3105\n"
        "NVIDIA GeForce RTX 4090, 24564, 560.35.03, [N/A], 3105",
    "memory.free,clocks.sm,power.draw": "24000, 2520, 71.25\n1000, 210, [N/A]",
    "memory.used": "564\n23564",
    "clocks.sm": "2520\n210",
}  # fmt: skip


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two cards, as nvidia-smi tells of them."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    cases = "\n".join(f"--query-gpu={query}) echo '{told}';;" for query, told in CARDS.items())
    program.write_text(f"#!/bin/sh\ncase $1 in\n{cases}\n*) exit 6;;\nesac\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    machine._has_nvidia.cache_clear()
    monkeypatch.setattr("time.sleep", lambda _: None)
    return program


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    machine._has_nvidia.cache_clear()


def test_several_cards_make_a_name_and_are_told_one_by_one(cards: Path) -> None:
    del cards
    assert machine.facts().name == "2x-rtx-4090"
    assert [g["power_cap_w"] for g in machine.facts().gpus] == [450.0, None]
    assert machine.device_memory_mib() == 564 + 23564
    assert machine.clock_mhz() == 2520
    first, second = examine().facts["GPUs"].split("; ")
    assert first == (
        "NVIDIA GeForce RTX 4090, 24,564 MiB, 24,000 MiB free, driver 560.35.03, clock 2,520 MHz "
        "of at most 3,105 MHz, power 71 W of at most 450 W"
    )
    assert "1,000 MiB free" in second
    assert second.endswith("power unknown of at most unknown")


def test_a_model_that_is_larger_than_what_is_free_is_warned_of(
    cards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not [w for w in examine().warnings if "free" in w]
    cards.write_text(cards.read_text().replace("24000, ", "5, ").replace("1000, ", "3, "))
    (told,) = [w for w in examine().warnings if "free" in w]
    assert f"{model.facts(model.embedded_path()).size_mib:,.0f} MiB and 8 MiB are free" in told
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert not [w for w in examine().warnings if "free on the GPUs" in w]


@pytest.mark.parametrize("told", ["No devices were found", "", "a, b", "x" * 5000])
def test_an_nvidia_smi_without_cards_is_no_card(cards: Path, told: str) -> None:
    cards.write_text(f"#!/bin/sh\necho '{told}'\n")
    assert machine.nvidia_gpus() == []
    assert machine.nvidia_now() == []
    assert examine().facts["GPUs"] == "none that nvidia-smi names"


def test_everything_the_series_needs_is_named() -> None:
    found = examine()
    assert found.facts["processor clock"].endswith("MHz") or "unknown" in found.facts.values()
    assert found.facts["memory free"].endswith("GiB")
    assert f"commit {binary.PINNED_COMMIT}" in found.facts["llama-cpp-python"]
    assert found.facts["MTP layers"] == "1"
    assert found.fatal == []


def test_devices_are_those_that_the_server_lists(tmp_path: Path) -> None:
    server = tmp_path / "llama-server"
    server.write_text(
        "#!/bin/sh\ncase $1 in --version) echo 'version: 9849 (abc1234)';;\n"
        "--list-devices) printf 'Available devices:\\n  CUDA0: RTX 4090 (24564 MiB, 24000 MiB free)"
        "\\n  CUDA1: RTX 4090 (24564 MiB, 1000 MiB free)\\n';;\n"
        "*) echo '--port N --spec-type [draft-mtp] --metrics --list-devices';; esac\n"
    )
    server.chmod(0o755)
    told = examine(server=str(server)).facts["devices"]
    assert told == (
        "CUDA0: RTX 4090 (24564 MiB, 24000 MiB free); CUDA1: RTX 4090 (24564 MiB, 1000 MiB free)"
    )


def test_it_fails_where_the_series_can_not_run_and_names_the_next_command(tmp_path: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(model.embedded_path().read_bytes()[:5000])
    for words, told in (
        (["--server", "/bin/true"], "next: specdepth doctor --server PATH"),
        (["--model", str(tmp_path / "none.gguf")], "next: specdepth doctor --model PATH"),
        (["--model", str(tmp_path / "cut.gguf")], "cut.gguf can not be read as GGUF"),
    ):
        done = CliRunner().invoke(app, ["doctor", *words])
        assert done.exit_code == 1
        assert told in done.output
