"""The verbs of a store, each written once for both databases."""
