"""Rehearsed faults: what may be asked for, and what happens then."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.worker.rehearsal import (
    FAULT_SYNTAX,
    MAX_SLOW_MS,
    Fault,
    FaultName,
    Rehearsal,
    parse_fault,
    spoil,
)

PLAIN = [name for name in FaultName if name is not FaultName.SLOW]


@pytest.mark.parametrize("name", PLAIN)
def test_names_are_faults(name: FaultName) -> None:
    """Every fault of the list is known by its name, and takes no value."""
    assert parse_fault(name.value) == Fault(name)
    assert parse_fault(f"{name.value}=1") is None
    assert parse_fault(f"{name.value}=") is None
    assert name.value in FAULT_SYNTAX


@pytest.mark.parametrize(
    "text,fault",
    [
        ("slow=0", Fault(FaultName.SLOW, 0.0)),
        ("slow=1500", Fault(FaultName.SLOW, 1.5)),
        (f"slow={MAX_SLOW_MS}", Fault(FaultName.SLOW, MAX_SLOW_MS / 1000)),
        (f"slow={MAX_SLOW_MS + 1}", None),
        ("slow=" + "9" * 5000, None),
        ("slow", None),
        ("slow=", None),
        ("slow=-1", None),
        ("slow=1.5", None),
        ("slow=1 ", None),
        ("slow=²", None),
        ("slow=nan", None),
        ("Hang", None),
        ("explode", None),
        ("", None),
    ],
)
def test_slow_takes_whole_milliseconds(text: str, fault: Fault | None) -> None:
    """``slow`` needs its milliseconds, inside ten minutes; other words are no faults."""
    assert parse_fault(text) == fault


@given(st.text())
def test_any_text_is_a_fault_or_none(text: str) -> None:
    """No header value makes the check raise."""
    parse_fault(text)


def acted(*faults: str, rehearsal: Rehearsal | None = None) -> list[float]:
    """Act out a batch; returns the seconds slept."""
    slept: list[float] = []
    rehearsal = rehearsal or Rehearsal(sleep=slept.append)
    rehearsal.act([(parse_fault(fault), f"text {fault}") for fault in faults])
    return slept


def test_slow_items_add_up() -> None:
    """Slow items of one batch take as long together as one by one."""
    assert acted("slow=100", "", "slow=250") == [0.35]
    assert acted("", "") == []


def test_raise_quotes_its_own_input() -> None:
    """The exception quotes the input of the item that asked, as a library's would."""
    with pytest.raises(RuntimeError, match="text raise"):
        acted("", "raise")


def test_oom_needs_company() -> None:
    """``oom`` goes away when the item runs alone, ``oom-always`` does not."""
    with pytest.raises(MemoryError):
        acted("oom", "")
    assert acted("oom") == []
    with pytest.raises(MemoryError):
        acted("oom-always")


def test_lost_device_stays_lost() -> None:
    """After a lost device every later batch and canary fails with the device's error."""
    rehearsal = Rehearsal()
    rehearsal.check_device()
    for faults in (["device-lost"], [""]):
        with pytest.raises(RuntimeError, match="device-side assert"):
            acted(*faults, rehearsal=rehearsal)
    with pytest.raises(RuntimeError, match="device-side assert"):
        rehearsal.check_device()


def test_spoiled_numbers_are_nan() -> None:
    """Every number of an answer becomes NaN; words and truth values stay."""
    spoiled = spoil([{"score": 0.5, "token": 7, "text": "x", "yes": True, "none": None}])
    assert math.isnan(spoiled[0].pop("score"))
    assert math.isnan(spoiled[0].pop("token"))
    assert spoiled == [{"text": "x", "yes": True, "none": None}]
