"""Events of events.k8s.io/v1: recorded in the background, filtered, in order."""
