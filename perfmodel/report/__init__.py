"""Answers as text and JSON; computes nothing, imports only records."""
