"""Lowering: from workload, plan, stack and cluster to an ordered Program."""
