"""What others say of nodes: the table of signals, and which of them a node shows."""
