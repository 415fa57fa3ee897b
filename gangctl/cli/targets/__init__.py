"""Where gangs are: this machine's state directory, or a cluster. The verbs know neither, only the port."""
