"""The lock under which guides are compiled goes from tenant to tenant."""

import threading
from contextlib import suppress

from specdec.constraints.fair_lock import FairLock
from tests.waiting import wait_for

WITHIN_S = 5.0


def test_tenants_take_turns_however_many_threads_wait():
    """The first tenant has ten threads waiting, and the others get the lock after one of them."""
    lock, order, threads = FairLock(), [], []
    tenants = [*(10 * ["many"]), "one", "other", "one"]

    def take(tenant):
        with lock.held(tenant):
            order.append(tenant)

    with lock.held("first"):
        for number, tenant in enumerate(tenants, start=1):
            threads.append(threading.Thread(target=take, args=(tenant,)))
            threads[-1].start()
            wait_for(
                lambda wanted=number: sum(map(len, lock._waiting.values())) == wanted, WITHIN_S
            )
    for thread in threads:
        thread.join(WITHIN_S)
    assert order == ["many", "one", "other", "many", "one", *(8 * ["many"])]


def test_only_one_thread_holds_it():
    """An error in its block releases it."""
    lock, held, most = FairLock(), [], []

    def take(number):
        with suppress(ZeroDivisionError), lock.held(str(number % 3)):
            held.append(number)
            most.append(len(held))
            held.remove(number)
            _ = number / 0

    threads = [threading.Thread(target=take, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN_S)
    assert (len(most), max(most)) == (30, 1)
