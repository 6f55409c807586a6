"""What the image must be like, as rules that no linter knows.

Each rule is a function named after what it demands; it is true when the Dockerfile obeys.
"""

import re
from collections.abc import Callable

from tests.image.dockerfile import ROOT, Dockerfile

LOCK_FILE = "requirements/service.txt"


def bases_are_one_pinned_image(dockerfile: Dockerfile) -> bool:
    """All stages start from the same image of a fixed version."""
    (base,) = (each for each in dockerfile.of("ARG") if not each.stage)
    image = base.variables().get("PYTHON_IMAGE", "")
    bases = {each.value.split()[0] for each in dockerfile.of("FROM")}
    return bases == {"${PYTHON_IMAGE}"} and bool(
        re.fullmatch(r"python:3\.11(\.\d+)?-slim.*", image)
    )


def user_is_not_root(dockerfile: Dockerfile) -> bool:
    """Numeric, because Kubernetes' runAsNonRoot cannot look names up; the template's ids."""
    return dockerfile.last("USER").value == "185:185"


def packages_come_from_the_lock_file(dockerfile: Dockerfile) -> bool:
    """Every installation checks hashes, builds nothing, and names nothing but the lock file."""
    installations = [each.value for each in dockerfile.of("RUN") if "pip install" in each.value]
    demanded = ("--require-hashes", "--only-binary=:all:", f"-r {LOCK_FILE}")
    return bool(installations) and all(
        all(part in installation for part in demanded) for installation in installations
    )


def only_the_service_is_copied(dockerfile: Dockerfile) -> bool:
    """The client, the demo and the tests stay out, and so does all that the service never reads."""
    of_service = {"lookup_core", "service", "examples", "pyproject.toml"}
    return dockerfile.copied_from_tree() == {LOCK_FILE, *of_service}


def what_is_copied_exists(dockerfile: Dockerfile) -> bool:
    """No path of the tree is misspelt."""
    return all((ROOT / path).exists() for path in dockerfile.copied_from_tree())


def nothing_is_fetched_by_url(dockerfile: Dockerfile) -> bool:
    """ADD would fetch without a check."""
    return not dockerfile.of("ADD")


def entry_point_is_the_service(dockerfile: Dockerfile) -> bool:
    """In exec form: a shell would keep SIGTERM to itself."""
    entry_point = dockerfile.last("ENTRYPOINT").arguments()
    return entry_point == ["python", "-m", "service"] and (
        dockerfile.last("CMD").value == '["serve"]'
        and dockerfile.last("ENTRYPOINT").value[0] == "["
    )


def stop_signal_drains(dockerfile: Dockerfile) -> bool:
    """SIGTERM is what the service drains on."""
    return dockerfile.last("STOPSIGNAL").value == "SIGTERM"


def health_check_asks_for_life_only(dockerfile: Dockerfile) -> bool:
    """It asks the health port's `/livez`, with nothing that a slim image lacks."""
    _, _, command = dockerfile.last("HEALTHCHECK").value.partition("CMD ")
    return command.startswith('["python", "-c"') and "127.0.0.1:8816/livez" in command


def code_writes_no_bytecode(dockerfile: Dockerfile) -> bool:
    """The root file system is read-only, so the build compiles and the run does not."""
    variables = dockerfile.last("ENV").variables()
    is_compiled = any("compileall" in each.value for each in dockerfile.of("RUN", stage="build"))
    return variables.get("PYTHONDONTWRITEBYTECODE") == "1" and is_compiled


def socket_lies_in_the_shared_folder(dockerfile: Dockerfile) -> bool:
    """Where the pod's volume is mounted, and where user 185 may write."""
    variables = dockerfile.last("ENV").variables()
    made = [each.value for each in dockerfile.of("RUN", stage="run")]
    return variables.get("SIDELOOK_LISTEN__UNIX") == "/run/sidelook/sidelook.sock" and any(
        "--owner=185 --group=185 --mode=0770 /run/sidelook" in each for each in made
    )


RULES: list[Callable[[Dockerfile], bool]] = [
    bases_are_one_pinned_image,
    user_is_not_root,
    packages_come_from_the_lock_file,
    only_the_service_is_copied,
    what_is_copied_exists,
    nothing_is_fetched_by_url,
    entry_point_is_the_service,
    stop_signal_drains,
    health_check_asks_for_life_only,
    code_writes_no_bytecode,
    socket_lies_in_the_shared_folder,
]


def broken_rules(dockerfile: Dockerfile) -> list[str]:
    """The names of all rules that the Dockerfile breaks."""
    return [rule.__name__ for rule in RULES if not rule(dockerfile)]
