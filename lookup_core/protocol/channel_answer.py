"""An answer to what a client has asked on a channel, whoever made it.

Apart from the frames: those name sequences, and a question may travel in several lookups.
"""

from dataclasses import dataclass

from lookup_core.answer import Answer
from lookup_core.protocol.sent_lookups import QuestionId


@dataclass(frozen=True, slots=True)
class ChannelAnswer:
    """Answers to a question; positions are those of the keys as they were asked."""

    question: QuestionId
    answer: Answer
