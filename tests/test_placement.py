"""Placement from logs: recorded ones of the pinned build, and variants of the older formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from analysis import placement
from analysis.cli import app

RECORDED = Path(__file__).parent / "recorded"
CPU, RPC = (RECORDED / n for n in ("cpu_depth3.log", "rpc_one_layer_off.log"))

# Hand-made after LOGS.md's list of formats, newest last.
IK_2024 = """\
llm_load_tensors: offloaded 95/95 layers to GPU
llm_load_tensors:        CPU buffer size =   409.00 MiB
llm_load_tensors:      CUDA0 buffer size = 51234.50 MiB
llama_new_context_with_model: n_ctx      = 8192
llama_new_context_with_model: flash_attn = 1
llama_kv_cache_init:      CUDA0 KV buffer size =  1504.00 MiB
"""
B9010 = """\
load_tensors: offloading 32 repeating layers to GPU
load_tensors: offloaded 33/65 layers to GPU
load_tensors:   CPU_Mapped model buffer size =  8000.00 MiB
load_tensors:      Vulkan0 model buffer size =  8123.00 MiB
llama_context: constructing llama_context
llama_kv_cache:        CPU KV buffer size =   512.00 MiB
llama_kv_cache:    Vulkan0 KV buffer size =   512.00 MiB
llama_memory_recurrent:        CPU RS buffer size =    74.81 MiB
llama_memory_recurrent: size =  598.50 MiB (     4 cells,  64 layers,  4 seqs  2 rs_seq), R (f32): 1.00 MiB
sched_reserve: fused Gated Delta Net (autoregressive) enabled
sched_reserve: fused Gated Delta Net (chunked) not supported, set to disabled
llama_context: Flash Attention was auto, set to enabled
"""  # noqa: E501
TWO_GPUS = """\
[53409] 0.01.000.000 I common_params_fit_impl: projected to use 30000 MiB of device memory vs. 28000 MiB of free device memory
[53409] 0.01.000.001 I common_params_fit_impl: context size reduced from 262144 to 65536 -> need 4096 MiB less memory in total
[53409] 0.01.000.002 I common_params_fit_impl:   - CUDA0 (NVIDIA GeForce RTX 3090): 33 layers,  14000 MiB used,   1024 MiB free
[53409] 0.01.000.003 I common_params_fit_impl:   - CUDA1 (NVIDIA GeForce RTX 3090): 33 layers,  14000 MiB used,   1024 MiB free
[53409] 0.01.000.004 I common_fit_params: successfully fit params to free device memory
[53409] 0.02.000.000 I load_tensors: loading model tensors, this can take a while... (load_mode = mmap)
[53409] 0.02.000.001 I load_tensors: offloaded 66/66 layers to GPU
[53409] 0.02.000.002 I load_tensors:    CUDA_Host model buffer size =   682.03 MiB
[53409] 0.02.000.003 I load_tensors:        CUDA0 model buffer size =  8000.00 MiB
[53409] 0.02.000.004 I load_tensors:        CUDA1 model buffer size =  8100.00 MiB
[53409] 0.02.000.005 I llama_context: n_rs_seq              = 2
[53409] 0.02.000.006 I llama_context: flash_attn            = enabled
"""  # noqa: E501
OUT_OF_MEMORY = """\
load_tensors: loading model tensors, this can take a while... (mmap = true)
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 16384.00 MiB on device 0: cudaMalloc failed: out of memory
llama_model_load: error loading model: unable to allocate CUDA0 buffer
srv    load_model: failed to load model, '/m.gguf'
"""  # noqa: E501


def test_a_full_count_of_layers_without_a_device_is_not_believed() -> None:
    found = placement.read(CPU.read_text())
    assert "offloaded 10/10" in CPU.read_text()
    assert (found.verdict, found.layers_on_device, found.layers) == ("none", 0, None)
    assert found.model_buffers_mib == {"CPU_Mapped": 9.67}
    # Target and draft context: 2.00 + 1.00, and 8.04 + 5.02 with the second printed twice.
    assert found.kv_buffers_mib == {"CPU": 3.0}
    assert found.state_buffers_mib == {"CPU": 1.71}
    assert found.compute_buffers_mib == {"CPU": 13.06}
    assert (found.state_depth, found.flash_attention) == (3, True)
    assert found.fused_gdn_chunked is None  # no line is no fact
    assert found.requests[0]["predicted_n"] == 20


def test_one_layer_off_the_device() -> None:
    found = placement.read(RPC.read_text())
    assert (found.verdict, found.layers) == ("partial", "9/10")
    assert found.fit is not None
    assert found.fit["projected_mib"] == 25
    assert any("CPU RS buffer" in line for line in found.evidence)


def test_a_format_without_the_word_model() -> None:
    found = placement.read(IK_2024)
    assert (found.verdict, found.layers, found.flash_attention) == ("all", "95/95", True)
    assert found.model_buffers_mib == {"CPU": 409.0, "CUDA0": 51234.5}
    assert found.state_depth is None


def test_half_the_layers_and_fused_operations() -> None:
    found = placement.read(B9010)
    assert (found.verdict, found.layers, found.state_depth) == ("partial", "33/65", 2)
    assert (found.fused_gdn_autoregressive, found.fused_gdn_chunked) == (True, False)
    assert found.flash_attention is True


def test_two_devices_behind_a_router_after_fitting() -> None:
    found = placement.read(TWO_GPUS)
    assert (found.verdict, found.layers, found.state_depth) == ("all", "66/66", 2)
    assert found.fit == {
        "projected_mib": 30000, "free_mib": 28000, "context_from": 262144, "context_to": 65536,
        "layers": {"CUDA0": 33, "CUDA1": 33},
        "result": "successfully fit params to free device memory",
    }  # fmt: skip


def test_a_layer_moved_by_hand_is_seen_in_the_hosts_weights() -> None:
    """``-ot`` does not change the printed count: the host then holds more than the embeddings."""
    sizes = "print_info: n_vocab = 1000\nprint_info: n_embd = 1024\n"
    moved = TWO_GPUS.replace("CUDA_Host model buffer size =   682", "CPU model buffer size = 1682")
    assert placement.read(sizes + moved).verdict == "partial"


def test_a_failed_start_says_why() -> None:
    found = placement.read(OUT_OF_MEMORY)
    assert found.verdict == "failed"
    assert found.error == "cudaMalloc failed: out of memory"


def test_a_retry_that_worked_is_no_failure() -> None:
    text = TWO_GPUS + (
        "ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 9\n"
        "sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n"
    )
    assert placement.read(text).verdict == "all"


def test_dry_runs_of_fit_are_passed_over() -> None:
    dry = """\
load_tensors: loading model tensors, this can take a while...
load_tensors: offloaded 66/66 layers to GPU
load_tensors:        CUDA0 model buffer size =     0.00 MiB
llama_memory_recurrent:      CUDA0 RS buffer size =     0.00 MiB
"""
    assert placement.read(dry + TWO_GPUS) == placement.read(TWO_GPUS)
    assert placement.read(dry + TWO_GPUS).layers == "66/66"


@pytest.mark.parametrize("text", ["", "hello\nworld\n", "offloaded 5/65 layers to GPU\n"])
def test_what_is_not_stated_is_none(text: str) -> None:
    found = placement.read(text)
    assert (found.verdict, found.layers, found.error) == ("unknown", None, None)
    assert found.fit is None


@given(st.lists(st.sampled_from((TWO_GPUS + B9010 + OUT_OF_MEMORY).splitlines()), max_size=30))
def test_lines_in_any_order_raise_nothing(lines: list[str]) -> None:
    found = placement.read("\n".join(lines))
    assert found.verdict in ("all", "partial", "none", "failed", "unknown")


@given(st.binary(max_size=300))
def test_bytes_of_any_kind_raise_nothing(content: bytes) -> None:
    assert placement.read(content.decode(errors="replace")).to_json()


def test_stamps_and_colours_change_nothing() -> None:
    plain = placement.read(B9010)
    for before, after in (("2026-07-01T10:00:00Z server-1  | ", ""), ("\x1b[32m", "\x1b[0m")):
        text = "\n".join(f"{before}{line}{after}" for line in B9010.splitlines())
        found = placement.read(text).to_json() | {"evidence": []}
        assert found == plain.to_json() | {"evidence": []}
    as_json = "\n".join(
        json.dumps({"type": "log", "time": 1, "level": "info", "msg": line + "\n"})
        for line in B9010.splitlines()
    )
    assert placement.read(as_json).verdict == "partial"


def test_the_command_reads_a_file_or_its_input() -> None:
    shown = CliRunner().invoke(app, ["placement", "--json", str(RPC)])
    assert json.loads(shown.stdout)["verdict"] == "partial"
    piped = CliRunner().invoke(app, ["placement", "--json", "-"], input=RPC.read_bytes())
    assert json.loads(piped.stdout) == json.loads(shown.stdout)
    assert "not stated" in CliRunner().invoke(app, ["placement", str(CPU)]).stdout
    other = CliRunner().invoke(app, ["placement", str(Path(__file__).with_name("__init__.py"))])
    assert (other.exit_code, "no placement in this log" in other.output) == (1, True)
    missing = CliRunner().invoke(app, ["placement", "/nowhere.log"])
    assert missing.exit_code == 1
    assert "the log is not there" in missing.stderr


def test_the_last_of_two_servers_counts_alone() -> None:
    both = RPC.read_text() + CPU.read_text()
    assert placement.read(both) == placement.read(CPU.read_text())
    assert placement.read(CPU.read_text() + RPC.read_text()) == placement.read(RPC.read_text())
