"""What an operator may see of schedules and do to them."""
