"""What operators and schedules do to runs."""
