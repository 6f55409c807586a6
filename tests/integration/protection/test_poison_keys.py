"""Keys that the database refuses hurt nobody but those who ask for them."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from lookup_core.answer import Outcome
from lookup_core.protocol.backlog import ChannelAnswer
from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from spark_client.transport.connections import Address, Connections
from tests.integration.protection.asker import Answered, Asker
from tests.integration.protection.poison import PoisonedKeys, put_words
from tests.integration.protection.postgres_sidecar import postgres_sidecar, started
from tools.processes.postgres_server import PostgresServer

HTTP_LOOKUPS, STREAM_LOOKUPS = 100_000, 20_000
POISONED_SHARE = 100  # one in so many
REQUEST_KEYS = 5_000
AT_ONCE = 4  # requests
PATIENCE_S = 60.0
SEED = 20_131


async def test_only_poison_keys_fail_by_http(folder: Path, postgres_server: PostgresServer) -> None:
    """Of 100,000 lookups exactly the 1,000 poison keys are errors; everything else is right."""
    words = poisoned(HTTP_LOOKUPS)
    dsn = put_words(postgres_server).dsn()
    async with started(postgres_sidecar(folder, dsn, {"words": {}})), Asker.of(folder) as asker:
        answers = await ask_all(asker, words.keys)

    told = [word for answered in answers for word in words_of_answered(answered)]
    assert differences(words, told) == []


async def test_only_poison_keys_fail_on_a_stream(
    folder: Path, postgres_server: PostgresServer
) -> None:
    """The same on a channel, where the keys of a question go in as many lookups as it likes."""
    words = poisoned(STREAM_LOOKUPS)
    dsn = put_words(postgres_server).dsn()
    async with started(postgres_sidecar(folder, dsn, {"words": {}})):
        answers = await asyncio.to_thread(ask_on_channel, folder, words.keys)

    assert differences(words, words_of_answers(answers, len(words.keys))) == []


def poisoned(count: int) -> PoisonedKeys:
    """So many keys, one of a hundred of them poison."""
    print(f"seed {SEED}")  # noqa: T201 -- a figure for whoever runs this with -s
    return PoisonedKeys.of(count, poisoned=count // POISONED_SHARE, seed=SEED)


async def ask_all(asker: Asker, keys: Sequence[str]) -> list[Answered]:
    """Large requests, some at a time; their answers in the order of the keys."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def ask(start: int) -> Answered:
        async with slots:
            part = keys[start : start + REQUEST_KEYS]
            return await asker.ask("words", part, timeout_ms=int(PATIENCE_S * 1000))

    return await asyncio.gather(*(ask(start) for start in range(0, len(keys), REQUEST_KEYS)))


def words_of_answered(answered: Answered) -> list[str]:
    """Each key's outcome and name, or its code."""
    return [
        f"{outcome} {row['name'] if row else answered.errors.get(str(at), {}).get('code', '')}"
        for at, (outcome, row) in enumerate(zip(answered.outcomes, answered.rows, strict=True))
    ]


def ask_on_channel(folder: Path, keys: Sequence[str]) -> list[ChannelAnswer]:
    """One question on a channel of its own."""
    batch = pa.record_batch({"id": pa.array(keys)})
    request = ChannelRequest("words", ("name",), "poison", batch.schema)
    session = Connections().to(Address(f"unix://{folder}/sidelook.sock")).open(request)
    session.look_up(SentKeys(QuestionId(1), batch, time.monotonic() + PATIENCE_S))
    answers: list[ChannelAnswer] = []
    while sum(each.answer.size for each in answers) < len(keys):
        answers += session.answers(PATIENCE_S)
    session.close()
    return answers


def words_of_answers(answers: list[ChannelAnswer], size: int) -> list[str]:
    """As `words_of_answered`, in the order of the keys."""
    words = [""] * size
    for answer in (each.answer for each in answers):
        names = [None] * answer.size if answer.rows is None else answer.rows["name"].to_pylist()
        for at, outcome, name in zip(answer.positions, answer.outcomes, names, strict=True):
            words[at] = f"{Outcome(outcome).label} {name or answer.errors.get(int(at), '')}"
    return words


def differences(words: PoisonedKeys, told: list[str]) -> list[str]:
    """Keys whose answer is another than it must be, some of them."""
    expected = words.expected()
    assert len(told) == len(expected)
    pairs = zip(words.keys, expected, told, strict=True)
    return [f"{key}: {is_!r} for {due!r}" for key, due, is_ in pairs if due != is_.strip()][:20]
