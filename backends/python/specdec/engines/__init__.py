"""The engine protocol and its adapters: Triton BLS, in-process."""
