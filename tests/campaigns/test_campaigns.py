"""Saves that go wrong at any request, and saves that are killed: a sample, another one every day.

After each case: what said that it saved has saved; what failed has left the checkpoint that was
there; what is there loads whole, by us and by torch, and `latest` finds it; and `headrace clean`
leaves nothing but the checkpoint. A case that fails is named, and run alone by

    .venv/bin/python -m tests.campaigns --case "save/7/reset/once"

``HEADRACE_CAMPAIGN_SEED`` repeats a day's sample. ``make soak`` runs all cases.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace
import headrace.checkpoint
from tests.campaigns.campaign import NEW, BrokenPromiseError, Campaign
from tests.campaigns.cases import FAULTS, Case, all_cases, sample, seed_of_today, shares
from tests.campaigns.flips import flip_folder
from tests.campaigns.kills import Kill, kills, run_kill
from tests.campaigns.ways import NAME, WAYS, Place, save_file

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
    pytest.mark.timeout(720),
]

ONE_ATTEMPT = headrace.RetryOptions(max_attempts=1)
SEED = seed_of_today()
# By scheme. Most of what is tried is the same on all stores, so one store has most of the sample.
FAULTS_OF = {"gs": 80, "s3": 8, "ais": 8}
KILLS_OF = {"gs": 8, "s3": 2, "ais": 2}
NAMES = {scheme: [n for n, way in WAYS.items() if way.scheme == scheme] for scheme in FAULTS_OF}
NAMES_OF = {
    "gs": NAMES["gs"],
    **{scheme: random.Random(SEED).sample(NAMES[scheme], 4) for scheme in ("s3", "ais")},
}
FAULT_SHARES = {
    name: count
    for scheme, names in NAMES_OF.items()
    for name, count in shares(
        {name: WAYS[name].weight for name in names}, FAULTS_OF[scheme]
    ).items()
}


def kills_of(scheme: str) -> list[Kill]:
    # torch's process that saves imports torch anew for each kill: `make soak` kills it.
    names = [name for name in NAMES[scheme] if not WAYS[name].saves_in_helper]
    chosen = random.Random(SEED).sample(names, KILLS_OF[scheme])
    return [next(kills(WAYS[name], 1, SEED)) for name in chosen]


SAMPLE_OF_KILLS = [kill for scheme in KILLS_OF for kill in kills_of(scheme)]


def test_shares_of_a_sample_are_all_of_it() -> None:
    assert sum(FAULT_SHARES.values()) == sum(FAULTS_OF.values())
    assert min(FAULT_SHARES.values()) > 0
    assert shares({"a": 1, "b": 2}, 7) == {"a": 2, "b": 5}


def test_a_sample_is_the_seeds() -> None:
    assert sample("save", 11, 5, 1) == sample("save", 11, 5, 1)
    assert sample("save", 11, 5, 1) != sample("save", 11, 5, 2)
    assert len(set(sample("save", 1, 1000, 1))) == 2 * len(FAULTS)


def test_a_name_says_all_of_a_case() -> None:
    for case in all_cases("dcp, threads 4", 3):
        assert Case.named(str(case)) == case
    assert Kill.named("dcp, ranks 2/kill/17") == Kill("dcp, ranks 2", 17)
    for wrong in ("save/1/reset/twice", "save/1/sunshine/once", "save/x/reset/once"):
        with pytest.raises(ValueError, match=r"called way/position/fault|invalid literal"):
            Case.named(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("way", FAULT_SHARES)
def test_a_save_that_goes_wrong_keeps_its_promises(campaign: Campaign, way: str) -> None:
    requests, _ = campaign.clean_run(WAYS[way])
    cases = sample(way, requests, FAULT_SHARES[way], SEED)
    print(f"HEADRACE_CAMPAIGN_SEED={SEED}:", *cases, sep="\n")
    outcomes = campaign.run(cases)
    assert [outcome.name for outcome in outcomes] == [str(case) for case in cases]


@pytest.mark.slow
@pytest.mark.parametrize("kill", SAMPLE_OF_KILLS, ids=str)
def test_a_save_that_is_killed_leaves_a_whole_checkpoint(campaign: Campaign, kill: Kill) -> None:
    outcome = run_kill(campaign, kill)
    assert outcome.found == NEW or not outcome.saved


@pytest.mark.parametrize("partial", [False, True], ids=["all", "one tensor"])
def test_a_flipped_bit_in_a_folder_of_ours_is_seen(tmp_path: Path, partial: bool) -> None:
    detected, harmless = flip_folder(tmp_path, 200, SEED, partial=partial)
    assert detected + harmless == 200
    # Harmless is what is not read then: the other tensors.
    assert harmless == 0 if not partial else detected > 20


# ---- the judge


def lies(place: Place, state: Any) -> None:
    if state["step"] != NEW:
        save_file(place, state)


def breaks_what_was_there(place: Place, state: Any) -> None:
    save_file(place, state)
    if state["step"] == NEW:
        place.store.write(NAME, place.store.read(NAME).bytes()[:-1])
        raise OSError("the rest could not be written")


def saves_and_says_no(place: Place, state: Any) -> None:
    save_file(place, state)
    if state["step"] == NEW:
        raise OSError("it could not be written")


def litters(place: Place, state: Any) -> None:
    save_file(place, state)
    place.store.write("run/litter", b"")


def gives_up_at_once(place: Place, state: Any) -> None:
    store = headrace.Store(place.store.url, endpoint=place.endpoint, retry=ONE_ATTEMPT)
    headrace.checkpoint.save(state, NAME, store=store)


@pytest.mark.parametrize(
    ("save", "told"),
    [
        (lies, "false success"),
        (breaks_what_was_there, "neither checkpoint loads: CorruptDataError"),
        (saves_and_says_no, "it is there, but the save said: OSError"),
        (litters, r"`headrace clean` leaves \['run/litter'\]"),
        (gives_up_at_once, "what comes once should be cured: UnavailableError"),
    ],
)
def test_a_promise_that_is_not_kept_is_told(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch, save: Any, told: str
) -> None:
    way = replace(WAYS["save"], name=save.__name__, save=save)
    monkeypatch.setitem(WAYS, way.name, way)
    with pytest.raises(
        BrokenPromiseError, match=rf"^1 of 1 cases\n{way.name}/1/500/once: .*{told}"
    ):
        campaign.run([Case(way.name, 1, "500", lasting=False)])
