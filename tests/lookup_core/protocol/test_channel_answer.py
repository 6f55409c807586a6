"""Answers to questions."""

import numpy as np

from lookup_core.answer import Outcome, rowless_answer
from lookup_core.protocol.backlog import ChannelAnswer
from lookup_core.protocol.sent_lookups import QuestionId


def test_answer_names_its_question() -> None:
    """An answer travels with the question that it is for, whoever made it."""
    answer = rowless_answer(np.array([1], np.int32), Outcome.MISSING)

    assert ChannelAnswer(QuestionId(7), answer).question == 7
