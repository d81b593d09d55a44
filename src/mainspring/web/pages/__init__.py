"""The pages, one file per noun: what is asked for, what is answered."""
