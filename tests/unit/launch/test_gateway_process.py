"""The gateway's command, and the models that it serves."""

from specdec.launch.gateway_process import gateway_command, orchestrators_of
from specdec.launch.server_command import ServeSettings


def test_gateway_serves_all_orchestrators_of_the_repository(tmp_path):
    """Engines are not offered to its clients."""
    for name, text in (
        ("chat", 'parameters { key: "tensorrt_llm_model_name" value { string_value: "t" } }'),
        ("target", 'parameters { key: "checkpoint_dir" value { string_value: "c" } }'),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").write_text(text)
    assert orchestrators_of(tmp_path) == ["chat"]
    settings = ServeSettings(
        tmp_path, address="::", has_openai=True, gateway_args=("--workers", "3")
    )
    command = gateway_command(settings)
    assert command[command.index("--model") + 1] == "chat"
    assert command[command.index("--server") + 1] == "[::1]:8001"
    assert command[-2:] == ["--workers", "3"]
