"""What both programs use: the clock and the log. Python 3.8, the standard library only."""
