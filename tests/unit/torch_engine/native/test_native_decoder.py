"""Tests of the compiled decoder: it is right, and a row's bits do not depend on other rows."""

import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from specdec.errors import ConfigurationError
from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.layers.decoder import Rows
from specdec.torch_engine.layers.kv_cache import CachedSequence, KVCache
from specdec.torch_engine.layers.torch_decoder import TorchDecoder
from specdec.torch_engine.layers.weights import LayerWeights, ModelWeights
from specdec.torch_engine.model import LlamaModel
from specdec.torch_engine.native import NativeDecoder, library, native_decoder
from tests.unit.default_target import CPU, HEAD_DIM, HEADS, HIDDEN, INNER, KV_HEADS, VOCAB, random
from tests.unit.tiny_llama import save_tiny_llama

NUM_CACHE_TOKENS = 48 * 256
NUM_TOKENS = 300
NATIVE = partial(NativeDecoder, num_threads=2)
INT8 = partial(NATIVE, weight_dtype="int8")
KINDS = ["bfloat16", "int8"]
CONFIG = ModelConfig(
    VOCAB, HIDDEN, INNER, 2, HEADS, KV_HEADS, HEAD_DIM, 1e-5, 1e5, 8192, True, None
)


def missing_compiler() -> str | None:
    """Return the reason why there is no compiler here, or None.

    If there is one and the sources do not compile, the tests fail.
    """
    try:
        library.find_compiler()
    except library.NoLibraryError as error:
        return str(error)
    return None


pytestmark = pytest.mark.skipif(missing_compiler() is not None, reason=str(missing_compiler()))


def random_layer(config, seed):
    """Return a layer with the sizes of `config`."""
    hidden, inner, width = config.hidden_size, config.intermediate_size, config.head_dim
    num_kv = config.num_kv_heads * width

    def matrix(offset, num_out, num_in):
        return random(num_out, num_in, seed=seed + offset, scale=num_in**-0.5)

    return LayerWeights(
        attention_norm=torch.ones(hidden),
        qkv=matrix(0, config.num_heads * width + 2 * num_kv, hidden),
        output=matrix(1, hidden, config.num_heads * width),
        mlp_norm=torch.ones(hidden),
        gate=matrix(2, inner, hidden),
        up=matrix(3, inner, hidden),
        down=matrix(4, hidden, inner),
    )


def decoder_of(config, kind=NATIVE, *layers):
    """Return a decoder with random weights, the same for each kind, or with the given layers."""
    weights = ModelWeights(
        embedding=random(NUM_TOKENS, config.hidden_size, seed=99),
        layers=layers or tuple(random_layer(config, 10 * n) for n in range(config.num_layers)),
        final_norm=torch.ones(config.hidden_size),
        head_rows=random(NUM_TOKENS, config.hidden_size, seed=98),
        token_of_head_row=None,
    )
    return kind(config, weights)


def new_cache(config, decoder, num_tokens):
    """Return a cache with blocks of the size that the decoder reads."""
    return KVCache(config, num_tokens, CPU, block_size=decoder.block_size)


class Text:
    """One sequence in a cache, which is run in pieces."""

    def __init__(self, config, decoder, num_tokens, seed=0, cache=None, blocks=None):
        """Make a random text.

        `blocks` are its cache blocks, by default the first ones of a cache of its own.
        """
        self.decoder = decoder
        self.cache = cache or new_cache(config, decoder, NUM_CACHE_TOKENS)
        blocks = blocks or [*range(self.cache.blocks_for(num_tokens))]
        tokens = np.random.default_rng(seed).integers(0, NUM_TOKENS, num_tokens, dtype=np.int32)
        self.sequence = CachedSequence(tokens, blocks)

    def __len__(self):
        """Return the number of tokens."""
        return self.sequence.length

    def run(self, *positions):
        """Run these positions in one pass and return their rows."""
        own = np.arange(*positions)
        return run([self], [own])[0]

    def run_in(self, size):
        """Run the whole text in pieces of `size` tokens."""
        return torch.cat([self.run(n, min(n + size, len(self))) for n in range(0, len(self), size)])


def quantised_rows(x):
    """Round rows as the library does, with one scale for each 16 values.

    Takes [n, inner] float32 and returns float64 of the same shape.
    """
    groups = x.reshape(len(x), -1, 16)
    largest = np.abs(groups).max(axis=-1, keepdims=True)
    steps = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
    values = np.rint(groups * steps).astype(np.float64)
    return (values * (largest / np.float32(127))).reshape(x.shape)


def quantised_weight(weight):
    """Round a weight as it is packed, with one scale for each 64 values.

    Takes [out, inner] float32 and returns float64 of the same shape.
    """
    columns = []
    for start in range(0, weight.shape[1], 64):
        group = weight[:, start : start + 64]
        largest = np.abs(group).max(axis=1, keepdims=True) / np.float32(127)
        scale = torch.from_numpy(largest).to(torch.bfloat16).float().numpy()
        values = np.clip(np.rint(group / scale), -127, 127).astype(np.float64)
        columns.append(values * scale)
    return np.concatenate(columns, axis=1)


def run(texts, owns):
    """Run these positions of each text in one pass; return the rows of each text."""
    tokens = np.concatenate(
        [text.sequence.tokens[own] for text, own in zip(texts, owns, strict=True)]
    )
    rows = Rows(tokens, [text.sequence for text in texts], owns, np.arange(len(tokens)))
    out = texts[0].decoder.run(rows, texts[0].cache)
    return out.split([len(own) for own in owns])


@pytest.fixture(scope="module", params=[NATIVE, INT8], ids=KINDS)
def native(request):
    """Return a native decoder of the default target's sizes."""
    return decoder_of(CONFIG, request.param)


def rounding_of(native):
    """Return the share of a result that its rounding may be, on average."""
    return 0.05 if native._is_int8 else 0.01


def test_result_is_that_of_pytorch_up_to_rounding(native):
    """A text of 600 tokens is run in pieces of 97, and the hidden states are compared."""
    ours, reference = (
        Text(CONFIG, decoder, 600).run_in(97)
        for decoder in (native, decoder_of(CONFIG, TorchDecoder))
    )
    assert (ours - reference).abs().max() < 0.1 * reference.abs().max()
    assert (ours - reference).abs().mean() < rounding_of(native) * reference.abs().mean()


@pytest.mark.parametrize("kind", [NATIVE, INT8], ids=KINDS)
@pytest.mark.parametrize(
    "sizes",
    [(64, 160, 4, 2, 16), (288, 768, 6, 6, 48), (512, 1408, 8, 2, 64), (48, 80, 3, 1, 32)],
    ids=["tiny", "stories15M", "MiniMind2-Small", "odd panels"],
)
def test_other_models_of_the_family(sizes, kind):
    """Sizes may not fill whole panels, and heads may have other widths and other groups."""
    hidden, inner, heads, kv_heads, width = sizes
    config = ModelConfig(300, hidden, inner, 2, heads, kv_heads, width, 1e-5, 1e4, 512, True, None)
    native = decoder_of(config, kind)
    ours, reference = (
        Text(config, decoder, 300).run_in(64)
        for decoder in (native, decoder_of(config, TorchDecoder))
    )
    assert (ours - reference).abs().mean() < rounding_of(native) * reference.abs().mean()


def test_row_has_the_same_bits_in_a_piece_of_any_size(native):
    """Running the text token by token or 2 to 700 tokens at once gives the same bits."""
    length = 700
    expected = Text(CONFIG, native, length).run_in(1)
    for size in (2, 3, 5, 8, 11, 12, 13, 16, 17, 24, 25, 64, 255, 256, 257, 511, 700):
        assert torch.equal(Text(CONFIG, native, length).run_in(size), expected), f"{size} at once"


def test_row_has_the_same_bits_beside_other_sequences_and_in_other_blocks(native):
    """Twenty sequences of all lengths run in one pass, with blocks scattered over the pool."""
    cache = new_cache(CONFIG, native, 40_000)
    generator = np.random.default_rng(1)
    lengths = [1, 2, 255, 256, 257, 700, 1500, *generator.integers(3, 900, 13).tolist()]
    free = generator.permutation(cache.num_blocks).tolist()
    texts, owns, expected = [], [], []
    for seed, length in enumerate(lengths):
        blocks = [free.pop() for _ in range(cache.blocks_for(length))]
        text = Text(CONFIG, native, length, seed, cache, blocks)
        num_rows = min(length, 1 + length % 9)
        expected.append(Text(CONFIG, native, length, seed).run_in(256)[-num_rows:])
        if length > num_rows:
            text.run(0, length - num_rows)
        texts.append(text)
        owns.append(np.arange(length - num_rows, length))

    together = run(texts, owns)

    for text, got, want in zip(texts, together, expected, strict=True):
        assert torch.equal(got, want), f"{len(text)} tokens"


def test_silu_agrees_with_pytorch_for_gates_of_any_size():
    """SiLU goes to 0 on one side and to its argument on the other, also where e^x overflows."""
    config = replace(CONFIG, num_layers=1)
    layer = random_layer(config, 0)
    layer = replace(layer, gate=layer.gate * 200)
    ours, reference = (
        Text(config, decoder_of(config, kind, layer), 40).run_in(40)
        for kind in (NATIVE, TorchDecoder)
    )
    assert (ours - reference).abs().mean() < 0.01 * reference.abs().mean()


@pytest.mark.parametrize("inner", [HIDDEN, INNER, 80], ids=["hidden", "inner", "part of a group"])
def test_product_is_exact_and_the_same_for_any_number_of_rows(native, inner):
    """The product agrees with float64, and a row's bits do not depend on the number of rows.

    In int8 the reference is the product of the quantised operands.
    """
    weight, x = random(1000, inner, scale=0.05), random(200, inner, seed=1).float()
    x[3], x[4, :16], x[5, 7] = 0, 0, 1000  # cases: sixteen zeros, and an outlier
    product = native.output(weight).logits
    together = product(x)

    if native._is_int8:
        exact = quantised_rows(x.numpy()) @ quantised_weight(weight.float().numpy()).T
    else:
        exact = x.to(torch.bfloat16).double().numpy() @ weight.double().numpy().T
    errors = np.abs(together.numpy() - exact).max(axis=1)
    assert (errors <= 4e-6 * np.abs(exact).max(axis=1)).all()
    for size in (1, 2, 5, 12, 13, 31, 200):
        assert torch.equal(torch.cat([product(part) for part in x.split(size)]), together)


def test_most_likely_token_is_that_of_float32(native):
    """Near ties are decided as in float32, and real ties give the lowest id.

    The choice is the same for any number of rows.
    """
    hidden = torch.randn(3000, HIDDEN, generator=torch.Generator().manual_seed(14))
    rows = random(301, HIDDEN, seed=16, scale=0.05)
    exact = hidden.double() @ rows.double().T

    chosen = native.output(rows).most_likely(hidden)

    gap = exact.amax(dim=-1) - exact[torch.arange(len(hidden)), chosen]
    assert gap.max() < 1e-5
    assert (native.output(rows).logits(hidden).argmax(dim=-1) != chosen).any(), "no near ties here"
    assert torch.equal(native.output(torch.cat((rows, rows))).most_likely(hidden), chosen)
    assert torch.equal(native.output(rows).most_likely(hidden[:1].expand(2, -1)), chosen[[0, 0]])
    alone = torch.cat([native.output(rows).most_likely(one[None]) for one in hidden[:30]])
    assert torch.equal(alone, chosen[:30])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernels": "torch"}, "kernels is torch"),
        ({"dtype": torch.float32}, "asked for torch.float32 on cpu"),
        ({"device": torch.device("cuda")}, "asked for torch.bfloat16 on cuda"),
        (
            {"weight_dtype": "int4"},
            r"weight_dtype must be one of \('auto', 'int8', 'int8_if_native'\); given 'int4'",
        ),
    ],
    ids=["torch", "float32", "cuda", "int4"],
)
def test_int8_without_the_compiled_kernels_is_refused(tmp_path, options, message):
    """Only compiled kernels multiply int8. The message names what is needed and what was given."""
    directory = save_tiny_llama(tmp_path)
    given = {"device": CPU, "weight_dtype": "int8"} | options
    with pytest.raises(ConfigurationError, match=message):
        LlamaModel(directory, 1024, **given)


def test_sizes_agree_with_the_c_sources():
    """A head larger than MAX_HEAD_DIM of model.h would overrun the attention's memory."""
    header = Path(library.__file__).with_name("model.h").read_text()
    assert f"MAX_HEAD_DIM = {native_decoder.MAX_HEAD_DIM} " in header
    assert f"BLOCK_SIZE = {NativeDecoder.block_size}," in header


def test_missing_compiler_is_an_error_for_native_and_a_warning_for_auto(
    tmp_path, monkeypatch, caplog
):
    """`native` and `int8` are refused with the reason; `auto` goes on with PyTorch and logs it."""
    directory = save_tiny_llama(tmp_path / "model")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(library.importlib.util, "find_spec", lambda _: None)
    library.load.cache_clear()
    try:
        with pytest.raises(ConfigurationError, match="no C compiler"):
            LlamaModel(directory, 1024, CPU, kernels="native")
        with pytest.raises(ConfigurationError, match=r"weight_dtype is int8.*no C compiler"):
            LlamaModel(directory, 1024, CPU, weight_dtype="int8")
        models = [
            LlamaModel(directory, 1024, CPU, weight_dtype=each)
            for each in ("auto", "int8_if_native")
        ]
    finally:
        library.load.cache_clear()
    assert all(isinstance(model._decoder, TorchDecoder) for model in models)
    assert "no C compiler" in caplog.text


def test_int8_if_native_quantises_with_compiled_kernels_only(tmp_path):
    """With PyTorch's kernels `int8_if_native` is no error, and leaves the weights as they are."""
    directory = save_tiny_llama(tmp_path)
    native, torch_model = (
        LlamaModel(directory, 1024, CPU, kernels=kernels, weight_dtype="int8_if_native")
        for kernels in ("auto", "torch")
    )
    assert native._decoder._is_int8
    assert isinstance(torch_model._decoder, TorchDecoder)


def test_models_of_one_process_have_their_own_numbers_of_threads():
    """A draft model with one thread does not limit the threads of a target loaded after it."""
    script = """
import torch
from specdec.torch_engine.native import NativeDecoder, library
from tests.unit.torch_engine.native.test_native_decoder import CONFIG, decoder_of

torch.set_num_threads(2)
kinds = [lambda *given, n=n: NativeDecoder(*given, num_threads=n) for n in (1, 0, 3, 1)]
pools = [decoder_of(CONFIG, kind)._pool for kind in kinds]
assert [library.load().pool_size(pool) for pool in pools] == [1, 2, 3, 1]
assert pools[0] == pools[3]
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[4])


def test_pool_that_lacks_threads_ends_those_that_started():
    """Threads of a pool that nobody got would wait for ever."""
    script = """
import resource
from pathlib import Path
from specdec.torch_engine.native import library

functions = library.load()
num_before = len(list(Path("/proc/self/task").iterdir()))
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**27, used + 2**27))
assert functions.pool_new(4096) is None
assert len(list(Path("/proc/self/task").iterdir())) == num_before
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[4])


def test_processes_that_start_together_compile_once(tmp_path, monkeypatch):
    """The second one waits for the first one's file, instead of taking its processor time."""
    kept = tmp_path / "decoder-0.so"
    compiling, may_end = threading.Event(), threading.Event()

    def compile_once(path):
        assert not compiling.is_set()
        compiling.set()
        may_end.wait(30)
        path.touch()
        return path

    monkeypatch.setattr(library, "_compile", compile_once)
    with ThreadPoolExecutor(2) as executor:
        first = executor.submit(library._compile_once, kept)
        compiling.wait(30)
        second = executor.submit(library._compile_once, kept)
        may_end.set()
        assert first.result() == second.result() == kept


def test_without_a_home_the_library_is_loaded_and_leaves_nothing(tmp_path, monkeypatch):
    """A user in a container may have neither HOME nor a name; engines start, and leave no files."""
    compiled = Path(library.load()._name)

    def compile_for(kept):
        assert kept is None
        (tmp_path / "scratch").mkdir()
        return Path(shutil.copy(compiled, tmp_path / "scratch"))

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setattr(library, "_compile", compile_for)

    assert library.load.__wrapped__().pool_size is not None
    assert list(tmp_path.iterdir()) == []
