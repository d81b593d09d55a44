"""The app: what a user holds in hand, and the one place where all the parts are put together."""
