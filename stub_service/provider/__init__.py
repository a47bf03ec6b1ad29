"""A stand-in for a model provider or a shared service that follows a scenario: the pure part, without sockets."""
