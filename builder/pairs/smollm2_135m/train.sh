#!/usr/bin/env bash
# Trains what this folder holds: train.sh TARGET_DIR WORK_DIR [QUESTIONS.jsonl]
#
# For a GPU of 80 GB: eight million tokens of the target's own answers, then the three kinds of draft,
# half an hour in all. QUESTIONS are never trained on. A later run resumes a stopped one.
# SMALL=1 runs the same steps in some minutes on a CPU, to see that they work; its drafts are useless.
set -euo pipefail

target=$1 work=$2 questions=${3:-}
python=${PYTHON:-python}
repository=$(cd "$(dirname "$0")/../../.." && pwd)
export PYTHONPATH="$repository/backends/python:$repository${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONUNBUFFERED=1

build() { "$python" -m specdec.builder.cli "$@"; }

common=(--target "$target" --work "$work" --seed 20 --num-top 1 ${questions:+--questions "$questions"})
prompts=(--num-sampled 30000 --num-again 8000 --num-summarise 4000 --num-question 6000
    --num-rewrite 3000 --num-long 8000 --num-translate 6000 --num-math 8000 --num-short 1000
    --num-functions 2000 --share-warm 0.25)
short=(--num-slots 2048 --max-prompt 420 --shard-answers 4096 --sort-span 8192)
long=(--num-slots 768 --max-prompt 1500 --shard-answers 1024 --sort-span 4096)
second=(--num-second 12000 --num-slots 1536 --max-prompt 640 --shard-answers 4096 --sort-span 4096)
head=(--train-head --batch-tokens 16384 --epochs 20 --eval-every 150)
eagle3=(--num-steps 5 --minutes 15)
distill=(--layers 0 1 29 --minutes 8)
medusa=(--num-steps 4 --minutes 4)
if [[ -n ${SMALL:-} ]]; then
    prompts=(--num-sampled 16 --num-again 8 --num-summarise 8 --num-question 8 --num-rewrite 4
        --num-long 8 --num-translate 8 --num-math 8 --num-short 8 --num-code 4)
    short=(--num-slots 16 --max-prompt 200 --max-new 64 --minutes 1)
    long=(--num-slots 8 --max-prompt 1500 --max-new 16 --minutes 1)
    second=(--num-second 12 --num-slots 8 --max-prompt 640 --max-new 16 --minutes 1)
    head=(--train-head --batch-tokens 1024 --epochs 1 --eval-every 4 --minutes 0.5)
    eagle3=(--num-steps 5) distill=(--layers 0 1 29) medusa=(--num-steps 4)
fi

step() { echo "== $* ($(date +%T))"; }

step prompts
build distill prompts "${common[@]}" "${prompts[@]}" "${short[@]}"
step answers to short prompts
build distill answers "${common[@]}" "${short[@]}"
step answers to long prompts
build distill answers "${common[@]}" --minutes 1 "${long[@]}"
step answers to the second wave
build distill second "${common[@]}" "${second[@]}"

run() { # kind options…: trains in a run of its own and stores the draft in WORK/KIND
    local kind=$1 small=(--small)
    shift
    [[ $kind == distill ]] && small=()
    step "$kind"
    build "$kind" train "${common[@]}" --run "run_$kind" "${head[@]}" "$@"
    build "$kind" export "${common[@]}" --run "run_$kind" --draft "$work/$kind" "${small[@]}"
}

run eagle3 "${eagle3[@]}"
run distill "${distill[@]}"
run medusa "${medusa[@]}"
step done
