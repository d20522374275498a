"""The types of token ids and log-probabilities that pass between all packages."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

TokenIds = npt.NDArray[np.int32]
"""Token ids, [n] int32."""

MAX_TOP_LOG_PROBS = 20
"""Most tokens of one position whose log-probabilities a request can ask for, as in OpenAI's API."""

TopLogProbs = tuple[tuple[int, float], ...]
"""The most likely tokens at one position with their log-probabilities, the likeliest first."""
