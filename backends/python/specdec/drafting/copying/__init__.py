"""Copy drafters: they propose tokens that followed the same text before, and cost no pass."""
