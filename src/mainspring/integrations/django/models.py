"""No models: the library creates its tables itself. Django sends `post_migrate` only to apps that have this module."""
