"""A gang on one machine: a pod is a sidecar process and a supervisor process, the status is a file."""
