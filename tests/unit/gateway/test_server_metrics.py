"""The load of the server on the gateway's metrics page, for proxies that spread requests."""

import http.server
import threading
from contextlib import ExitStack, contextmanager

from specdec.gateway.server_metrics import load_page
from tests.unit.gateway.conftest import greeting, running
from tests.waiting import wait_for

PAGE = """\
# HELP specdec_inflight_requests Requests in flight
# TYPE specdec_inflight_requests gauge
specdec_inflight_requests{model="specdec",version="1"} 5
specdec_inflight_requests{model="other",version="1"} 2
specdec_inflight_limit{model="specdec",version="1"} 64
specdec_waiting_requests{model="target",version="1"} 3
specdec_kv_cache_usage{model="target",version="1"} 0.5
specdec_kv_cache_usage{model="draft",version="1"} 0.25
nv_inference_request_success{model="specdec",version="1"} 7
"""
COMPILED = """\
specdec_inflight_requests{model="specdec",version="1"} 5
nv_trt_llm_request_metrics{model="target",request_type="waiting",version="1"} 4
nv_trt_llm_request_metrics{model="target",request_type="active",version="1"} 9
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="target",version="1"} 0.75
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="target",version="1"} 900
"""


def values(page):
    """Return the values of a page by name."""
    lines = [line for line in page.decode().splitlines() if line.startswith("specdec_server_")]
    return {line.split(" ")[0]: float(line.split(" ")[1]) for line in lines}


def server_values(num_running, num_waiting, usage):
    """Return the values that a page should have."""
    return {
        "specdec_server_running_requests": num_running,
        "specdec_server_waiting_requests": num_waiting,
        "specdec_server_kv_cache_usage": usage,
    }


@contextmanager
def page_at(text):
    """Serve a page, and yield its address."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/metrics"
        server.shutdown()


def test_requests_add_up_and_the_fullest_engine_counts():
    """Over all models of the server, and without its other metrics."""
    assert values(load_page(PAGE)) == server_values(7, 3, 0.5)


def test_compiled_engines_tell_it_in_nvidias_names():
    """Their waiting requests and their share of used blocks count too."""
    assert values(load_page(COMPILED)) == server_values(5, 4, 0.75)


def test_a_proxy_finds_the_load_on_the_port_that_takes_requests():
    """It stands beside the gateway's own metrics."""
    with page_at(PAGE) as url, running(greeting, metrics_url=url) as gateway:
        page = gateway.ask("/metrics").body
        assert values(page) == server_values(7, 3, 0.5)
        assert b"specdec_gateway_running_requests" in page


def test_a_server_that_no_longer_answers_has_no_load():
    """Its values are left out, rather than old ones shown."""
    with page_at(PAGE) as url:
        gateway = ExitStack()
        own = gateway.enter_context(running(greeting, metrics_url=url))
        assert values(own.ask("/metrics").body)
    with gateway:
        wait_for(lambda: values(own.ask("/metrics").body) == {})
        assert own.ask("/metrics").status == 200
