"""RUN files: reading with file and line, the published JSON Schema, and the way to records."""
