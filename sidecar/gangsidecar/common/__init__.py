"""What both programs use: the clock and the log. Standard library only."""
