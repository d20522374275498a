"""The library: the C sources of this folder, compiled once for this processor and loaded."""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_FOLDER = Path(__file__).parent
_FLAGS = (
    *("-O3", "-march=native", "-std=gnu11", "-shared", "-fPIC", "-pthread", "-Wno-psabi"),
    # Contracting a product and a sum changes bits, so the compiler must not do it by itself.
    "-ffp-contract=off",
)
_COMPILE_TIMEOUT_S = 120


class NoLibraryError(Exception):
    """Raised if the sources cannot be compiled or loaded here; the message says why."""


class DecoderShape(ctypes.Structure):
    """The structure `decoder_shape` of model.h."""

    _fields_ = (
        ("hidden", ctypes.c_int32),
        ("inner", ctypes.c_int32),
        ("num_layers", ctypes.c_int32),
        ("num_heads", ctypes.c_int32),
        ("num_kv_heads", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("eps", ctypes.c_float),
    )


class Matrix(ctypes.Structure):
    """The structure `matrix` of products.h."""

    _fields_ = (("panels", ctypes.c_void_p), ("scales", ctypes.c_void_p))


class LayerPointers(ctypes.Structure):
    """The structure `layer_weights` of model.h."""

    _fields_ = (
        ("attention_norm", ctypes.c_void_p),
        ("mlp_norm", ctypes.c_void_p),
        ("qkv", Matrix),
        ("output", Matrix),
        ("gate_up", Matrix),
        ("down", Matrix),
    )


class DecoderPointers(ctypes.Structure):
    """The structure `decoder` of model.h."""

    _fields_ = (
        ("shape", ctypes.POINTER(DecoderShape)),
        ("layers", ctypes.POINTER(LayerPointers)),
        ("cosines", ctypes.c_void_p),
        ("sines", ctypes.c_void_p),
        ("embedding", ctypes.c_void_p),
        ("final_norm", ctypes.c_void_p),
        ("embedding_norm", ctypes.c_void_p),
        ("taps", ctypes.c_void_p),
        ("num_taps", ctypes.c_int32),
    )


class RowBatch(ctypes.Structure):
    """The structure `row_batch` of model.h."""

    _fields_ = (
        ("num_rows", ctypes.c_int32),
        ("num_segments", ctypes.c_int32),
        ("num_asked", ctypes.c_int32),
        ("tokens", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("segment_starts", ctypes.c_void_p),
        ("blocks", ctypes.c_void_p),
        ("block_starts", ctypes.c_void_p),
        ("asked", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("given", ctypes.c_void_p),
        ("carried", ctypes.c_void_p),
        ("states", ctypes.c_void_p),
        ("cache", ctypes.c_void_p),
        ("num_blocks", ctypes.c_int64),
    )


@functools.cache
def load() -> ctypes.CDLL:
    """Return the library, compiled unless the cache has it for this processor and these sources.

    Raises NoLibraryError.
    """
    kept = _cached_path()
    path = _compile(None) if kept is None else _compile_once(kept)
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise NoLibraryError(str(error)) from error
    finally:
        # Once it is loaded, the library does not need its file.
        if kept is None:
            shutil.rmtree(path.parent, ignore_errors=True)
    number, pointer, matrix = ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(Matrix)
    library.pool_new.argtypes, library.pool_new.restype = (number,), pointer
    library.pool_size.argtypes, library.pool_size.restype = (pointer,), number
    library.product.argtypes = (pointer, matrix, number, number, pointer, number, pointer)
    library.product.restype = number
    library.largest_columns.argtypes = (
        *(pointer, matrix, pointer, number, number, pointer, number),
        *(ctypes.c_float, pointer),
    )
    library.largest_columns.restype = number
    library.read_memory.argtypes = (pointer, pointer, ctypes.c_int64, pointer)
    library.read_memory.restype = None
    library.decoder_run.argtypes = (
        pointer,
        ctypes.POINTER(DecoderPointers),
        ctypes.POINTER(RowBatch),
    )
    library.decoder_run.restype = number
    return library


def _cached_path() -> Path | None:
    """Return the library's path in the user's cache; None if no folder for it can be written."""
    digest = hashlib.sha256(" ".join((*_FLAGS, platform.machine(), _processor())).encode())
    for source in sorted(_FOLDER.glob("*.[ch]")):
        digest.update(source.read_bytes())
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specdec"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: no HOME, and the system does not know the user
        return None
    if not os.access(folder, os.W_OK):
        return None
    return folder / f"decoder-{digest.hexdigest()[:16]}.so"


def _processor() -> str:
    """Return the processor's list of features, on which -march=native depends."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _compile_once(kept: Path) -> Path:
    """Compile the library to `kept` unless it is there, and return `kept`.

    Target and draft engine start together. The one that comes second waits and finds the file.
    The system releases the lock when its holder ends. Raises NoLibraryError.
    """
    if kept.exists():
        return kept
    try:
        with kept.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return kept if kept.exists() else _compile(kept)
    except OSError as error:
        raise NoLibraryError(f"{kept} cannot be written: {error}") from error


def _compile(kept: Path | None) -> Path:
    """Compile the sources and return the library's path, which is `kept` unless that is None.

    The file is written under another name and renamed, so that no process loads a half-written one.
    Raises NoLibraryError.
    """
    folder = kept.parent if kept else Path(tempfile.mkdtemp(prefix="specdec-native-"))
    new = folder / f"decoder-{os.getpid()}.so"
    compiler = find_compiler()
    sources = [str(source) for source in sorted(_FOLDER.glob("*.c"))]
    try:
        done = subprocess.run(
            [*compiler, *_FLAGS, *sources, "-lm", "-o", str(new)],
            capture_output=True,
            text=True,
            timeout=_COMPILE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoLibraryError(f"{compiler[0]} failed: {error}") from error
    if done.returncode:
        raise NoLibraryError(f"{' '.join(compiler)} failed: {done.stderr.strip()[-500:]}")
    return new.replace(kept) if kept else new


def find_compiler() -> list[str]:
    """Return the command that compiles C here: $CC if set, else cc, gcc or clang.

    If there is none of them, the command is that of the package ziglang. Raises NoLibraryError if
    that is missing too.
    """
    wanted = os.environ.get("CC")
    for name in (wanted,) if wanted else ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return [found]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    raise NoLibraryError("no C compiler (cc, gcc, clang, $CC or the package ziglang)")
