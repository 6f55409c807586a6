"""Whole configuration: its sections, limits, and the rules between sections."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from service.config.dimension import DimensionConfig
from service.config.fault_lines import BELOW
from service.config.listen import Listen
from service.config.quantity import count, size, size_text
from service.config.secrets import OneLineSecret
from service.config.section import Given, Section, rule, written
from service.config.source import PostgresSource
from service.config.tracing import Tracing
from service.file_identity import read_secret

MAX_NAME_CHARACTERS = 63
NAME_FORM = r"[A-Za-z0-9](_?[A-Za-z0-9.-])*"  # variables use two underscores as separator


class Limits(Section):
    """Limits of memory, connections, channels and requests."""

    memory_bytes: Annotated[int, size("16MiB", "1TiB"), Field(alias="memory")] = written("512MiB")
    """Memory for lookups, answers and caches, without the process itself. All caches together get
    half of it."""
    connections: Annotated[int, count(1, 65_535)] = 256
    """Maximum number of requests that a listener serves at the same time, streams included. More
    requests fail with `overloaded`."""
    database_connections: Annotated[int, count(1, 1000)] = 4
    """Maximum number of connections to each database. Dimensions with the same address share them.
    A feed by notifications needs one more connection, and a running load of a full table five."""
    channels: Annotated[int, count(1, 1_000_000)] = 1024
    """Maximum number of open channels. A Spark task has one for each lookup."""
    request_keys: Annotated[int, count(1, 10_000_000)] = 100_000
    """Maximum number of keys in an HTTP request. More keys fail with `too_many_keys`."""
    request_bytes: Annotated[int, size("1KiB", "1GiB")] = written("32MiB")
    """Maximum size of the body of an HTTP request; at most `limits.memory`."""
    row_bytes: Annotated[int, size("64KiB", "1GiB")] = written("8MiB")
    """Maximum size of a row, or of all rows of a key with `match` or `versions`. A larger row fails
    its key with `row_too_large`. Arrays and structs count eight times. At most an eighth of
    `limits.memory`."""

    @model_validator(mode="after")
    def _fits_into_memory(self) -> Self:
        # A default does not contradict a small memory.
        written_keys = self.model_fields_set
        if "request_bytes" in written_keys and self.request_bytes > self.memory_bytes:
            raise ValueError("request_bytes is more than memory; lower it, or raise memory")
        if "row_bytes" in written_keys and self.row_bytes > self.memory_bytes // 8:
            raise ValueError(
                "row_bytes is more than an eighth of memory, which all answers share; "
                f"lower it, or raise memory to {size_text(8 * self.row_bytes)}"
            )
        return self


class Auth(Section):
    """Files with one bearer token each. Other users must not be able to read them."""

    token_file: OneLineSecret | None = None
    """File with the token of all requests except probes. `null`: no token is required."""
    admin_token_file: OneLineSecret | None = None
    """File with the token of requests that change the cache, another one than that of `token_file`.
    `null`: only root and the user of the sidecar may send them, over the Unix socket."""

    @rule("admin_token_file")
    def _is_another_token(cls, path: Path | None, given: Given) -> None:
        of_readers = given.get("token_file")
        if path and of_readers and read_secret(path) == read_secret(of_readers):
            raise ValueError(
                f"{path} has the same token as token_file: each reader could change the cache; "
                "write another token"
            )


def check_dimension_name(name: str) -> str:
    """Return the name; raises ValueError if it fits no URL or variable."""
    if len(name) > MAX_NAME_CHARACTERS or not re.fullmatch(NAME_FORM, name, re.ASCII):
        raise ValueError(
            f"is not a valid name: up to {MAX_NAME_CHARACTERS} letters, digits, '.', '-' and "
            "single '_' between them"
        )
    return name


DimensionName = Annotated[str, AfterValidator(check_dimension_name)]


def fitting_dimension(dimension: DimensionConfig, info: ValidationInfo) -> DimensionConfig:
    """Return the dimension; raises PydanticCustomError if its cache exceeds the memory."""
    limits, cache = info.data.get("limits"), dimension.cache
    is_written = "max_bytes" in cache.model_fields_set
    if limits is None or not is_written or cache.max_bytes <= limits.memory_bytes:
        return dimension
    sizes = (cache.max_bytes, limits.memory_bytes, 2 * cache.max_bytes)
    wanted, memory, enough = map(size_text, sizes)
    raise PydanticCustomError(
        "too_large",
        "{wanted} is more than limits.memory ({memory}), of which all caches get half; "
        "raise limits.memory to {enough}, or lower max_bytes",
        {"wanted": wanted, "memory": memory, "enough": enough, BELOW: ("cache", "max_bytes")},
    )


FittingDimension = Annotated[DimensionConfig, AfterValidator(fitting_dimension)]


def shared_channel(dimensions: Mapping[str, DimensionConfig]) -> tuple[str, str] | None:
    """Return two dimensions with one channel, the later one first; None without a conflict.

    Dimensions with the same table and key may share a channel. Each server has its own channels.
    """
    owners: dict[object, tuple[str, object]] = {}  # {server and channel: (name, table and key)}
    for name, dimension in dimensions.items():
        source, listen = dimension.source, dimension.refresh.listen
        if listen is None or not isinstance(source, PostgresSource):
            continue
        channel = (source.dsn, source.dsn_file, listen.channel_of(name))
        owner, keys = owners.setdefault(channel, (name, (source.table, dimension.key)))
        if keys != (source.table, dimension.key):
            return name, owner
    return None


def missing_protection(listen: Listen, auth: Auth) -> str | None:
    """Return the settings that an exposed listener still needs; None if it needs none."""
    http, tls = listen.http, listen.tls
    if http is None or http.is_loopback:
        return None
    if tls is not None and (tls.client_ca_file is not None or auth.token_file is not None):
        return None
    if tls is not None:
        return "auth.token_file, or listen.tls.client_ca_file"
    if auth.token_file is not None:
        return "listen.tls"
    return "listen.tls and auth.token_file, or listen.tls with client_ca_file"


class Settings(Section):
    """Configuration of a sidecar."""

    model_config = ConfigDict(title="Sidelook's configuration")

    auth: Auth = Field(default_factory=Auth)  # before `listen`, whose validator uses it
    listen: Listen = Field(default_factory=Listen)
    limits: Limits = Field(default_factory=Limits, examples=[{"memory": "512MiB"}])
    tracing: Tracing = Field(default_factory=Tracing)
    allow_inline_secrets: bool = Field(default=False, strict=True)
    """Whether a `dsn` in the configuration file may contain a password."""
    dimensions: dict[DimensionName, FittingDimension] = Field(min_length=1)
    """The dimensions by name. A name has up to 63 letters, digits, `.`, `-` and single `_`."""

    @rule("listen")
    def _is_protected(cls, listen: Listen, given: Given) -> None:
        auth = given.get("auth")
        missing = None if auth is None else missing_protection(listen, auth)
        if missing is not None:
            raise PydanticCustomError(
                "exposed_listener",
                "{http} is reachable from other machines; set {missing}, or listen on 127.0.0.1",
                {"http": str(listen.http), "missing": missing, BELOW: ("http",)},
            )

    @rule("dimensions")
    def _have_own_channels(cls, dimensions: dict[str, FittingDimension], _given: Given) -> None:
        shared = shared_channel(dimensions)
        if shared is None:
            return
        name, owner = shared
        raise PydanticCustomError(
            "shared_channel",
            "is also the channel of dimension {owner}, which has another table or key; set another",
            {"owner": owner, BELOW: (name, "refresh", "listen", "channel")},
        )

    def __init__(self, *layers: Mapping[str, Any], folder: Path | None = None) -> None:
        """Merge the layers key by key, the first one wins, and validate the result.

        Relative paths start at the folder. Raises pydantic's ValidationError.
        """
        self.__pydantic_validator__.validate_python(
            merged(*layers), self_instance=self, context={"folder": folder}
        )


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings as one, key by key; the first one wins."""
    found: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            former = found.setdefault(key, value)
            if isinstance(former, Mapping) and isinstance(value, Mapping):
                found[key] = merged(former, value)
    return found
