"""The command line of a launch; binaries of other versions are programs that print their help."""

import stat
from pathlib import Path

import pytest

from analysis.engines import binary, flags
from analysis.errors import EngineError
from analysis.launch import without_paths
from analysis.spec import SweepSpec

OLD_HELP = """usage: llama-server [options]
-m,    --model FNAME      model path
-c,    --ctx-size N       context
-np,   --parallel N       slots
-t,    --threads N        threads
--host HOST
--port PORT
-md,   --model-draft FNAME
--spec-type none|mtp|ngram-simple
--draft-max, --draft, --draft-n N
--draft-p-min P
--spec-ngram-size-m N
"""


def program(folder: Path, help_text: str, version: str = "version: 9200 (abc1234)") -> str:
    """Write a program that answers --help and --version as an older llama-server does."""
    path = folder / "llama-server"
    path.write_text(
        f"#!/bin/sh\ncase $1 in --version) echo '{version}' >&2;;\n"
        f"*) cat <<'H'\n{help_text}H\n;; esac\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return str(path)


def words(probed: binary.ServerBinary, spec: SweepSpec, depth: int) -> str:
    return " ".join(flags.arguments(probed, spec, depth, Path("m.gguf"), 1234))


def test_the_built_server_gets_todays_names(server_binary: binary.ServerBinary) -> None:
    line = words(server_binary, SweepSpec(threads=2), 3)
    assert "--spec-type draft-mtp --parallel 1 --ctx-size 20480 --threads 2" in line
    assert "--spec-draft-n-max 3 --spec-draft-p-min 0.0" in line
    assert "--host 127.0.0.1 --port 1234" in line
    assert "--metrics --log-verbosity 4 --cache-ram 0" in line


def test_depth_zero_drafts_nothing(server_binary: binary.ServerBinary) -> None:
    assert "--spec" not in words(server_binary, SweepSpec(), 0)


def test_an_older_server_gets_its_own_names(tmp_path: Path) -> None:
    probed = binary.probe(program(tmp_path, OLD_HELP))
    assert (probed.build, probed.commit) == (9200, "abc1234")
    line = words(probed, SweepSpec(), 3)
    assert "--spec-type mtp" in line
    assert "--draft-max 3 --draft-p-min 0.0" in line
    assert "--metrics" not in line  # it has none, and can do without
    assert "--spec-ngram-size-m 3" in words(probed, SweepSpec(drafter="ngram-simple"), 3)


def test_a_server_that_lacks_what_is_asked_for_is_named(tmp_path: Path) -> None:
    probed = binary.probe(program(tmp_path, OLD_HELP))
    with pytest.raises(EngineError, match=r"no --kv-unified.*Found: version: 9200"):
        words(probed, SweepSpec(kv_unified=True), 3)
    with pytest.raises(EngineError, match="can not draft with ngram-mod"):
        words(probed, SweepSpec(drafter="ngram-mod"), 3)


def test_broken_and_too_old_builds_are_known(tmp_path: Path) -> None:
    broken = binary.probe(program(tmp_path, OLD_HELP, "version: 10742 (abc1234)"))
    assert "can not start draft-mtp" in broken.warnings()[0]
    (tmp_path / "old").mkdir()
    old = binary.probe(program(tmp_path / "old", OLD_HELP, "version: 5000 (abc1234)"))
    assert "older than what is supported" in old.warnings()[0]


def test_own_flags_pass_through_last(server_binary: binary.ServerBinary) -> None:
    line = words(server_binary, SweepSpec(server_args=("-ngl", "99")), 1)
    assert line.endswith("-ngl 99")


def test_synthetic_acceptance_gets_one_value_a_position(server_binary: binary.ServerBinary) -> None:
    spec = SweepSpec(arm="synthetic", synthetic_rates=(0.8, 0.6, 0.5, 0.4, 0.3))
    assert "--spec-synth-rates 0.8,0.6" in words(server_binary, spec, 2)


def test_wrong_binaries_are_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="can not be run"):
        binary.probe(str(tmp_path / "nothing"))
    with pytest.raises(EngineError, match="not a llama-server"):
        binary.probe("/bin/ls")
    with pytest.raises(EngineError, match="ended with code 1"):
        binary.probe("/bin/false")


def test_the_built_server_is_the_pinned_commit(server_binary: binary.ServerBinary) -> None:
    assert server_binary.commit is not None
    assert server_binary.commit.startswith(binary.PINNED_COMMIT)
    assert server_binary.warnings() == []


def test_commands_are_recorded_without_paths() -> None:
    line = without_paths(("/opt/x/llama-server", "--model", "/home/me/m.gguf", "--port", "4242"))
    assert line == "llama-server --model m.gguf --port PORT"


def test_builds_of_one_commit_have_their_own_fingerprints(tmp_path: Path) -> None:
    prints = set()
    for name, content in (("cpu", b"a"), ("cuda", b"b")):
        folder = tmp_path / name / "bin"
        folder.mkdir(parents=True)
        (folder.parent / "lib").mkdir()
        (folder.parent / "lib" / "libggml.so").write_bytes(content)
        prints.add(binary.probe(program(folder, OLD_HELP)).fingerprint)
    assert len(prints) == 2


def test_flags_in_the_environment_do_not_reach_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_N_PARALLEL", "7")
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "1")
    assert "LLAMA_ARG_N_PARALLEL" not in binary.environment()
    assert binary.settings()["GGML_VK_VISIBLE_DEVICES"] == "1"  # this one passes, and is recorded


@pytest.mark.parametrize("own", ["--spec-draft-n-max 3", "--port=1", "-c 99", "--api-key x"])
def test_flags_that_the_sweep_sets_are_refused(
    server_binary: binary.ServerBinary, own: str
) -> None:
    with pytest.raises(EngineError, match="may not hold"):
        words(server_binary, SweepSpec(server_args=tuple(own.split())), 1)


def test_layers_off_the_device_take_the_place_of_a_users_own_flag(
    server_binary: binary.ServerBinary,
) -> None:
    own = ("-ngl", "99", "--no-mmap", "--n-gpu-layers=98")
    spec = SweepSpec(server_args=own, more_arms=("evicted",), gpu_layers=9, workloads=("short",))
    assert words(server_binary, spec.at("natural"), 2).endswith(" ".join(own))
    line = words(server_binary, spec.at("evicted"), 2)
    assert line.endswith(" --no-mmap")
    assert "--gpu-layers 9 " in line
    assert "99" not in line
    assert "98" not in line
