"""What an operator may see of runs and do to them."""
