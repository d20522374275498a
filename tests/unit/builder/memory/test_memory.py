"""Tests of memory plans: published counts, real files, and figures that TensorRT-LLM printed."""

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.builder.checkpoints.files import safetensors_header
from specdec.builder.description import (
    EngineDescription,
    Gpu,
    Limits,
    Load,
    PairDescription,
    Placement,
    Precision,
    SelfSpeculation,
    Speculation,
    load_description,
)
from specdec.builder.description.loading import GPUS_FILE, known_shape, known_shapes
from specdec.builder.description.reading import read_toml
from specdec.builder.memory import combination, kv_shares, plan_memory, remedies
from specdec.builder.memory.buffers import activation_bytes, buffer_bytes, kv_bytes_per_token
from specdec.builder.memory.shares import DEFAULT_FRACTION, caches_in_turn
from specdec.builder.memory.weights import head_bytes, weight_bytes

MIB, GIB = 1 << 20, 1 << 30
MODELS = Path(__file__).parents[4] / "model_repository"
LLAMA_2_7B = replace(
    known_shape("Llama-3.1-8B"),
    intermediate_size=11008, num_kv_heads=32, num_tokens=32000, vocab_size=32000,
    num_parameters=6_738_415_616,
)  # fmt: skip
LLAMA_2_13B = replace(LLAMA_2_7B, num_layers=40, hidden_size=5120, intermediate_size=13824,
                      num_heads=40, num_kv_heads=40, num_parameters=13_015_864_320)  # fmt: skip


def engine(shape, quantization="none", kv_cache="auto", name="target", **placement):
    """Return an engine of a shape, on GPU 0 unless `placement` names other devices."""
    where = Placement(**{"devices": (0,)} | placement)
    return EngineDescription(
        name, name, "-", shape, Precision("float16", quantization, kv_cache), where
    )


def pair(target, *drafts, memory_mib=81559, **limits):
    """Return a compiled pair with these engines; `limits` have the names of the pair file."""
    return PairDescription(
        name="p",
        engine="tensorrtllm",
        target=target,
        drafts=drafts,
        limits=Limits(**{"max_draft_len": 0} | limits),
        load=Load(16, 2048),
        speculation=Speculation(),
        gpu=Gpu("G", memory_mib, 90),
    )


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("SmolLM2-135M", 134_515_008),
        ("MiniMind2-Small", 25_829_888),
        ("Llama-3.2-1B", 1_235_814_400),
        ("Llama-3.2-3B", 3_212_749_824),
        ("Llama-3.1-8B", 8_030_261_248),
        ("Llama-3.1-70B", 70_553_706_496),
        ("Qwen2.5-0.5B", 494_032_768),
        ("Qwen2.5-1.5B", 1_543_714_304),
        ("Qwen2.5-3B", 3_085_938_688),
        ("Qwen2.5-7B", 7_615_616_512),
        ("Qwen2.5-14B", 14_770_033_664),
        ("Qwen2.5-32B", 32_763_876_352),
        ("Qwen2.5-72B", 72_706_203_648),
    ],
)
def test_shapes_give_the_published_counts(name, count):
    """Every parameter of a published model is counted, tied embeddings once."""
    assert known_shape(name).total_parameters == count


def test_older_llamas_are_counted_too():
    """The formula holds for the family, not only for the models of shapes.toml."""
    for shape in (LLAMA_2_7B, LLAMA_2_13B):
        assert shape.total_parameters == shape.num_parameters


def stored_bytes(file):
    """Return the bytes of all tensors in a safetensors file."""
    header = safetensors_header(file)
    return max(each["data_offsets"][1] for name, each in header.items() if name != "__metadata__")


def test_weights_of_the_default_pair_are_exact():
    """The bytes are exactly those in the files of target, draft model and head."""
    description = load_description("smollm2_135m")
    target, draft = description.target, description.drafts[0]

    assert weight_bytes(target, is_compiled=False) == stored_bytes(
        MODELS / "target/1/checkpoint/model.safetensors"
    )
    assert weight_bytes(draft, is_compiled=False) == stored_bytes(
        MODELS / "draft/1/checkpoint/model.safetensors"
    )
    assert head_bytes(target, description.self_speculation) == stored_bytes(
        MODELS / "target/1/head/model.safetensors"
    )


@pytest.mark.parametrize(
    ("described", "printed_mib"),
    [
        (engine(known_shape("Llama-3.1-8B")), 15388),  # TensorRT-LLM issue 3636
        (engine(known_shape("Qwen2.5-0.5B"), "int8_wo"), 875),  # issue 1188
        (engine(known_shape("Qwen2.5-1.5B")), 3405),  # issue 2789
        (engine(LLAMA_2_7B, "fp8"), 6695),  # docs/source/reference/memory.md
    ],
)
def test_weights_are_close_to_the_printed_engine_sizes(described, printed_mib):
    """Up to 2 % below the "Loaded engine size" of TensorRT-LLM, with tied heads stored twice."""
    ours = weight_bytes(described, is_compiled=True) / MIB

    assert ours == pytest.approx(printed_mib, rel=0.02)
    assert ours <= printed_mib


@pytest.mark.parametrize(
    ("described", "num_tokens", "printed_gib"),
    [
        (engine(known_shape("Qwen2.5-1.5B")), 1_121_536, 29.95),  # issue 2789
        (engine(LLAMA_2_7B, "fp8", "fp8"), 259_840, 63.44),  # docs/source/reference/memory.md
        (engine(known_shape("Qwen2.5-0.5B")), 395_776, 4.53),  # issue 1188
    ],
)
def test_kv_cache_equals_the_printed_allocations(described, num_tokens, printed_gib):
    """The GiB that TensorRT-LLM printed for a number of tokens agree to two decimals."""
    assert round(num_tokens * kv_bytes_per_token(described) / GIB, 2) == printed_gib


@pytest.mark.parametrize(
    ("name", "quantization", "printed_mib"),
    [
        ("Qwen2.5-0.5B", "int8_wo", 773.51),  # issue 1188
        ("Qwen2.5-1.5B", "int4_wo", 921.51),  # a benchmark's log, version 0.17
    ],
)
def test_activations_are_close_to_the_printed_figures(name, quantization, printed_mib):
    """TensorRT's "execution context memory" for 8,192 rows and 2,048 sequences, within 0.1 %."""
    target = engine(known_shape(name), quantization)
    described = pair(target, max_batch_size=2048, max_num_tokens=8192)

    assert activation_bytes(described, target) / MIB == pytest.approx(printed_mib, rel=0.001)


def test_fp8_activations_are_not_underestimated():
    """The extra memory that NVIDIA's document warns of is counted; 1,112 MiB were printed here."""
    target = engine(LLAMA_2_7B, "fp8")
    described = pair(target, max_batch_size=256, max_num_tokens=8192)

    assert activation_bytes(described, target) / MIB == pytest.approx(1112, rel=0.02)


def test_decoder_of_one_sequence_is_not_underestimated():
    """TensorRT-LLM printed 2.45 MB for Qwen2-1.5B, a batch of one and 4,800 tokens (issue 2789)."""
    target = engine(known_shape("Qwen2.5-1.5B"))
    described = pair(target, max_batch_size=1, max_seq_len=4800)

    assert 2.45 * MIB <= buffer_bytes(described, target) <= 2 * 2.45 * MIB


def test_ranks_share_projections_and_repeat_embeddings():
    """Each of four ranks has a quarter of the layers and of the head, and the whole embedding."""
    shape = known_shape("Llama-3.1-70B")
    whole = weight_bytes(engine(shape), is_compiled=True)
    rank = weight_bytes(engine(shape, tensor_parallel=4), is_compiled=True)
    embedding, norms = 2 * shape.num_embedding_parameters, 2 * shape.num_norm_parameters

    assert 4 * rank == whole + 3 * (embedding + norms)


def test_eagle3_head_of_an_8b_has_its_size():
    """The published head for Llama-3.1-8B with 32,000 rows has about 425M parameters."""
    own = SelfSpeculation("eagle3", draft_vocab_size=32000)

    assert head_bytes(engine(known_shape("Llama-3.1-8B")), own) / 2e6 == pytest.approx(
        425, rel=0.01
    )


SHAPES = st.sampled_from(sorted(known_shapes()))
PAIRS = st.builds(
    lambda large, small, shared, draft_len, batch, sequences, length: replace(
        pair(
            engine(known_shape(large)),
            engine(known_shape(small), name="draft", devices=(0,) if shared else (1,)),
            max_draft_len=draft_len,
            max_batch_size=batch,
            max_num_tokens=8192,
        ),
        load=Load(sequences, length),
    ),
    SHAPES, SHAPES, st.booleans(), st.integers(0, 16), st.integers(1, 128), st.integers(1, 128),
    st.integers(1, 16384),
)  # fmt: skip


@given(PAIRS, st.integers(1, 64))
def test_larger_load_or_limits_never_leave_more_memory(described, more):
    """More or longer sequences, larger batches or longer drafts never leave more to spare."""
    limits, load = described.limits, described.load
    for larger in (
        replace(described, load=replace(load, num_sequences=load.num_sequences + more)),
        replace(described, load=replace(load, sequence_len=load.sequence_len + more)),
        replace(described, limits=replace(limits, max_batch_size=limits.max_batch_size + more)),
        replace(described, limits=replace(limits, max_draft_len=limits.max_draft_len + more)),
        replace(described, limits=replace(limits, max_num_tokens=limits.max_num_tokens + more)),
    ):
        for before, after in zip(
            plan_memory(described).devices, plan_memory(larger).devices, strict=True
        ):
            assert after.spare <= before.spare


@given(PAIRS)
def test_remedies_save_what_they_promise(described):
    """A remedy's saving is the difference of two plans; it fits if the changed pair's plan fits."""
    plan = plan_memory(described)
    fullest = min(plan.devices, key=lambda each: each.spare)
    for remedy in remedies(described, plan):
        after = plan_memory(remedy.pair)
        needed = {each.device: each.needed for each in after.devices}

        assert remedy.saved == fullest.needed - needed.get(fullest.device, 0) > 0
        assert remedy.fits == after.fits


@given(PAIRS)
def test_a_combination_fits_on_the_same_gpus(described):
    """With all changes of a combination the pair fits, and needs no further GPU."""
    steps = combination(described)
    if plan_memory(described).fits:
        assert not steps
    if steps:
        assert plan_memory(steps[-1].pair).fits
        assert devices(steps[-1].pair) <= devices(described)


def devices(described):
    """Return all GPUs of a pair."""
    return {device for each in described.engines for device in each.placement.devices}


def test_an_8b_and_a_1b_fit_24_gb_together_with_two_changes():
    """No single change makes this pair small enough; FP8 and shorter sequences do."""
    gpu = Gpu("L4", **read_toml(GPUS_FILE)["L4"])
    described = replace(load_description("llama31_8b_1b"), gpu=gpu)

    assert [each.what for each in combination(described)] == [
        "target: weights and KV cache in FP8",
        "plan for 1,536 tokens a sequence instead of 3,072",
    ]


def test_llmapi_keeps_draft_and_target_in_one_cache():
    """One process has one KV cache, in which a token takes the bytes of both models."""
    apart = load_description("llama31_8b_1b")
    inside = replace(apart, engine="llmapi", self_speculation=SelfSpeculation("draft_target"))
    (one,) = plan_memory(inside).devices[0].engines
    target, draft = plan_memory(apart).devices[0].engines

    assert one.kv_bytes_per_token == target.kv_bytes_per_token + draft.kv_bytes_per_token
    assert [each.engine for each in kv_shares(inside, plan_memory(inside))] == ["target"]


def loaded(device, shares, order):
    """Return the caches that TensorRT-LLM allocates for this load order, and the free bytes left.

    The caches are in bytes, by engine.
    """
    share_of = {each.engine: each for each in shares}
    free, caches = device.capacity, {}
    for engine in order:
        free -= engine.fixed
        share = share_of[engine.engine]
        most = share.max_tokens * engine.kv_bytes_per_token
        caches[engine.engine] = min(int(free * share.fraction), most)
        free -= caches[engine.engine]
    return caches, free


@given(PAIRS)
def test_shares_hold_the_load_in_any_order(described):
    """Every engine gets its cache and has memory for its weights, whichever loads first."""
    plan = plan_memory(described)
    shares = kv_shares(described, plan)
    assert bool(shares) == plan.fits
    for device in plan.devices if shares else ():
        for order in permutations(device.engines):
            caches, free = loaded(device, shares, order)

            assert free >= 0
            for engine in order:
                assert caches[engine.engine] >= 0.98 * engine.kv_cache
                if device.spare > 0.1 * device.capacity:
                    assert caches[engine.engine] >= engine.kv_cache


def test_default_fractions_starve_the_second_engine():
    """Two engines with 0.9 of the free memory leave nothing for the second one's weights."""
    device = plan_memory(load_description("llama31_8b_1b")).devices[0]
    caches = caches_in_turn(device, dict.fromkeys(("target", "draft"), DEFAULT_FRACTION), {})

    assert caches["target"] > 0 > caches["draft"]


def test_a_fraction_of_the_file_is_kept():
    """A fraction in the pair file sets that engine's cache; the other engine's is computed."""
    described = load_description("llama31_8b_1b")
    chosen = replace(described, target=replace(described.target, kv_cache_fraction=0.6))
    (before, _), (target, draft) = (
        kv_shares(each, plan_memory(each)) for each in (described, chosen)
    )
    device = plan_memory(chosen).devices[0]

    assert target.fraction == 0.6
    assert target.max_tokens * device.engines[0].kv_bytes_per_token <= 0.6 * (
        device.capacity - device.engines[0].fixed
    )
    assert target.max_tokens < before.max_tokens
    assert draft.max_tokens > 0
