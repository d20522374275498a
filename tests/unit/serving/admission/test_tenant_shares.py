"""A tenant that floods the server leaves slots for the others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.errors import OverloadedError
from specdec.serving.admission.tenant_shares import TENANTS_COUNT_FOR_S, TenantShares

NUM_SLOTS = 64


class Clock:
    """A clock that the test moves."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def shares(max_share=0.75, num_slots=NUM_SLOTS):
    """Return the shares with all slots free, and their clock."""
    clock = Clock()
    return TenantShares(num_slots, max_share, clock), clock


def num_entered(tenant_slots, tenant, count=NUM_SLOTS):
    """Ask for a slot `count` times; return how often one was given."""
    entered = 0
    for _ in range(count):
        try:
            tenant_slots.enter(tenant)
        except OverloadedError:
            continue
        entered += 1
    return entered


def test_server_without_tenants_has_no_bound():
    """All slots can be taken, and the error gives the limit."""
    tenant_slots, _ = shares()
    assert num_entered(tenant_slots, None) == NUM_SLOTS
    with pytest.raises(OverloadedError, match="64 requests are in flight; the limit is 64"):
        tenant_slots.enter(None)


def test_flood_of_a_tenant_leaves_a_quarter_to_others():
    """They are left even before another tenant asks, because answers may run for long."""
    tenant_slots, _ = shares()
    assert num_entered(tenant_slots, "a") == 48
    with pytest.raises(OverloadedError, match="48 requests of tenant 'a' are in flight"):
        tenant_slots.enter("a")
    assert num_entered(tenant_slots, "b", 10) == 10


def test_flood_without_a_tenant_is_bounded_while_tenants_ask():
    """Requests without a tenant then count as those of one tenant; later their bound ends."""
    tenant_slots, clock = shares()
    tenant_slots.enter("b")
    tenant_slots.leave("b")
    assert num_entered(tenant_slots, None) == 48
    with pytest.raises(OverloadedError, match="48 requests without a tenant are in flight"):
        tenant_slots.enter(None)
    clock.now_s += TENANTS_COUNT_FOR_S

    assert num_entered(tenant_slots, None) == 16


@given(num_tenants=st.integers(1, 8), max_share=st.floats(0.3, 0.9), draw=st.randoms())
@settings(max_examples=20)
def test_new_tenant_gets_a_slot_however_many_flood(num_tenants, max_share, draw):
    """It gets one after the answers that filled the server first have ended, one after another."""
    tenant_slots, _ = shares(max_share)
    tenants = [str(number) for number in range(num_tenants)]
    running = []
    for _ in range(150):
        for tenant in draw.sample(tenants, num_tenants):
            running += [tenant] * num_entered(tenant_slots, tenant, 1)
        tenant_slots.leave(running.pop(draw.randrange(len(running))))

    tenant_slots.enter("newcomer")


def test_slot_given_back_can_be_taken_again():
    """The bound counts the slots that a tenant holds now."""
    tenant_slots, _ = shares()
    tenant_slots.enter("b")
    assert num_entered(tenant_slots, "a") > 0
    tenant_slots.leave("a")
    tenant_slots.enter("a")
    tenant_slots.leave("b")


def test_share_of_one_sets_no_bound():
    """A `max_share` of 1 turns the bound off."""
    tenant_slots, _ = shares(1.0)
    tenant_slots.enter("b")
    assert num_entered(tenant_slots, "a") == NUM_SLOTS - 1


def test_small_limit_still_serves_everyone():
    """With few slots the multiple of the free ones is below one, but a tenant still gets one."""
    tenant_slots, _ = shares(0.1, num_slots=2)
    tenant_slots.enter("b")
    tenant_slots.enter("a")
