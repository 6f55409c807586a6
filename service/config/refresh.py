"""How a dimension hears of changes: by notifications, by a changelog, or by loading anew.

Time to live is not among them: that one stands with the cache.
"""

from pydantic import Field, ValidationInfo, field_validator

from lookup_core.settings import FeedSettings, ReloadSettings
from service.config.changelog import Changelog
from service.config.notifications import Notifications
from service.config.reload import Reload
from service.config.section import Section


class Refresh(Section):
    """Where changes come from; nothing of it: rows are as old as their time to live allows."""

    listen: Notifications | None = Field(
        default=None,
        examples=[{}],
        description="notifications by the table's triggers; {} takes the defaults",
    )
    changelog: Changelog | None = Field(default=None, description="changes in a topic of Kafka")
    reload: Reload | None = Field(
        default=None, examples=[{"every": "1h"}], description="loading the whole table anew"
    )

    @property
    def feed(self) -> str | None:
        """The name of what tells of changes; None without."""
        feeds = {"listen": self.listen, "changelog": self.changelog}
        return next((name for name, feed in feeds.items() if feed is not None), None)

    def reload_settings(self) -> ReloadSettings:
        """When the engine loads the table anew."""
        return ReloadSettings() if self.reload is None else self.reload.engine_settings()

    def feed_settings(self) -> FeedSettings:
        """What the engine asks of the feed."""
        if self.changelog is not None:
            return self.changelog.feed_settings()
        return FeedSettings() if self.listen is None else self.listen.feed_settings()

    @field_validator("changelog", mode="after")
    @classmethod
    def _is_the_only_feed(
        cls, changelog: Changelog | None, info: ValidationInfo
    ) -> Changelog | None:
        if changelog is not None and info.data.get("listen") is not None:
            raise ValueError("give one of refresh.listen and refresh.changelog; each tells all")
        return changelog
