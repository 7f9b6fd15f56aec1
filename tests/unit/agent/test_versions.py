"""Nodes that can't work with this one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from carla_td3.cluster import versions
from carla_td3.cluster.versions import Versions

HERE = Versions("3.11.7", "2.60.0", "abc")


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (HERE, ""),
        (
            replace(HERE, python="3.12.1"),
            "Node worker-1 of the cluster has python 3.12.1 (here 3.11.7): install the same there as here.",
        ),
        (
            replace(HERE, ray="2.9.0", project="def"),
            "Node worker-1 of the cluster has ray 2.9.0 (here 2.60.0) and project def (here abc): install the same "
            "there as here.",
        ),
    ],
)
def test_a_node_with_other_versions_is_refused_in_one_sentence(there: Versions, says: str) -> None:
    assert HERE.refusal(there, "worker-1") == says


def test_this_process_can_work_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "version", lambda _: "2.60.0")
    here = Versions.here()
    assert here.refusal(Versions.here(), "itself") == ""
    assert len(here.project) == 12
