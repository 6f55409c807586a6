"""Access rights of Kafka users, changed by protocol requests that aiokafka has no calls for."""

import asyncio

from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

from demo.embedded_kafka.kafka_topics import operating
from tests.integration.feeds.kafka_reading import POLL_INTERVAL_S

_TOPIC, _LITERAL, _READ, _DESCRIBE, _ANY, _ALLOW = 2, 3, 3, 8, 1, 3  # numbers of the protocol


async def allow_reading(brokers: str, user: str, topic: str) -> None:
    """Let the user read and describe the topic."""
    await _change(CreateAclsRequest, brokers, user, topic=topic)
    await _wait_for_rights({_READ, _DESCRIBE}, brokers, user, topic=topic)


async def _change(
    request: type[CreateAclsRequest | DeleteAclsRequest], brokers: str, user: str, *, topic: str
) -> None:
    async with operating(brokers) as operator:
        for right in (_READ, _DESCRIBE):
            of_user = (f"User:{user}", "*", right, _ALLOW)
            reply = await operator._send_to_controller(request(_TOPIC, topic, _LITERAL, *of_user))
            results = reply.to_object()
            (result,) = results.get("creation_responses") or results["filter_responses"]
            assert result["error_code"] == 0, result


async def _wait_for_rights(rights: set[int], brokers: str, user: str, *, topic: str) -> None:
    # The controller confirms the change before the broker knows it.
    while await _rights(brokers, user, topic=topic) != rights:  # noqa: ASYNC110  # no event reports it
        await asyncio.sleep(POLL_INTERVAL_S)


async def _rights(brokers: str, user: str, *, topic: str) -> set[int]:
    """The operations that the broker allows the user."""
    async with operating(brokers) as operator:
        of_user = (f"User:{user}", "*", _ANY, _ALLOW)
        reply = await operator._send_request(DescribeAclsRequest(_TOPIC, topic, _LITERAL, *of_user))
        resources = reply.to_object()["resources"]
        return {each["operation"] for resource in resources for each in resource["acls"]}
