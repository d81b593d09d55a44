"""The operations of a run, each as a generator of effects."""
