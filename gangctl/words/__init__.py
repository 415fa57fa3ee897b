"""The English of every decision: one function for each sentence, and the only place that has it."""
