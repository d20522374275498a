"""Find crashes that no exit status shows, in the kernel's log and as core files.

The kernel's log covers the whole machine: nothing else that may crash should run beside a bench.
Only the crashes that benches plant are told apart, by their name.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_NAME = 15
"""The option of prctl(2) that renames the calling thread, from linux/prctl.h."""
PLANTED = "planted_crash"
"""The name of a process that is crashed on purpose."""
_CRASH = re.compile(
    r"(segfault|general protection|trap (stack|invalid)|traps:|[Oo]ut of memory|oom-kill)"
)


class CrashWatch:
    """Finds the crashes that happen after it was made.

    Needs a readable kernel log, or core files in `folder`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known = set(_kernel_lines())
        self._cores = set(folder.glob("core*"))

    def found(self) -> list[str]:
        """Return the crashes since the watch was made, a line each."""
        lines = [each for each in self._new_lines() if PLANTED not in each]
        cores = sorted(set(self._folder.glob("core*")) - self._cores)
        return lines + [f"core file {each.name}" for each in cores]

    def sees_a_crash(self) -> bool:
        """Crash another process on purpose, and tell whether that was found.

        A watch that does not find this crash proves nothing elsewhere.
        """
        watch = CrashWatch(self._folder)
        rename = f"ctypes.CDLL(None).prctl({PR_SET_NAME}, b'{PLANTED}')"
        code = f"import ctypes; {rename}; ctypes.string_at(0)"
        planted = subprocess.run([sys.executable, "-c", code], cwd=self._folder, check=False)
        assert planted.returncode == -signal.SIGSEGV
        time.sleep(0.2)
        found = watch._new_lines() + watch.found()
        self._known |= set(_kernel_lines())
        self._cores |= set(self._folder.glob("core*"))
        return bool(found)

    def _new_lines(self) -> list[str]:
        return [each for each in _kernel_lines() if each not in self._known]


def _kernel_lines() -> list[str]:
    """Return the kernel's lines about processes that crashed or got no memory.

    Empty if its log cannot be read.
    """
    try:
        ran = subprocess.run(["dmesg"], capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line for line in ran.stdout.splitlines() if _CRASH.search(line)]
