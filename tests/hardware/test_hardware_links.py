"""Free text about links, read by rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.hardware.link_text import is_unstated, read_inter_node, read_intra_node

GBIT = 1e9 / 8


@pytest.mark.parametrize(
    ("text", "kind", "count", "port", "node", "per_gpu"),
    [
        ("800 Gbps per node (4x HDR)", "infiniband", 4, 200, 800, None),
        ("4x Omni-Path 100 Gbps per node (Jean Zay)", "omni_path", 4, 100, None, None),
        ("1x100 Gbps EDR IB per node", "infiniband", 1, 100, None, None),
        ("400 Gbps per GPU", None, None, None, None, 400),
        ("RoCE 1600 Gbps per node", "roce", None, None, 1600, None),
        ("8x200 Gbps HDR IB per node (Selene)", "infiniband", 8, 200, None, None),
        ("4x100 Gbps RoCE per node", "roce", 4, 100, None, None),
        ("IB HDR, rate not in data file", "infiniband", None, 200, None, None),
        ("not stated (multi-rail RDMA)", None, None, None, None, None),
        ("InfiniBand", "infiniband", None, None, None, None),
        ("4x100 Gbps EFA", "efa", 4, 100, None, None),
        ("3.2 Tbps EFA", "efa", None, None, 3200, None),
        ("25 GB/s per GPU", None, None, None, None, 200),
        ("2x HDR100", "infiniband", 2, 100, None, None),
        ("dual-rail EDR", "infiniband", 2, 100, None, None),
        ("16x 100G RoCE", "roce", 16, 100, None, None),
        ("10 GbE", "tcp", None, 10, None, None),
        ("8x ConnectX-7 400 GbE RoCEv2", "roce", 8, 400, None, None),
        ("Slingshot-11, 4x 200 Gb/s", "slingshot", 4, 200, None, None),
        ("200Gb/s per node", None, None, None, 200, None),
        ("8 NICs of 400 Gb/s", None, 8, 400, None, None),
    ],
)
def test_inter_node_texts(text, kind, count, port, node, per_gpu):
    said = read_inter_node(text)
    assert said.kind == kind
    assert said.count == count
    for got, want in (
        (said.port_bytes_per_s, port),
        (said.node_bytes_per_s, node),
        (said.per_gpu_bytes_per_s, per_gpu),
    ):
        assert got == (None if want is None else pytest.approx(want * GBIT))


def test_only_the_compute_clause_counts():
    said = read_inter_node(
        "Storage: 2x ConnectX-6 IB HDR 200Gb/sec, Management: 1x ConnectX-6 Ethernet 100Gb/Sec, "
        "Compute: 4x ConnectX-6 IB HDR 200Gb/Sec"
    )
    assert (said.kind, said.count, said.port_bytes_per_s) == ("infiniband", 4, 200 * GBIT)


def test_bits_and_bytes_are_told_apart():
    assert read_inter_node("100 Gb/s").port_bytes_per_s == 100 * GBIT
    assert read_inter_node("50 GB/s").port_bytes_per_s == 50e9


@pytest.mark.parametrize("text", [None, "", "N/A", "none", "not stated", "unknown", "-", " n/a "])
def test_unstated(text):
    assert is_unstated(text)
    assert read_intra_node(text) == read_intra_node(None)


@pytest.mark.parametrize(
    ("text", "true_fields"),
    [
        ("NVLink2 hybrid cube mesh (DGX-1)", {"has_nvlink", "is_cube_mesh"}),
        ("NVLink3/NVSwitch", {"has_nvlink", "has_nvswitch"}),
        ("PCIe", {"has_pcie"}),
        ("PCIe 4.0 x16, no P2P", {"has_pcie", "blocks_peer_access"}),
        ("PCIe, P2P disabled", {"has_pcie", "blocks_peer_access"}),
        ("PCIe4 with patched P2P", {"has_pcie", "states_peer_access"}),
        ("NVLink bridge pairs", {"has_nvlink", "is_pairwise"}),
        ("Infinity Fabric", {"has_infinity_fabric"}),
        ("xGMI", {"has_infinity_fabric"}),
    ],
)
def test_intra_node_words(text, true_fields):
    said = read_intra_node(text)
    flags = (
        "has_nvlink", "has_nvswitch", "has_pcie", "has_infinity_fabric", "is_cube_mesh",
        "is_pairwise", "blocks_peer_access", "states_peer_access",
    )  # fmt: skip
    assert {f for f in flags if getattr(said, f)} == true_fields


def test_intra_node_numbers():
    assert read_intra_node("NVLink3 (4 links between GPUs)").links_per_pair == 4
    assert read_intra_node("NV18").links_per_pair == 18
    assert read_intra_node("NVLink5 NVL72 domain").domain_gpus == 72
    assert read_intra_node("NVLink 600 GB/s").rate_bytes_per_s == 600e9
    assert read_intra_node("300 GB/s per dir").rate_is_one_direction
    assert not read_intra_node("NVLink 600 GB/s").rate_is_one_direction


def test_effective_rates_are_not_signalled_ones():
    assert read_intra_node("NVSwitch 150 GB/s eff. in authors config").rate_bytes_per_s is None


@given(st.text(max_size=60))
def test_reading_never_fails(text):
    read_inter_node(text)
    read_intra_node(text)


@given(st.integers(1, 32), st.sampled_from([10, 25, 100, 200, 400, 800]))
def test_count_times_rate_is_read_back(count, rate):
    said = read_inter_node(f"{count}x{rate} Gbps per node")
    assert said.count == count
    assert said.port_bytes_per_s == pytest.approx(rate * GBIT)
