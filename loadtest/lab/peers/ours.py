"""Our own arms: `specdec` on a real tritonserver, asked over gRPC."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from specdec import __version__
from specdec.builder.errors import BuildError
from specdec.builder.repository.colocate import colocate
from specdec.clients import GenerationRequest, GrpcClient, SpecdecError
from specdec.drafting.names import AUTO
from specdec.launch.installation import LaunchError
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.kit.arms import Arm
from specdec.loadtest.kit.asking import ask
from specdec.loadtest.kit.prompts import TokenPrompt
from specdec.loadtest.kit.repository import COLOCATED
from specdec.loadtest.lab.peers.catalogue import OURS
from specdec.loadtest.lab.peers.protocol import Answer, PeerError, Question, Reply, without_end

LEARNING_TOKENS = 64


class OurArm:
    """One arm of ours: a running server, asked in one mode.

    The server is not paused while others are measured: idle, its processes take 0.2 % of a core.
    """

    def __init__(
        self,
        server: TritonServer,
        mode: str,
        end_id: int,
        learning: Sequence[TokenPrompt] = (),
        tenant: str | None = None,
    ) -> None:
        """Take the server, which may start later. `Arm.parse` reads `mode`.

        If `mode` is `auto`, the server is first asked the prompts of `learning`, so that its
        controller learns. Arms that share a server each need a `tenant` of their own, so that they
        share neither cached prefixes nor the texts of `suffix`.
        """
        self._server = server
        arm = Arm.parse(mode)
        self._fields = {**arm.fields(), "tenant": tenant}
        self._learning = learning if arm.drafter == AUTO else ()
        self._end_id = end_id
        self._client: GrpcClient | None = None

    def start(self) -> str:
        """Connect, let the controller learn, and return our version. Raises PeerError."""
        self._client = GrpcClient(self._server.grpc_url)
        for prompt in self._learning:
            self.ask(Question((prompt.token_ids,), LEARNING_TOKENS))
        return f"specdec {__version__}"

    def ask(self, question: Question) -> Reply:
        """Stream all prompts at once, timed by the client. Raises PeerError if a request fails."""
        with ThreadPoolExecutor(len(question.prompts)) as pool:
            start_s = time.perf_counter()
            try:
                answers = tuple(
                    pool.map(lambda ids: self._answer(ids, question.max_tokens), question.prompts)
                )
            except SpecdecError as error:
                raise PeerError(f"{error}; log in {OURS}/{self._server.log_path.name}") from error
            seconds = time.perf_counter() - start_s
        return Reply(answers, seconds)

    def pause(self) -> None:
        """Do nothing: an idle server does not disturb others."""

    def resume(self) -> None:
        """Do nothing: the server was not paused."""

    def stop(self) -> None:
        """Disconnect."""
        if self._client is not None:
            self._client.close()

    def _answer(self, ids: tuple[int, ...], max_tokens: int) -> Answer:
        assert self._client is not None
        request = GenerationRequest(input_ids=list(ids), max_tokens=max_tokens, **self._fields)
        answer = ask(self._client, request)
        return Answer(without_end(answer.result.token_ids, self._end_id), answer.first_s)


class OurServer(OurArm):
    """An arm with a server of its own: another arm's cache would be an unfair advantage."""

    def __init__(
        self,
        model_repository: Path,
        mode: str,
        end_id: int,
        cache: Path,
        learning: Sequence[TokenPrompt] = (),
    ) -> None:
        """Prepare the server, whose log is written to `cache`."""
        self._scratch = tempfile.TemporaryDirectory(prefix="specdec.")
        self._source = self._repository = model_repository
        if Arm.parse(mode).model == COLOCATED:
            self._repository = Path(self._scratch.name) / COLOCATED
        server = TritonServer(self._repository, log_path=log_path(cache, mode))
        super().__init__(server, mode, end_id, learning)

    def start(self) -> str:
        """Start the server and return our version. Raises PeerError if it does not start."""
        try:
            if self._repository != self._source:
                colocate(self._source, self._repository)
            self._server.start()
        except (LaunchError, BuildError) as error:
            raise PeerError(" ".join(str(error).split())) from error
        return super().start()

    def stop(self) -> None:
        """Stop the server."""
        super().stop()
        self._server.stop()
        self._scratch.cleanup()


def log_path(cache: Path, name: str) -> Path:
    """Return the path of a server's log, in a folder that is made if it is missing."""
    directory = cache / OURS
    directory.mkdir(parents=True, exist_ok=True)
    return directory / f"{name}.log"
