"""A built image: its root file system, and what its Dockerfile says about running it.

How it was built is `image_build`'s part.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.image.container import Container
from tests.image.dockerfile import Dockerfile

BASE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Image:
    """What an engine would run."""

    root: Path
    dockerfile: Dockerfile

    @property
    def environ(self) -> dict[str, str]:
        """The image's variables."""
        variables = self.dockerfile.last("ENV").variables()
        return {**variables, "PATH": variables["PATH"].replace("$PATH", BASE_PATH)}

    @property
    def health_check(self) -> list[str]:
        """The command of the HEALTHCHECK."""
        command: list[str] = json.loads(
            self.dockerfile.last("HEALTHCHECK").value.partition("CMD ")[2]
        )
        return command

    def container(self, arguments: Sequence[str] = ()) -> Container:
        """The entry point with these arguments, or the image's own, as the image's user."""
        entry_point = self.dockerfile.last("ENTRYPOINT").arguments()
        user, group = map(int, self.dockerfile.last("USER").value.split(":"))
        return Container(
            self.root,
            [*entry_point, *(arguments or self.dockerfile.last("CMD").arguments())],
            environ=self.environ,
            folder=self.dockerfile.last("WORKDIR").value,
            user=user,
            group=group,
        )

    def megabytes(self, path: str = "") -> float:
        """What all files below a path of the image take, in 10⁶ bytes."""
        files = (self.root / path).rglob("*")
        return sum(each.lstat().st_size for each in files if not each.is_dir()) / 1e6
