"""The app: the object that a user holds, and the one place where all the parts are put together."""
