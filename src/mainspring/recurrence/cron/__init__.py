"""Cron expressions and crontab files, in four dialects."""
