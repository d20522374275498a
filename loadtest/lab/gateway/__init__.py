"""Our measurements of the gateway: what it costs, and that it changes no answer."""
