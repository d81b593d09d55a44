"""Messages, events, streams and questions."""
