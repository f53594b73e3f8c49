"""The inputs: plain English words, as many as a schedule asks for, and one mask if there is one.

Common words are one token each for most vocabularies, so that a length in words is about one in
tokens. Inputs differ from each other: a server that remembers answers would gain nothing.
"""

from __future__ import annotations

from itertools import accumulate
from random import Random

_COMMON = """
the of and in to was he is as for on with that it his by at from her she you had an were but be this
are not my they one which or have him me first all also their has up who out been when after there
into new two its time would no what about said we over then other so more can if like back them only
some could where just during before do made school through now than years most world may between
down well three year while will later city under around did such being used state people part know
against your many second both national these way until how even get head team because born film
still long work south us became any high again day family see right man eyes house season war took
life north same each called name much place however go four group another found won area here going
away left home music best make hand number company several never last very take end good game played
little began old want those side held own early use west face think march came small general town
line based thought looked along air july club went june
"""
_WORDS = tuple(_COMMON.split())

_POOL = 4096
"""Words to cut inputs from: far more than the longest input, and cheap to keep."""


class Texts:
    """Cuts inputs out of one long text.

    Args:
        mask: the mask token to put in the middle; empty for none.
        seed: chooses the words.
    """

    def __init__(self, mask: str, seed: int) -> None:
        chance = Random(f"{seed}/words")  # noqa: S311 - load, no secret
        words = chance.choices(_WORDS, k=_POOL)
        self._text = " ".join(words).encode()
        self._starts = [0, *accumulate(len(word) + 1 for word in words)]
        self._mask = mask.encode()
        self._next = 0

    def cut(self, words: int) -> bytes:
        """An input of ``words`` words (at least 1), the mask among them."""
        if not self._mask:
            return self._piece(max(1, words))
        before = max(0, words - 1) // 2
        after = max(0, words - 1) - before
        parts = (self._piece(before), self._mask, self._piece(after))
        return b" ".join(part for part in parts if part)

    def _piece(self, words: int) -> bytes:
        if words > _POOL:
            return b" ".join((self._piece(_POOL), self._piece(words - _POOL)))
        if self._next + words > _POOL:
            # begin again, at another place than the last time round
            self._next = (self._next + words) % min(97, _POOL - words + 1)
        start = self._next
        self._next = start + words
        return self._text[self._starts[start] : max(0, self._starts[start + words] - 1)]
