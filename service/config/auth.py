"""Who may ask; the tokens stand in files and never in the configuration.

Does not check requests: that is the HTTP side's business.
"""

from pydantic import Field

from service.config.secret_file import SecretFile
from service.config.section import Section


class Auth(Section):
    """Files with the bearer tokens that requests must show; without a file nothing is asked."""

    token_file: SecretFile | None = Field(default=None, description="token of every request")
    admin_token_file: SecretFile | None = Field(
        default=None, description="token of requests that change something"
    )
