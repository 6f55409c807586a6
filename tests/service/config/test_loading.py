"""A configuration as the commands load it: file, environment, secrets and manifests."""

import json
import os
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import pytest
from ruamel.yaml import YAML

from lookup_core.errors import ConfigurationError
from service.config.environment import Environment, read_environment, variable_of
from service.config.loading import EMBEDDED, inline_secrets, load_settings
from service.config.secrets import check_secret_file
from service.config.settings import Settings
from service.config.yaml_document import (
    YamlDocument,
    manifest_fault,
    parse_yaml_document,
    read_yaml_document,
)
from service.file_identity import read_secret
from tests.service.config.configuration import EXAMPLES

ADDRESS = "postgresql://u:geheim@h/d"
SECRET = f"dimensions: {{a: {{source: {{kind: postgres, table: t, dsn: '{ADDRESS}'}}, key: [k]}}}}"
PERMISSION = "\nallow_inline_secrets: true"
REMEDY = "holds a password; put it in dsn_file, or set allow_inline_secrets: true"
DSN_FILE = "SIDELOOK_DIMENSIONS__MY_SHOP__SOURCE__DSN_FILE"
SHIPPED = EXAMPLES.parent / "k8s/base/config-map.yaml"
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration with one dimension."""
    path = tmp_path / "sidelook.yaml"
    path.write_text("dimensions: {a: {source: {kind: parquet, path: a.parquet}, key: [k]}}")
    return path


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A valid file with a token."""
    path = tmp_path / "token"
    path.write_text("t0ken\n")
    path.chmod(0o440)
    return path


def faults_of(path: Path, **environ: str) -> tuple[str, ...]:
    """The faults of the file and the environment."""
    with pytest.raises(ConfigurationError) as raised:
        load_settings(path, environ)
    return raised.value.faults


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (
            "{a: {b: [1, 2.5, true, null]}, c: no, d: 010, e: 12:30, 1: a}",
            {"a": {"b": [1, 2.5, True, None]}, "c": "no", "d": 10, "e": "12:30", "1": "a"},
        ),
        ("a: &x {k: 1}\nb: *x\nc: {<<: *x, k: 3}", {"a": {"k": 1}, "b": {"k": 1}, "c": {"k": 3}}),
        *[(text, {}) for text in ("", "\n", "# nothing\n", "---\n")],
    ],
)
def test_document_is_a_mapping(text: str, values: dict[str, Any]) -> None:
    """Values have the types of YAML 1.2, where `no` is a word; anchors may be merged."""
    assert parse_yaml_document(text) == YamlDocument(values)


def test_repeated_keys_are_faults() -> None:
    """Each repeated key is stated with both lines; an anchor inside itself is read once."""
    text = "a:\n  b: 1\n  c: {b: 1, b: 2}\n  b: 3\nd: 1\nb: 1\nd: 2\n"

    assert parse_yaml_document(text).faults == (
        "d: given twice, in lines 5 and 7",
        "a.b: given twice, in lines 2 and 4",
        "a.c.b: given twice, in lines 3 and 3",
    )
    recursive = parse_yaml_document("a: &x {b: *x, b: 1}")
    assert recursive.faults == ("a.b: given twice, in lines 1 and 1",)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        *[(text, "must be a mapping of keys to values") for text in ("- 1", "geheim")],
        ("a: 1\n---\nb: 2", "not YAML: but found another document, in line 2"),
        ("a: !!python/name:os.system", "not YAML: could not determine a constructor for the tag"),
        ("a: *x", "not YAML: found undefined alias 'x', in line 1"),
        ("a: \0", "not YAML: has characters not allowed"),
        ("a: [" * 3000, "nested too deeply"),
        *[
            (f"a: {value}", "contains an invalid date or too long a number; write it in quotes")
            for value in ("2024-02-30", "9" * 5000)
        ],
        (
            f'a: 1\ndsn: "{ADDRESS}" oops',
            "not YAML: expected <block end>, but found '<scalar>'",
        ),
    ],
)
def test_other_texts_are_refused(text: str, fault: str) -> None:
    """A fault has the number of the line, and not its text, which may hold a password."""
    with pytest.raises(ConfigurationError) as raised:
        parse_yaml_document(text)

    (found,) = raised.value.faults
    assert found.startswith(fault)
    assert "geheim" not in found


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    """A missing file, a folder, and files of other texts or bytes are named in the fault."""
    binary, broken = tmp_path / "binary", tmp_path / "broken"
    binary.write_bytes(b"a: \xff")
    broken.write_text("dimensions: [")

    assert faults_of(binary) == (f"{binary}: is not UTF-8 text (byte 3)",)
    assert faults_of(tmp_path) == (f"{tmp_path}: cannot be read: Is a directory",)
    assert faults_of(tmp_path / "x")[0].endswith("/x: cannot be read: No such file or directory")
    assert faults_of(broken)[0].startswith(f"{broken}: not YAML: ")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[(each, each) for each in ("3s", "500", "postgresql://u:p#*&!@h/d")],
        *[("", None), ("null", None), ("true", True), ("false", False)],
        *[(each, ["a", "b"]) for each in ('["a", "b"]', "[a, b]", " [a, b]")],
        ('{"max_keys": 5}', {"max_keys": 5}),
    ],
)
def test_variables_are_texts_or_lists(text: str, value: object) -> None:
    """Two underscores separate keys; only a text that begins like a list or mapping is parsed."""
    environ = {"SIDELOOK_A__B": text, "SIDELOOKING": "x", "PATH": "/bin"}

    assert read_environment(environ, {}) == Environment(
        values={"a": {"b": value}}, origins={("a", "b"): "SIDELOOK_A__B"}
    )


@pytest.mark.parametrize(
    ("variable", "name"), [("CUSTOMERS", "Customers"), ("MY_AIR_PORTS", "my-air.ports")]
)
def test_variables_take_the_document_s_spelling(variable: str, name: str) -> None:
    """Variables have no capitals, hyphens and dots: they match a key that has them."""
    path = ("dimensions", name, "timeout")

    found = read_environment(
        {f"SIDELOOK_DIMENSIONS__{variable}__TIMEOUT": "1s"}, {"dimensions": {name: {}}}
    )

    assert found.values == {"dimensions": {name: {"timeout": "1s"}}}
    assert found.origins == {path: variable_of(path)}


def test_parts_refine_the_whole() -> None:
    """A variable for a part wins over one for the whole."""
    parts = {"SIDELOOK_BATCH__LINGER": "1ms", "SIDELOOK_BATCH": "{max_keys: 1, linger: 2ms}"}

    assert read_environment(parts, {}).values == {"batch": {"max_keys": 1, "linger": "1ms"}}
    for name in ("SIDELOOK_", "SIDELOOK___A", "SIDELOOK_A__"):  # left to the check for unknown keys
        assert list(read_environment({name: "1"}, {}).origins.values()) == [name]


A_B = "SIDELOOK_DIMENSIONS__A_B__TIMEOUT"
NO_LIST = "starts like a list or a mapping, but is not one"


@pytest.mark.parametrize(
    ("environ", "fault"),
    [
        *[({"SIDELOOK_A": text}, NO_LIST) for text in ("[a", "{a: 1, b", '["a" "b"]', "{a: *x}")],
        ({A_B: "{}"}, "matches a-b and a.b; rename one, or set it in the file"),
        (
            {"SIDELOOK_LIMITS": "{}", "SIDELOOK_limits": "{}"},
            "sets the same as SIDELOOK_LIMITS; remove one",
        ),
        (
            {"SIDELOOK_LISTEN": "x", "SIDELOOK_LISTEN__HTTP": "127.0.0.1:1"},
            "is a part of 'listen', which another variable sets as text",
        ),
    ],
)
def test_unclear_variable_is_refused(environ: dict[str, str], fault: str) -> None:
    """The fault names the last variable, and does not show its text."""
    document: dict[str, object] = {"dimensions": {"a-b": {}, "a.b": {}}}

    assert read_environment(environ, document).faults == [f"{[*environ][-1]}: {fault}"]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("SIDELOOK_LIMITS_MEMORY", "limits_memory: unknown key; did you mean 'limits'?"),
        ("SIDELOOK_LIMITS__MEMRY", "limits.memry: unknown key; did you mean 'memory'?"),
        ("sidelook_limits__memory", "sidelook_limits__memory: has no effect"),
        ("SIDLOOK_LIMITS__MEMORY", "SIDLOOK_LIMITS__MEMORY: has no effect"),
    ],
)
def test_misspelt_variable_is_named(config: Path, name: str, fault: str) -> None:
    """A variable that sets nothing is a fault, with the nearest name."""
    found = faults_of(config, **{name: "1GiB", "PATH": "/bin", "OTHER__KEY": "1"})

    meant = "did you mean SIDELOOK_LIMITS__MEMORY?"
    assert found in [(f"{fault} (set by {name}; {meant})",), (f"{fault}; {meant}",)]


@pytest.mark.parametrize(
    "name", ["PORT", "PORT_8815_TCP", "PORT_8815_TCP_ADDR", "SERVICE_HOST", "SERVICE_PORT_HTTP"]
)
def test_variable_of_a_service_has_its_remedy(config: Path, name: str) -> None:
    """Kubernetes sets variables for a Service named sidelook: the fault names the remedy."""
    (fault,) = faults_of(config, **{f"SIDELOOK_{name}": "tcp://10.0.0.1:8815"})

    assert fault.startswith(f"{name.lower()}: unknown key")
    assert fault.endswith(
        f"(set by SIDELOOK_{name}; Kubernetes sets it for a Service of this name: set "
        "enableServiceLinks: false)"
    )


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        (
            "SIDELOOK_DIMENSIONS__A__SOURCE__TABLE",
            "\udcff",
            "SIDELOOK_DIMENSIONS__A__SOURCE__TABLE",
        ),
        ("SIDELOOK_\udcff", "x", r"SIDELOOK_\udcff"),
    ],
)
def test_variable_of_bytes_is_refused(config: Path, name: str, text: str, shown: str) -> None:
    """A name or value that is no UTF-8 is a fault, and is shown so that it can be printed."""
    assert faults_of(config, **{name: text}) == (f"{shown}: its name or value is not UTF-8 text",)


def test_variable_of_no_dimension_is_named(config: Path) -> None:
    """Variables alone make no dimension: the fault names them, and the nearest name."""
    name = "SIDELOOK_DIMENSIONS__AB__TIMEOUT"

    missing = (
        f"missing, and required (set by {name}; did you mean SIDELOOK_DIMENSIONS__A__TIMEOUT?)"
    )
    assert faults_of(config, **{name: "1s"}) == (
        f"dimensions.ab.source: {missing}",
        f"dimensions.ab.key: {missing}",
    )


@pytest.mark.parametrize(
    ("tokens", "fault"),
    [
        (["reader", "admin"], None),
        (["reader", "\ufeffadmin\r\n"], None),
        (["same", "\ufeffsame\n"], "auth.admin_token_file: {1} has the same token as token_file"),
        (["one\ntwo", "admin"], "auth.token_file: {0} has several lines or control characters"),
        (
            ["sécret", "admin"],
            "auth.token_file: {0} is not ASCII text; write one line of printable",
        ),
        (["reader", "a\r\nb"], "auth.admin_token_file: {1} has several lines or control"),
    ],
)
def test_tokens_are_lines_that_differ(
    config: Path, tmp_path: Path, tokens: list[str], fault: str | None
) -> None:
    """A token is one line, and that of administrators is another one than that of readers."""
    paths = [tmp_path / name for name in ("reader", "admin")]
    for path, token in zip(paths, tokens, strict=True):
        path.write_text(token)
        path.chmod(0o600)
    environ = {
        "SIDELOOK_AUTH__TOKEN_FILE": str(paths[0]),
        "SIDELOOK_AUTH__ADMIN_TOKEN_FILE": str(paths[1]),
    }

    if fault is None:
        assert load_settings(config, environ).auth.admin_token_file == paths[1]
    else:
        (found,) = faults_of(config, **environ)
        assert found.startswith(fault.format(*paths))


@pytest.mark.parametrize(
    ("example", "dimensions"),
    [("parquet", ["airports", "airlines"]), ("postgres", ["customers", "weather", "airlines"])],
)
def test_examples_are_right(example: str, dimensions: list[str]) -> None:
    """The examples pass all checks and the JSON Schema."""
    path = EXAMPLES / f"{example}.yaml"

    jsonschema.validate(YAML(typ="safe", pure=True).load(path), Settings.model_json_schema())
    assert list(load_settings(path, {}).dimensions) == dimensions


def test_no_file_means_the_embedded_example() -> None:
    """Without a file the dimensions are those of the Parquet example, without its socket."""
    embedded, example = (load_settings(path, {}) for path in (None, EXAMPLES / "parquet.yaml"))

    assert embedded == load_settings(EMBEDDED, {})
    assert embedded.listen == example.listen.model_copy(update={"unix": None})
    assert list(embedded.dimensions) == list(example.dimensions)


def test_environment_wins_over_the_file(config: Path) -> None:
    """A variable changes one value; relative paths of both start at the file."""
    settings = load_settings(
        config, {"SIDELOOK_DIMENSIONS__A__TIMEOUT": "3s", "SIDELOOK_LISTEN__UNIX": "s.sock"}
    )

    a = settings.dimensions["a"]
    assert (a.timeout_s, a.key) == (3.0, ("k",))
    assert a.source.model_dump()["path"] == config.parent / "a.parquet"
    assert settings.listen.unix == config.parent / "s.sock"


def test_faults_of_all_kinds_come_at_once(config: Path) -> None:
    """Repeated keys, variables and wrong values stand in one list."""
    config.write_text(config.read_text() + "\nlimits: {memory: 5, memory: 6}\nlisten: {htp: x}\n")

    found = faults_of(config, SIDELOOK_FOO="1", SIDELOOK_DIMENSIONS__A__KEY="[k")

    assert [fault.split(": ")[0] for fault in found] == [
        "limits.memory",  # twice
        "SIDELOOK_DIMENSIONS__A__KEY",
        "listen.htp",
        "limits.memory",  # no unit
        "foo",
    ]
    assert found[-1].endswith("(set by SIDELOOK_FOO)")


@pytest.mark.parametrize(
    ("text", "allowed", "is_taken"),
    [
        (SECRET, None, False),
        (SECRET + PERMISSION, None, True),
        (SECRET, "true", True),
        (SECRET + PERMISSION, "false", False),
    ],
)
def test_passwords_in_the_file_need_permission(
    *, config: Path, text: str, allowed: str | None, is_taken: bool
) -> None:
    """File or environment may permit them; the environment has priority, and they stay hidden."""
    config.write_text(text)
    environ = {} if allowed is None else {"SIDELOOK_ALLOW_INLINE_SECRETS": allowed}

    if is_taken:
        settings = load_settings(config, environ)
        assert "geheim" not in f"{settings!r} {settings} {settings.model_dump()}"
    else:
        assert faults_of(config, **environ) == (f"dimensions.a.source.dsn: {REMEDY}",)


def test_each_password_is_a_fault(config: Path) -> None:
    """Every address in the file with a password is listed; the environment may hold them."""
    dsns: dict[str, object] = {
        "a": ADDRESS,
        "b": "postgresql://postgres:@h/d",
        "c": "postgresql://h/d?password=geheim",
        "d": 5,
    }
    dimensions = {name: {"source": {"dsn": dsn}} for name, dsn in dsns.items()}
    others = {"e": None, "f": {"source": "x"}, "g": {}}
    config.write_text("dimensions: {a: {source: {kind: postgres, table: t}, key: [k]}}")

    assert list(inline_secrets({"dimensions": dimensions | others})) == [
        f"dimensions.a.source.dsn: {REMEDY}",
        f"dimensions.c.source.dsn: {REMEDY}",
    ]
    assert list(inline_secrets({"dimensions": 5})) == list(inline_secrets({})) == []
    assert load_settings(config, {"SIDELOOK_DIMENSIONS__A__SOURCE__DSN": ADDRESS}).dimensions


def test_missing_secret_names_its_variable(config: Path, secret: Path) -> None:
    """A secret that only the sidecar's machine has can be replaced by a variable."""
    config.write_text(
        "dimensions: {my-shop: {key: [k], source: {kind: postgres, table: t, dsn_file: /none}}}"
    )
    fault = "dimensions.my-shop.source.dsn_file: "
    missing = f"{fault}cannot read {{}}: No such file or directory"
    hint = f"; if it has another path on this machine, set {DSN_FILE}=/PATH"

    assert faults_of(config) == (missing.format("/none") + hint,)
    assert faults_of(config, **{DSN_FILE: "/x"}) == (f"{missing.format('/x')} (set by {DSN_FILE})",)
    assert faults_of(config, **{DSN_FILE: str(secret)}) == (
        (
            f"{fault}not a PostgreSQL address, such as postgresql://user@host:5432/database "
            f"(set by {DSN_FILE})"
        ),
    )
    secret.chmod(0o600)
    secret.write_text(ADDRESS)
    assert list(load_settings(config, {DSN_FILE: str(secret)}).dimensions) == ["my-shop"]


def test_fault_of_a_shared_file_is_one(secret: Path, tmp_path: Path) -> None:
    """A fault of a file that several settings name is one line with all of their paths."""
    secret.chmod(0o644)
    source = {"kind": "postgres", "table": "t", "dsn_file": str(secret)}
    dimension = {"source": source, "key": ["id"]}
    config = tmp_path / "sidelook.yaml"
    config.write_text(json.dumps({"dimensions": {"a": dimension, "b": dimension}}))

    (fault,) = faults_of(config)
    paths, _, text = fault.partition(": ")
    assert paths == "dimensions.a.source.dsn_file, dimensions.b.source.dsn_file"
    assert text.startswith(f"{secret} is readable or writable for all users; ")


@pytest.mark.parametrize("mode", [0o444, 0o404, 0o602, 0o777])
def test_secret_is_not_for_everybody(secret: Path, mode: int) -> None:
    """A file that all users may read or write is refused; the line end is not part of a secret."""
    assert (check_secret_file(secret), read_secret(secret)) == (secret, "t0ken")
    secret.chmod(mode)

    with pytest.raises(ValueError, match="all users") as raised:
        check_secret_file(secret)

    remedy = "chmod o-rw it (a Kubernetes secret: defaultMode 0440)"
    assert str(raised.value) == f"{secret} is readable or writable for all users; {remedy}"


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("token", b" \n", "{} is empty"),
        ("token", b"\xff\xfe", "cannot read {}: not UTF-8 text"),
        ("nope", b"x", "cannot read {}: No such file or directory"),
        (".", b"x", "{} is not a file"),
        ("pipe", b"x", "{} is not a file"),
    ],
)
def test_secret_is_a_file_of_text(secret: Path, name: str, content: bytes, fault: str) -> None:
    """An empty, binary or missing file stops the start."""
    secret.chmod(0o600)
    secret.write_bytes(content)
    os.mkfifo(secret.parent / "pipe")
    path = secret.parent / name

    with pytest.raises(ValueError, match=r"empty|not|No") as raised:
        check_secret_file(path)

    assert str(raised.value) == fault.format(path)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ({"a.txt": "", "b.yml": ""}, "b.yml"),
        ({"driver.yaml": "", "sidelook.yaml": ""}, "sidelook.yaml"),
        ({"a.txt": ""}, "sidelook.yaml"),
        (None, "sidelook.yaml"),
        ({"a; rm -rf x.yml": ""}, "a; rm -rf x.yml"),
    ],
)
def test_config_map_is_answered_with_a_command(data: object, name: str) -> None:
    """The command uses the most likely key, is quoted, and overwrites no manifest."""
    fault = manifest_fault(Path("my maps.yaml"), {**CONFIG_MAP, "data": data}) or ""

    escaped = name.replace(".", r"\.")
    assert fault == (
        f"my maps.yaml: is a Kubernetes ConfigMap; extract data.{name} and check that file: "
        "kubectl patch --local -f 'my maps.yaml' -p '{}' "
        f"-o 'jsonpath={{.data.{escaped}}}' > 'my maps.plain.yaml'"
    )


def test_manifest_is_one_fault(config: Path) -> None:
    """A manifest is named by its kind, instead of a list of unknown keys."""
    config.write_text("{apiVersion: v1, kind: Pod}")

    assert faults_of(config) == (f"{config}: is a Kubernetes Pod, not a configuration",)
    assert "data.sidelook.yaml and" in (
        manifest_fault(SHIPPED, read_yaml_document(SHIPPED).values) or ""
    )
    for values in ({}, {"kind": "ConfigMap"}, {"apiVersion": "v1", "kind": 5}):
        assert manifest_fault(config, values) is None
