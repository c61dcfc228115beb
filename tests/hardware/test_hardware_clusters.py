"""Clusters from names and from the hardware of published runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import InputError, UnknownNameError
from perfmodel.hardware.clusters import cluster_from_names, cluster_from_run, resolve_cluster
from perfmodel.hardware.records import FabricKind, NetworkKind

GBIT = 1e9 / 8


def run(gpu, num_gpus, nodes=1, intra=None, inter=None, **more):
    hardware = {
        "gpu": gpu, "num_gpus": num_gpus, "gpus_per_node": num_gpus // nodes, "nodes": nodes,
        "intra_node": intra, "inter_node": inter, **more,
    }  # fmt: skip
    return cluster_from_run(hardware)


def test_node_name_and_count():
    cluster = cluster_from_names("dgx_a100_80", 4)
    assert cluster.num_gpus == 32
    assert cluster.network.name == "ib_hdr"
    assert cluster.node_bytes_per_s == 8 * 200 * GBIT
    assert cluster.notes == ()


def test_gpu_name_takes_its_usual_node_and_says_so():
    cluster = resolve_cluster("H100-SXM-80GB", 2)
    assert cluster.node.name == "dgx_h100"
    assert any("DGX H100" in note for note in cluster.notes)


def test_card_without_a_node_gets_a_pcie_server():
    cluster = resolve_cluster("t4")
    assert cluster.node.fabric is FabricKind.PCIE
    assert cluster.node.fabric_bytes_per_s == pytest.approx(15.75e9)


def test_consumer_card_stages_in_the_host():
    assert resolve_cluster("rtx_5090").node.fabric is FabricKind.PCIE_HOST


def test_other_network_replaces_the_ports():
    cluster = cluster_from_names("dgx_a100_80", 2, network="EDR")
    assert cluster.network.name == "ib_edr"
    assert cluster.node_bytes_per_s == 8 * 100 * GBIT


def test_part_of_a_node_uses_its_share_of_nics():
    assert cluster_from_names("dgx_a100_80", 2, gpus_per_node=4).node_bytes_per_s == 800 * GBIT
    assert cluster_from_names("dgx_a100_80", 2, gpus_per_node=1).node_bytes_per_s == 200 * GBIT
    assert cluster_from_names("dgx1_v100", 2, gpus_per_node=1).node_bytes_per_s == 100 * GBIT


def test_mapping_of_names():
    cluster = resolve_cluster({"node": "DGX A100", "num_nodes": 2, "gpus_per_node": 4})
    assert (cluster.num_nodes, cluster.gpus_per_node) == (2, 4)


@pytest.mark.parametrize("bad", [0, -1, 1.5, float("nan"), float("inf"), True, "2", 1e9])
def test_bad_counts(bad):
    with pytest.raises(InputError, match="num_nodes"):
        cluster_from_names("dgx_a100_80", bad)
    with pytest.raises(InputError, match="nodes"):
        cluster_from_run({"gpu": "T4", "num_gpus": 1, "nodes": bad})


def test_more_gpus_than_a_node_has():
    with pytest.raises(InputError, match="1 to 8"):
        cluster_from_names("dgx_a100_80", gpus_per_node=9)


def test_counts_that_disagree():
    with pytest.raises(InputError, match="num_gpus 16"):
        cluster_from_run({"gpu": "T4", "num_gpus": 16, "gpus_per_node": 4, "nodes": 2})


@pytest.mark.parametrize(
    ("given_counts", "want"),
    [
        ({"num_gpus": 16}, (8, 2)),
        ({"num_gpus": 4}, (4, 1)),
        ({"num_gpus": 16, "nodes": 4}, (4, 4)),
        ({"nodes": 3}, (8, 3)),
        ({"gpus_per_node": 4, "nodes": 3}, (4, 3)),
        ({"num_gpus": 16, "gpus_per_node": 4, "nodes": None}, (4, 4)),
        ({}, (1, 1)),
    ],
)
def test_missing_counts_follow_from_the_others(given_counts, want):
    cluster = cluster_from_run({"gpu": "H100-SXM-80GB", **given_counts})
    assert (cluster.gpus_per_node, cluster.num_nodes) == want


def test_unknown_gpu_and_node():
    with pytest.raises(UnknownNameError):
        run("TPU v4", 8)
    with pytest.raises(UnknownNameError, match="node"):
        cluster_from_names("dgx_z100")


def test_dgx1_mesh_and_stated_network():
    cluster = run("V100-SXM2-16GB", 32, 4, "NVLink2 hybrid cube mesh (DGX-1)", "1x100 Gbps EDR IB")
    assert cluster.node.fabric is FabricKind.NVLINK_MESH
    assert sum(cluster.node.mesh_links[0]) == 6
    assert cluster.node_bytes_per_s == 100 * GBIT
    assert cluster.network.name == "ib_edr"


def test_rate_per_node_is_split_over_the_ports_of_the_platform():
    cluster = run("A100-SXM-40GB", 16, 2, "NVLink/NVSwitch", "RoCE 1600 Gbps per node")
    assert cluster.network.kind is NetworkKind.ROCE
    assert cluster.node_bytes_per_s == 1600 * GBIT
    assert cluster.node.num_nics * cluster.node.nic_bytes_per_s == 1600 * GBIT


def test_rate_per_gpu():
    cluster = run("B200-SXM-180GB", 64, 8, "NVLink5/NVSwitch", "400 Gbps per GPU")
    assert cluster.node_bytes_per_s == 8 * 400 * GBIT
    assert cluster.network.name == "ib_ndr"


def test_nvlink_domain_wider_than_a_node():
    cluster = run("GB200", 64, 16, "NVLink5 NVL72 domain", "400 Gbps per GPU")
    assert cluster.node.num_gpus == 4
    assert cluster.node.nvlink_domain_gpus == 72
    assert cluster.node_bytes_per_s == 4 * 400 * GBIT


def test_stated_links_between_gpus_give_boards():
    cluster = run("A100-SXM-80GB", 16, 2, "NVLink3 (4 links between GPUs)", "4x100 Gbps Omni-Path")
    assert cluster.node.fabric is FabricKind.NVLINK_MESH
    assert cluster.node.nvlink_domain_gpus == 4
    assert cluster.node.mesh_links[0] == (0, 4, 4, 4, 0, 0, 0, 0)
    assert any("boards of 4" in note for note in cluster.notes)
    assert cluster.network.kind is NetworkKind.OMNI_PATH


def test_all_links_to_every_peer_is_a_switch():
    cluster = run("H100-SXM-80GB", 8, 1, "NV18")
    assert cluster.node.fabric is FabricKind.NVSWITCH


def test_totals_of_both_directions_are_halved():
    sold = run("A100-SXM-80GB", 8, 1, "NVLink3/NVSwitch 600 GB/s")
    one_way = run("A100-SXM-80GB", 8, 1, "NVLink3/NVSwitch 300 GB/s per dir")
    cut = run("A100-SXM-80GB", 8, 1, "NVSwitch 400 GB/s")
    assert sold.node.fabric_bytes_per_s == one_way.node.fabric_bytes_per_s == 300e9
    assert cut.node.fabric_bytes_per_s == 200e9
    assert any("200 GB/s" in note for note in cut.notes)


def test_sum_over_several_gpus_changes_nothing():
    cluster = run("B200-SXM-180GB", 8, 1, "18x 5th Gen NVLink, 14.4 TB/s aggregated bandwidth")
    assert cluster.node.fabric_bytes_per_s == 900e9


def test_fast_ethernet_is_roce_and_slow_is_tcp():
    assert run("MI300X", 16, 2, "XGMI", "8x 400GbE").network.kind is NetworkKind.ROCE
    assert run("A100-PCIe-40GB", 16, 2, None, "25 GbE").network.kind is NetworkKind.TCP


def test_effective_rate_changes_nothing():
    cluster = run("A100-SXM-80GB", 8, 1, "NVLink3/NVSwitch 150 GB/s eff. in authors config")
    assert cluster.node.fabric_bytes_per_s == 300e9


@pytest.mark.parametrize("text", [None, "N/A", "not stated"])
def test_card_without_statement_is_pcie_with_a_note(text):
    cluster = run("A100-PCIe-40GB", 8, 1, text)
    assert cluster.node.fabric is FabricKind.PCIE
    assert any("peer-to-peer assumed" in note for note in cluster.notes)


def test_blocked_peer_access():
    assert run("A100-PCIe-40GB", 8, 1, "PCIe, no P2P").node.fabric is FabricKind.PCIE_HOST
    assert run("RTX 4090", 8, 1, "PCIe4 with patched P2P").node.fabric is FabricKind.PCIE
    assert run("RTX 4090", 8, 1, "PCIe4").node.fabric is FabricKind.PCIE_HOST


def test_bridged_cards():
    cluster = run("H100 PCIe", 4, 1, "NVLink bridge")
    assert cluster.node.fabric is FabricKind.NVLINK_MESH
    assert cluster.node.nvlink_domain_gpus == 2


def test_module_described_with_pcie_and_nvlink_keeps_nvlink():
    cluster = run("A100-SXM-40GB", 4, 1, "NVLink3/NVSwitch (inferred; source prints PCIe or N/A)")
    assert cluster.node.fabric is FabricKind.NVSWITCH


def test_named_machine_gives_what_is_not_stated():
    cluster = run("A100-SXM-80GB", 16, 2, "NVLink3/NVSwitch", "Jean Zay")
    assert cluster.node.name == "jean_zay_a100"
    assert cluster.node_bytes_per_s == 400 * GBIT


def test_named_machine_of_other_silicon_is_ignored():
    assert run("H100-SXM-80GB", 16, 2, "NVLink", "as on Jean Zay").node.name == "dgx_h100"


def test_unstated_network_is_noted():
    cluster = run("H100-SXM-80GB", 16, 2, "NVLink/NVSwitch", "not stated (multi-rail RDMA)")
    assert cluster.network.name == "ib_ndr"
    assert any("between nodes not stated" in note for note in cluster.notes)


def test_cloud_network_fits_the_generation():
    assert run("A100-SXM-40GB", 16, 2, None, "4x100 Gbps EFA").network.name == "efa_v1"
    assert run("H100-SXM-80GB", 16, 2, None, "EFA 3200 Gbps").node_bytes_per_s == 3200 * GBIT


def test_technology_alone_takes_a_machine_sold_with_it():
    efa = run("H100-SXM-80GB", 16, 2, None, "EFA")
    assert (efa.network.name, efa.node_bytes_per_s) == ("efa_v2", 3200 * GBIT)
    assert any("p5" in note for note in efa.notes)
    roce = run("H200-SXM-141GB", 16, 2, None, "RoCE")
    assert roce.node_bytes_per_s == 3200 * GBIT
    assert run("T4", 2, 2, None, "InfiniBand").network.kind is NetworkKind.INFINIBAND


def test_nodes_of_another_size_than_the_platform():
    cluster = run("A100-SXM-40GB", 8, 2, "NVLink", "2x200 Gbps HDR IB per node")
    assert cluster.node.num_gpus == 4
    assert cluster.node_bytes_per_s == 400 * GBIT
    assert any("4 GPUs a node" in note for note in cluster.notes)


def test_mi300x():
    cluster = run("MI300X", 8, 1, "Infinity Fabric")
    assert cluster.node.fabric is FabricKind.INFINITY_FABRIC
    assert cluster.notes == ()


@given(st.text(max_size=50), st.text(max_size=50), st.sampled_from(["A100-SXM-80GB", "L40S"]))
def test_any_text_resolves(intra, inter, gpu):
    cluster = run(gpu, 16, 2, intra, inter)
    assert cluster.num_gpus == 16
    assert cluster.node_bytes_per_s > 0
    assert cluster.node.num_gpus >= cluster.gpus_per_node
    assert len(cluster.node.mesh_links) in (0, cluster.node.num_gpus)


def test_misspelt_node_is_not_taken_for_a_gpu_of_a_similar_name():
    with pytest.raises(UnknownNameError, match="dgx_a100"):
        cluster_from_names("dgx_a10", 1)
    assert cluster_from_names("A10", 1).gpu.name == "a10"
