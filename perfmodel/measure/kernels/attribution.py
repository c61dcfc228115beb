"""Whose measurements a bundle was fitted on: what their licences ask to be said."""

from __future__ import annotations

from typing import Final

ATTRIBUTION: Final[dict[str, dict[str, str]]] = {
    "neusight": {
        "repository": "https://github.com/sitar-lab/NeuSight",
        "commit": "6945927d",
        "licence": "MIT",
        "copyright": "Copyright (c) 2025 Georgia Institute of Technology and Microsoft",
    },
    "aiconfigurator": {
        "repository": "https://github.com/ai-dynamo/aiconfigurator",
        "commit": "095f58a5",
        "licence": "Apache-2.0",
        "copyright": "Copyright (c) NVIDIA CORPORATION & AFFILIATES",
    },
    "vidur": {
        "repository": "https://github.com/microsoft/vidur",
        "commit": "7d475133",
        "licence": "MIT",
        "copyright": "Copyright (c) Microsoft Corporation",
    },
    "torchrec-pr-2365": {
        "repository": "https://github.com/meta-pytorch/torchrec", "licence": "BSD-3-Clause",
    },
    "fbgemm-pr-1244": {
        "repository": "https://github.com/pytorch/FBGEMM", "licence": "BSD-3-Clause",
    },
    "torchrec-benchmarks-readme": {
        "repository": "https://github.com/meta-pytorch/torchrec", "licence": "BSD-3-Clause",
    },
}  # fmt: skip
