"""How much of a GPU's free memory each engine takes for its KV cache."""

from __future__ import annotations

from builder.description import PairDescription

USABLE = 0.9
"""Of the memory that is free beside the weights; the rest is for activations."""


def kv_cache_fractions(pair: PairDescription) -> dict[str, float]:
    """By engine. Engines that share a device share what is free there."""
    return {
        engine.name: engine.kv_cache_fraction
        or USABLE
        / max(
            1,
            max(
                (
                    sum(device in other.placement.devices for other in pair.engines)
                    for device in engine.placement.devices
                ),
                default=1,
            ),
        )
        for engine in pair.engines
    }
