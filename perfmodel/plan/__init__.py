"""How a workload is spread (plans) and how a framework executes it (stacks)."""
