"""GPUs, links, nodes, networks and clusters, and the catalogue of known ones."""
