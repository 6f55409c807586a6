"""Where the sidecar of a pod template makes its socket: its container's environment has the word.

As all of the environment, that beats `listen.unix` of the configuration's file.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from service.config.environment import WORDS, variable_of
from service.doctor.finding import Finding, Matter
from service.doctor.manifest import Manifest

VARIABLE = variable_of(("listen", "unix"))
IMAGE_SOCKET = Path("/run/sidelook/sidelook.sock")  # what the image sets the variable to


@dataclass(frozen=True, slots=True)
class ContainerSocket:
    """The socket, as far as the template tells it."""

    path: Path | None  # None: there is none, or its place stands elsewhere
    is_told: bool = True
    is_of_image: bool = False  # the template does not set the variable


def container_socket(sidecar: Manifest) -> ContainerSocket:
    """The last word on it: of variables that are set twice, Kubernetes takes the later one."""
    found = [each for each in sidecar.items("env") if each.text("name") == VARIABLE]
    if not found:
        return ContainerSocket(IMAGE_SOCKET, is_of_image=True)
    if found[-1].get("valueFrom") is not None:
        return ContainerSocket(None, is_told=False)
    text = WORDS.get(found[-1].text("value"), found[-1].text("value"))
    return ContainerSocket(Path(text) if isinstance(text, str) else None)


def override_findings(
    matter: Matter, socket: ContainerSocket, configured: Path | None
) -> Iterator[Finding]:
    """What executors that go by the configuration would not find; None: it names no socket."""
    if not socket.is_told:
        yield matter.skipped(
            f"{VARIABLE} is taken from elsewhere: where the socket is cannot be seen here",
            "give it a value in the template, or see that both containers mount its folder",
        )
    elif socket.is_of_image and configured not in {None, socket.path}:
        yield matter.warning(
            f"listen.unix of the configuration ({configured}) has no effect: {VARIABLE} of the "
            f"image is {socket.path}, and beats it",
            f"set listen.unix to {socket.path}, or {VARIABLE} to {configured} in the env of the "
            "container",
        )
