"""The converter of the stand-in."""

import sys

from tensorrt_llm.commands import convert_head

convert_head("redrafter", sys.argv[1:])
