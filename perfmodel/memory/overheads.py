"""Memory outside tensors: context and libraries, communicators, allocator.

Sources: notes on stacks, sections 9 and 12 (ml-engineering's table for A100, NCCL sources and
issues 964, 986, 1685, the caching allocator's constants).
"""

from __future__ import annotations

from perfmodel.hardware.records import Cluster, FabricKind
from perfmodel.plan.records import Plan
from perfmodel.plan.stack import Stack
from perfmodel.units import GIB, MIB

# CUDA context with the kernels torch loads, by year of the stack: eager loading up to CUDA 11.6,
# then lazily (A100: 1.78, 0.90, 0.47 GiB; H100 0.5-0.6).
_CONTEXT_BY_YEAR = ((2022, 1.78 * GIB), (2023, 0.90 * GIB), (9999, 0.55 * GIB))
# Kernel images are smaller where a GPU is older than most of them: V100 0.3-0.45 GiB bare.
_CONTEXT_SHARE = {"pascal": 0.5, "volta": 0.6, "turing": 0.6}
_WORKSPACES = 0.25 * GIB  # cuBLAS and cuDNN: 0.1-0.5
# A communicator with NVLink peers: 544 MB with 2 ranks, 688 MB with 3 or more (A100, 2023);
# connections are made lazily since NCCL 2.22 (2024), which halves what is touched.
_COMMUNICATOR_PAIR = 544e6
_COMMUNICATOR = 688e6
_LAZY_YEAR = 2024
_LAZY_SHARE = 0.5
# NVLS buffers of a communicator inside an NVSwitch node, Hopper and later, by year.
_NVLS_BY_YEAR = ((2022, 0.0), (2023, 1536 * MIB), (2024, 768 * MIB), (9999, 256 * MIB))
_NVLS_ARCHITECTURES = {"hopper", "blackwell"}

ALLOCATOR_SHARE = 0.06
"""Share of tensors lost to rounding and fragmentation: blocks over 10 MiB round to 2 MiB, smaller
ones share 20 MiB segments; freed blocks of one size seldom serve another. Reserved memory, which
is what a device shows, is usually 2-10 % above what tensors take."""


def _by_year(table: tuple[tuple[int, float], ...], year: int) -> float:
    return next(value for last, value in table if year <= last)


def framework_bytes(cluster: Cluster, stack: Stack) -> float:
    """CUDA context, loaded kernels and library workspaces."""
    share = _CONTEXT_SHARE.get(cluster.gpu.architecture, 1.0)
    return _by_year(_CONTEXT_BY_YEAR, stack.year) * share + _WORKSPACES


def communicator_bytes(plan: Plan, cluster: Cluster, stack: Stack) -> float:
    """Buffers of the communicators a plan opens: one for all ranks and one for every axis."""
    sizes = [n for n in (plan.tp, plan.pp, plan.cp, plan.ep) if n > 1]
    if plan.dp > 1:
        sizes.append(plan.dp)
    if len(sizes) > 1:
        sizes.append(plan.num_gpus)
    share = _LAZY_SHARE if stack.year >= _LAZY_YEAR else 1.0
    plain = sum((_COMMUNICATOR_PAIR if n == 2 else _COMMUNICATOR) * share for n in sizes)
    has_nvls = (
        cluster.gpu.architecture in _NVLS_ARCHITECTURES
        and cluster.node.fabric is FabricKind.NVSWITCH
    )
    wide = [n for n in sizes if 2 < n <= cluster.gpus_per_node]
    return plain + (len(wide) * _by_year(_NVLS_BY_YEAR, stack.year) if has_nvls else 0.0)
