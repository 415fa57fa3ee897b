"""Events of events.k8s.io/v1: built, filtered and recorded in the background."""
