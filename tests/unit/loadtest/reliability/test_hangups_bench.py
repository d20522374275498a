"""Tests of the verdict of `specdec bench reliability hangups` on counts and on leaks."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from specdec.loadtest.reliability.kit import hangup_ways, lasting_load
from specdec.loadtest.reliability.kit.asking import WHOLE
from specdec.loadtest.reliability.kit.hangup_ways import Moment, Way
from specdec.loadtest.reliability.kit.resources import Resources, outcomes_on
from specdec.loadtest.reliability.scenarios import hangups


def samples(**growth):
    """Return half an hour of samples; `growth` is what each figure gains in an hour."""
    times_s = range(0, 1800, 10)
    names = ("rss_mb", "num_fds", "num_threads", "shm_mb")
    return [
        Resources(t, **{name: 100 + growth.get(name, 0.0) * t / 3600 for name in names})
        for t in times_s
    ]


class TestHangups:
    """Tests of the verdicts on the hang-ups and on the load after them."""

    def counts(self, ways=tuple(Way), moments=tuple(Moment), **outcomes):
        """Return counts with one hang-up for each way and moment, and the server's `outcomes`."""
        by_client = Counter({(way, moment): 1 for way in ways for moment in moments})
        return hangups.Hangups(by_client, Counter(outcomes or {"cancelled": 100, "ok": 2}))

    @pytest.mark.parametrize(
        "change",
        [
            {"ways": tuple(Way)[:-1]},
            {"moments": tuple(Moment)[1:]},
            {"cancelled": 99},
            {"cancelled": 100, "internal": 1},
        ],
    )
    def test_every_way_and_moment_and_the_servers_count_matter(self, change):
        """A missing way, moment or cancelled request fails the bench, as does another outcome."""
        assert hangups.hangups_row(self.counts(), 100, 0, []).is_met
        assert not hangups.hangups_row(self.counts(**change), 100, 0, []).is_met

    @pytest.mark.parametrize("name", lasting_load.MAX_SLOPES)
    def test_only_growth_is_a_leak(self, name):
        """Growth beyond a figure's limit fails the bench; a shrinking figure does not."""
        grows, shrinks = samples(**{name: 60.0}), samples(**{name: -60.0})

        assert not lasting_load.load_row([WHOLE], grows, 0, []).is_met
        assert lasting_load.load_row([WHOLE], shrinks, 0, []).is_met

    def test_a_cut_answer_or_no_answer_under_load_fails_the_bench(self):
        """All answers under load must be whole, and there must be some."""
        assert not lasting_load.load_row([WHOLE, "ended without reason"], samples(), 0, []).is_met
        assert not lasting_load.load_row([], samples(), 0, []).is_met

    @pytest.mark.parametrize("moment", Moment)
    def test_a_failed_request_does_not_count(self, moment):
        """A request that failed before the client hung up is no hang-up."""

        async def fail():
            return None

        answering = hangup_ways.plan(moment, random.Random(0))

        assert not asyncio.run(hangup_ways.comes_to_moment(fail, answering))

    def test_reads_the_servers_count_from_the_metrics_page(self):
        """Requests are read by outcome; the order of labels and other metrics do not matter."""
        page = (
            'specdec_requests_total{model="specdec",version="1",outcome="cancelled"} 5.0\n'
            'specdec_requests_total{outcome="ok",model="specdec"} 1e+00\n'
            "specdec_inflight_requests 3\n"
        )

        assert outcomes_on(page) == {"cancelled": 5, "ok": 1}
