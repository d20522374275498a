"""Tests of a server's processor time, of all its processes or without those of some models."""

import os
import subprocess
import sys

import pytest

from loadtest.bench.processor_time import cpu_s

BUSY = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


@pytest.mark.parametrize("model", ["target", "my_draft"])
def test_time_of_a_models_process_can_be_left_out(model):
    """A process of the Python backend has its model instance's name as second last argument."""
    command = [sys.executable, "-c", BUSY, "model.py", f"{model}_0_1", "DEFAULT"]
    before_s = cpu_s(os.getpid())
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stub:
        stub.stdout.readline()
        with_model_s, without_s = cpu_s(os.getpid()), cpu_s(os.getpid(), [model])
        assert cpu_s(os.getpid(), ["another"]) >= with_model_s
        stub.communicate(b"\n")

    assert with_model_s - before_s >= 0.25
    assert without_s < with_model_s - 0.25
