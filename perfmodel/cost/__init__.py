"""How long a piece of work takes: one module a family behind one protocol."""
