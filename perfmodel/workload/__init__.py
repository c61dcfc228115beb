"""What is trained: operator graphs of one model replica, and their builders."""
