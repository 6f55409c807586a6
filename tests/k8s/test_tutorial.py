"""The tutorial on Kubernetes shows commands of k8s/README.md, which `make cluster` runs."""

from pathlib import Path

from tests.docs.pages.blocks import ROOT, blocks_of
from tools.cluster.page import PAGE

TUTORIAL = ROOT / "docs" / "tutorials" / "kubernetes.md"
IMAGES = ("make image", "docker ", "sed ")  # commands before the cluster is needed


def commands_of(page: Path) -> set[str]:
    """The commands of the page, each as one line."""
    texts = [block.text for block in blocks_of(page) if block.language == "sh"]
    joined = "".join(texts).replace("\\\n", " ")
    return {" ".join(line.split()) for line in joined.splitlines()}


def test_tutorial_has_the_commands_of_the_page() -> None:
    """Each command is one of k8s/README.md, except for those that build images."""
    shown = {each for each in commands_of(TUTORIAL) if not each.startswith(IMAGES)}

    assert shown
    assert shown <= commands_of(PAGE)
