"""What a query has read up to, as Spark keeps it: numbers of next messages, and of which journal.

Without the journal's UUID a number says nothing: two brokers that change places, or one whose data
was deleted, would be read on as if nothing had happened.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_motemq.blocks import JournalError

Offset = dict[str, Any]  # as JSON
_JOURNALS = "journals"


@dataclass(frozen=True, slots=True)
class Position:
    """``numbers`` by partition; ``journals``: UUIDs, by partition // ``PARTITIONS``.

    A position of before there were UUIDs has none, and is taken for any journal's.
    """

    numbers: Mapping[int, int]
    journals: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def read(cls, offset: Offset) -> "Position":
        """Return what ``written`` made."""
        numbers = {int(key): at for key, at in offset.items() if key != _JOURNALS}
        return cls(numbers, {int(key): id_ for key, id_ in offset.get(_JOURNALS, {}).items()})

    def written(self) -> Offset:
        """Return it as JSON."""
        found: Offset = {str(number): self.numbers[number] for number in sorted(self.numbers)}
        if self.journals:
            found[_JOURNALS] = {str(key): self.journals[key] for key in sorted(self.journals)}
        return found

    def check(self, there: Mapping[int, str], names: Mapping[int, str]) -> None:
        """Raise ``JournalError`` if one of its journals is not the one that is there now.

        ``names``: how to call a journal, by number.
        """
        for number, identity in self.journals.items():
            now = there.get(number)
            if now is None or now == identity:
                continue
            text = (
                f"{names.get(number, f'journal {number}')} is journal {now}, but this query has "
                f"read journal {identity} there"
            )
            for other, same in there.items():
                if same == identity:
                    text += f", which is now {names.get(other, f'journal {other}')}: give them in "
                    text += "the order they had"
                    break
            else:
                text += ": it was begun anew, or is another broker's; begin with a new checkpoint, "
                text += "or put the old one back"
            raise JournalError(text)
