"""What users of Kafka may do with a topic: given and taken, as its operator does.

The library's own operator knows no such calls; the words of the protocol it has.
"""

import asyncio

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

from tests.integration.kafka_reading import POLL_INTERVAL_S

_TOPIC, _LITERAL, _READ, _DESCRIBE, _ANY, _ALLOW = 2, 3, 3, 8, 1, 3  # numbers of the protocol


async def allow_reading(brokers: str, user: str, topic: str) -> None:
    """Let the user read and describe the topic, from anywhere."""
    await _change(CreateAclsRequest, brokers, user, topic=topic)
    await _wait_for_rights({_READ, _DESCRIBE}, brokers, user, topic=topic)


async def forbid_reading(brokers: str, user: str, topic: str) -> None:
    """Take back what `allow_reading` gave."""
    await _change(DeleteAclsRequest, brokers, user, topic=topic)
    await _wait_for_rights(set(), brokers, user, topic=topic)


async def _change(
    request: type[CreateAclsRequest | DeleteAclsRequest], brokers: str, user: str, *, topic: str
) -> None:
    operator = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await operator.start()
    try:
        for right in (_READ, _DESCRIBE):
            of_user = (f"User:{user}", "*", right, _ALLOW)
            reply = await operator._send_to_controller(request(_TOPIC, topic, _LITERAL, *of_user))
            results = reply.to_object()
            (result,) = results.get("creation_responses") or results["filter_responses"]
            assert result["error_code"] == 0, result
    finally:
        await operator.close()


async def _wait_for_rights(rights: set[int], brokers: str, user: str, *, topic: str) -> None:
    # The controller has changed them when it answers; the broker hears of it a moment later.
    while await _rights(brokers, user, topic=topic) != rights:  # noqa: ASYNC110  # it tells no news
        await asyncio.sleep(POLL_INTERVAL_S)


async def _rights(brokers: str, user: str, *, topic: str) -> set[int]:
    """The numbers of what the user may do, as the broker knows it."""
    operator = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await operator.start()
    try:
        of_user = (f"User:{user}", "*", _ANY, _ALLOW)
        reply = await operator._send_request(DescribeAclsRequest(_TOPIC, topic, _LITERAL, *of_user))
        resources = reply.to_object()["resources"]
        return {each["operation"] for resource in resources for each in resource["acls"]}
    finally:
        await operator.close()
