"""When each task runs: engine, timeline, critical path."""
