"""Volumes have the contents, modes and owners that a kubelet gives them."""

import os
from pathlib import Path

import pytest

from tests.k8s.manifests import Manifest
from tests.rehearsal.pod_volumes import PodVolumes, byte_count
from tests.rehearsal.steps import StepFailed

SECRET = {"name": "dsn", "secret": {"secretName": "database", "defaultMode": 0o400}}


def volumes(folder: Path, group: int | None) -> PodVolumes:
    """The cluster holds one secret."""
    return PodVolumes(folder, group, {}, {"database": {"dsn": "postgresql://"}})


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [("512Mi", 512 * 2**20), ("1Gi", 2**30), ("1024", 1024), (1024, 1024)],
)
def test_quantity_is_a_number_of_bytes(quantity: str | int, expected: int) -> None:
    """With a unit of powers of two, or none."""
    assert byte_count(quantity) == expected


@pytest.mark.parametrize("quantity", ["1G", "1.5Gi", "many"])
def test_other_quantities_are_refused(quantity: str) -> None:
    """What is not understood stops the rehearsal and is not guessed."""
    with pytest.raises(StepFailed, match="unit that is not rehearsed"):
        byte_count(quantity)


@pytest.mark.parametrize(("group", "mode"), [(None, 0o400), (os.getgid(), 0o440)])
def test_group_of_the_pod_may_read_its_secrets(
    tmp_path: Path, group: int | None, mode: int
) -> None:
    """With an fsGroup the file is the group's, too; without one it is as its mode says."""
    made = volumes(tmp_path / "volumes", group)

    made.make([SECRET])

    file = made.path("dsn") / "dsn"
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("postgresql://", mode)


@pytest.mark.parametrize(
    ("volume", "reason"),
    [
        ({"secret": {"secretName": "other"}}, "the cluster holds no 'other', only database"),
        ({"hostPath": {}}, "of a kind that is not rehearsed"),
    ],
    ids=["unknown secret", "unknown kind"],
)
def test_volume_that_cannot_be_made_is_told(tmp_path: Path, volume: Manifest, reason: str) -> None:
    """With what is missing."""
    with pytest.raises(StepFailed, match=reason):
        volumes(tmp_path / "volumes", None).make([{"name": "any", **volume}])
