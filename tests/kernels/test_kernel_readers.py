import pandas as pd
import pytest

from perfmodel.errors import InputError
from perfmodel.measure.kernels.readers import (
    read_aiconfigurator,
    read_neusight,
    read_steps,
    read_vidur,
)
from perfmodel.measure.kernels.tables import check, read_tables


def test_neusight_folder(tmp_path):
    (tmp_path / "bmm").mkdir()
    (tmp_path / "bmm" / "Tesla T4.csv").write_text(
        "OPName,Latency,Device,Kernel Name,B,M,N,K\n"
        "bmm,0.5,Tesla T4,sgemm,4,128,64,256\nbmm,0.7,Tesla T4,sgemm,4,128,64,256\n"
    )
    (tmp_path / "conv.csv").write_text(
        "OPName,Latency,Device,B,Input_Channel,Output_Channel,Kernel_Szie,Input_Size,Stride,Padding\n"
        "conv,2.0,Tesla T4,8,64,128,3,56,1,1\nfft,2.0,Tesla T4,8,64,128,3,56,1,1\n"
    )
    (tmp_path / "ln.csv").write_text("OPName,Latency,Device,B,H\nln,0.1,Tesla T4,512,1024\n")
    (tmp_path / "readme.csv").write_text("a,b\n1,2\n")
    got = read_neusight(tmp_path)
    frame = got.frame.set_index("op")
    assert frame.loc["bmm", ["batch", "m", "n", "k"]].tolist() == [4, 128, 256, 64]
    assert frame.loc["bmm", "latency_us"] == pytest.approx(600.0)
    assert frame.loc["conv2d", "kernel_size"] == 3
    assert frame.loc["layernorm", ["rows", "cols"]].tolist() == [512, 1024]
    assert got.skipped == {
        "operator fft": 1, "readme.csv: no OPName, Device, Latency": 1,
    }  # fmt: skip
    _, refusals = check(read_tables([got.frame]))
    assert not any(refusals)


def test_vidur_folder(tmp_path):
    folder = tmp_path / "a100" / "org" / "model"
    folder.mkdir(parents=True)
    columns = {
        "time_stats.attn_pre_proj.median": 0.2, "time_stats.mlp_up_proj.median": 0.4,
        "time_stats.mlp_act.median": 0.01, "time_stats.input_layernorm.median": 0.005,
        "time_stats.emb.median": 0.02, "n_head": 32, "n_kv_head": 8, "n_embd": 4096,
        "n_expanded_embd": 14336, "vocab_size": 32000, "use_gated_mlp": True, "num_tokens": 512,
        "num_tensor_parallel_workers": 2,
    }  # fmt: skip
    pd.DataFrame([columns]).to_csv(folder / "mlp.csv", index=False)
    got = read_vidur(tmp_path).frame
    assert set(got.gpu) == {"a100"}
    gemms = got[got.op == "linear"][["m", "n", "k"]].to_numpy().tolist()
    assert [512, (32 + 16) * 128 / 2, 4096] in gemms
    assert [512, 14336, 4096] in gemms
    assert got[got.op == "silu_mul"].cols.item() == 7168
    assert got[got.op == "rmsnorm"].latency_us.item() == pytest.approx(5.0)
    assert got[got.op == "embedding"].rows_per_table.item() == 16000


def test_aiconfigurator_folder(tmp_path):
    folder = tmp_path / "h100_sxm" / "vllm" / "0.1"
    folder.mkdir(parents=True)
    gemm = pd.DataFrame(
        {
            "framework": "VLLM", "version": "0.1", "device": "NVIDIA H100 80GB HBM3",
            "op_name": "gemm", "kernel_source": "torch",
            "gemm_dtype": ["bfloat16", "fp8", "fp8_block"], "m": 16, "n": 4096, "k": 4096,
            "latency": 0.02,
        }
    )  # fmt: skip
    gemm.to_parquet(folder / "gemm_perf.parquet")
    (folder / "context_attention_perf.txt").write_text(
        "batch_size,isl,num_heads,num_key_value_heads,head_dim,attn_dtype,latency\n"
        "2,1024,32,8,128,bfloat16,0.3\n2,1024,32,8,128,bfloat16,0\n"
    )
    (folder / "nccl_perf.txt").write_text("x\n1\n")
    got = read_aiconfigurator(tmp_path)
    assert got.skipped == {
        "format fp8_block": 1, "tables of other operators": 1, "no positive latency": 1,
    }  # fmt: skip
    frame = got.frame
    assert frame[frame.op == "linear"].dtype.tolist() == ["bf16", "fp8"]
    attention = frame[frame.op == "attention"].iloc[0]
    assert attention["gpu"] == "h100_sxm"
    assert attention["framework"] == "vllm"
    assert attention["causal"]
    assert attention["latency_us"] == pytest.approx(300.0)


def test_readers_name_a_folder_that_is_not_there(tmp_path):
    for reader in (read_neusight, read_vidur, read_aiconfigurator):
        with pytest.raises(InputError, match="nowhere is not a folder"):
            reader(tmp_path / "nowhere")


def test_operators_of_steps_become_kernels():
    rows = [
        ("linear", "bwd", "[[8, 512, 1024]]", "(8, 512, 4096)"),
        ("addmm", "fwd", "[[3840], [1024, 1280], [1280, 3840]]", "(1024, 3840)"),
        ("matmul", "fwd", "[[8, 16, 512, 64], [8, 16, 64, 512]]", "(8, 16, 512, 512)"),
        ("add", "fwd", "[[8, 512], [8, 512]]", "(8, 512)"),
        ("add", "fwd", "[[8, 512], [1, 512]]", "(8, 512)"),
        ("softmax", "bwd", "[[8, 16, 512]]", "(8, 16, 512)"),
        ("getitem", "fwd", "[[1]]", "(1,)"),
    ]
    names = ["op", "direction", "input_shapes", "output_shape"]
    frame = pd.DataFrame(rows, columns=names).assign(gpu="T4", dtype="fp32", latency_us=100.0)
    got = read_steps(frame)
    assert got.skipped == {"operator getitem": 1}
    table = got.frame
    assert table.op.tolist() == ["linear", "linear", "bmm", "add", "addu", "softmax"]
    assert table[["m", "n", "k"]].iloc[0].tolist() == [4096, 4096, 1024]
    assert table[["batch", "m", "n", "k"]].iloc[2].tolist() == [128, 512, 512, 64]
    assert table[["rows", "cols"]].iloc[5].tolist() == [128, 512]
    _, refusals = check(read_tables([table]))
    assert not any(refusals)
