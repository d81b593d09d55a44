"""What an operator may see and do. The CLI, the web, clients and the app call this and nothing deeper."""
