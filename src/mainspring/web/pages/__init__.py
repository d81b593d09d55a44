"""The pages, one file per noun: queries and answers."""
