"""The type of the token ids that pass between all packages."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

TokenIds = npt.NDArray[np.int32]
"""Token ids, [n] int32."""
