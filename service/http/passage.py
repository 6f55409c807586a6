"""What every request passes, in this order: slots, room for its answer, access, errors, delivery.

Not the rules themselves: each has a module of its own.
"""

from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler

from lookup_core.errors import Overloaded
from service.http.admission import Admission
from service.http.answer_room import ANSWER_HOLD, AnswerHold, AnswerRoom
from service.http.delivery import Delivery
from service.http.problem import problem_of_error
from service.http.problems import problem_response
from service.http.route import Audiences, audience_of
from service.http.security import Security


@dataclass(frozen=True, slots=True)
class Passage:
    """The one middleware of an application: each of several would cost every request anew."""

    audiences: Audiences
    admission: Admission
    answer_room: AnswerRoom
    security: Security
    delivery: Delivery

    @web.middleware
    async def lead(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Take the request to its handler, and what comes of it to the caller."""
        audience = audience_of(request, self.audiences)
        try:
            self.admission.enter(audience)
        except Overloaded as error:  # before anything of the request is looked at
            return _refusal(error)
        response: web.StreamResponse
        hold = request[ANSWER_HOLD] = AnswerHold(self.answer_room)
        try:
            try:
                self.security.check(request, audience)
                response = await handler(request)
            except Exception as error:  # noqa: BLE001  # border of the request's task
                response = problem_response(request, error)
            await self.delivery.send(request, response)
            return response
        finally:
            hold.only(0)  # only now: what is being sent is held
            self.admission.leave(audience)


def _refusal(error: Overloaded) -> web.Response:
    response = problem_of_error(error).response()
    response.force_close()
    return response
