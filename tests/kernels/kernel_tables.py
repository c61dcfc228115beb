"""Small invented kernel tables: a law of our own with a little noise, on real GPU names."""

import numpy as np
import pandas as pd

PEAKS = {"A100-SXM4-80GB": 260e12, "H100-SXM5-80GB": 720e12, "V100-PCIE-32GB": 80e12}
BANDWIDTH = {"A100-SXM4-80GB": 1.6e12, "H100-SXM5-80GB": 2.7e12, "V100-PCIE-32GB": 0.75e12}


def gemm_table(rows=400, seed=0, gpus=tuple(PEAKS), dtype="fp16"):
    rng = np.random.default_rng(seed)
    sizes = [64, 128, 256, 512, 1024, 2048, 4096]
    frames = []
    shapes = {c: rng.choice(sizes, rows) for c in ("m", "n", "k")}
    for gpu in gpus:
        m, n, k = (shapes[c].astype(float) for c in ("m", "n", "k"))
        busy = np.maximum(2 * m * n * k / PEAKS[gpu], 2 * (m * k + k * n + m * n) / BANDWIDTH[gpu])
        noise = np.exp(rng.normal(0, 0.02, rows))
        frames.append(
            pd.DataFrame(
                {
                    "source": "own", "gpu": gpu, "op": "linear", "direction": "fwd",
                    "dtype": dtype, "framework": "own", "batch": 1, **shapes,
                    "latency_us": (busy + 3e-6) * 1e6 * noise,
                }
            )
        )  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def labelled_table(rows=150, seed=0):
    """GEMMs of two frameworks, one 1.6 times slower than the other on one GPU."""
    frames = []
    for framework, factor in (("zeta", 1.0), ("alpha", 1.6)):
        table = gemm_table(rows, seed, gpus=("A100-SXM4-80GB", "H100-SXM5-80GB"), dtype="bf16")
        hopper = table["gpu"] == "H100-SXM5-80GB"
        table.loc[hopper, "latency_us"] *= factor
        frames.append(table.assign(framework=framework, kernel=f"{framework}_gemm"))
    return pd.concat(frames, ignore_index=True)


def add_table(rows=200, seed=0, gpus=tuple(PEAKS)):
    rng = np.random.default_rng(seed)
    shape = {"rows": rng.integers(64, 20000, rows), "cols": rng.choice([512, 1024, 4096], rows)}
    frames = []
    for gpu in gpus:
        busy = 3 * 4 * shape["rows"] * shape["cols"] / BANDWIDTH[gpu]
        frames.append(
            pd.DataFrame(
                {
                    "source": "own", "gpu": gpu, "op": "add", "direction": "fwd", "dtype": "fp32",
                    "framework": "own", **shape,
                    "latency_us": (busy + 2e-6) * 1e6 * np.exp(rng.normal(0, 0.02, rows)),
                }
            )
        )  # fmt: skip
    return pd.concat(frames, ignore_index=True)
