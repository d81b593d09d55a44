"""`app.runs`, `app.queues`, `app.schedules`, `app.scheduled_functions`."""
