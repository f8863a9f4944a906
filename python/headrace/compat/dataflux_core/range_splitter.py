"""``dataflux_core.range_splitter``: places at which to cut a range of names.

A name stands for a number whose digits are characters of an alphabet, padded at the end with the
smallest one. headrace's own listing works differently; this module is for programs that call it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "GenerateSplitsOpts",
    "MinimalIntRange",
    "RangeSplitter",
    "get_char_or_default",
    "new_rangesplitter",
]


@dataclass
class MinimalIntRange:
    """The first `min_len` characters of two names, as numbers."""

    start_int: int
    end_int: int
    min_len: int


@dataclass
class GenerateSplitsOpts:
    """The arguments of `RangeSplitter.generate_splits`."""

    min_int_range: MinimalIntRange
    num_splits: int
    start_range: str
    end_range: str


class RangeSplitter:
    """Cuts ranges of names; new characters become part of its alphabet.

    Args:
        alphabet_map: the position of each character in the alphabet.
        sorted_alphabet: the characters in order.
    """

    def __init__(self, alphabet_map: dict[str, int], sorted_alphabet: Sequence[str]) -> None:
        self.alphabet_map = alphabet_map
        self.sorted_alphabet = sorted_alphabet
        self.alphabet_set = set(sorted_alphabet)

    def split_range(self, start_range: str, end_range: str, num_splits: int) -> Sequence[str]:
        """Return `num_splits` names that cut ``(start_range, end_range)``, in order.

        An empty `end_range` is an open end. The result is empty if the range is empty, or if no
        name over the alphabet lies in it.

        Raises:
            ValueError: `num_splits` is below 1.
        """
        if num_splits < 1:
            raise ValueError(f"num_splits is {num_splits}; it must be at least 1")
        if end_range and start_range >= end_range:
            return []
        self.add_characters_to_alphabet(start_range + end_range)
        if self.is_range_equal_with_padding(start_range, end_range):
            return []
        int_range = self.string_to_minimal_int_range(start_range, end_range, num_splits)
        return self.generate_splits(
            GenerateSplitsOpts(int_range, num_splits, start_range, end_range)
        )

    def generate_splits(self, opts: GenerateSplitsOpts) -> Sequence[str]:
        """Return names at equal distances within the range of `opts`."""
        first, length = opts.min_int_range.start_int, opts.min_int_range.min_len
        distance = opts.min_int_range.end_int - first
        return [
            self.int_to_string(first + distance * i // (opts.num_splits + 1), length)
            for i in range(1, opts.num_splits + 1)
        ]

    def int_to_string(self, split_point: int, string_len: int) -> str:
        """Return the last `string_len` digits of `split_point`, in the alphabet."""
        digits = []
        for _ in range(string_len):
            split_point, digit = divmod(split_point, len(self.sorted_alphabet))
            digits.append(self.sorted_alphabet[digit])
        return "".join(reversed(digits))

    def string_to_minimal_int_range(
        self, start_range: str, end_range: str, num_splits: int
    ) -> MinimalIntRange:
        """Return both ends as numbers with enough digits for `num_splits` cuts between them.

        The alphabet must have the characters of both ends, and the ends must differ when padded
        (`is_range_equal_with_padding`); otherwise no number of digits would be enough.
        """
        if self.is_range_equal_with_padding(start_range, end_range):
            raise ValueError(f"nothing lies between {start_range!r} and {end_range!r}")
        start_int = end_int = length = 0
        while end_int - start_int <= num_splits:
            start_digit = self.alphabet_map[self._character(start_range, length)]
            end_digit = self.alphabet_map[self._end_character(end_range, length)]
            start_int = start_int * len(self.sorted_alphabet) + start_digit
            end_int = end_int * len(self.sorted_alphabet) + end_digit
            length += 1
        return MinimalIntRange(start_int, end_int, length)

    def is_range_equal_with_padding(self, start_range: str, end_range: str) -> bool:
        """Return whether both ends are the same number, with any number of digits."""
        # One more digit than both: an open end continues with the largest digit, a name with the
        # smallest.
        length = max(len(start_range), len(end_range)) + 1
        return all(
            self._character(start_range, i) == self._end_character(end_range, i)
            for i in range(length)
        )

    def add_characters_to_alphabet(self, characters: str) -> None:
        """Add all `characters` to the alphabet."""
        self.alphabet_set |= set(characters)
        self.sorted_alphabet = sorted(self.alphabet_set)
        self.alphabet_map = {character: i for i, character in enumerate(self.sorted_alphabet)}

    def _character(self, name: str, index: int) -> str:
        return get_char_or_default(name, index, self.sorted_alphabet[0])

    def _end_character(self, name: str, index: int) -> str:
        return self._character(name, index) if name else self.sorted_alphabet[-1]


def get_char_or_default(characters: str, index: int, default_char: str) -> str:
    """Return the character at `index`, or `default_char` if there is none."""
    return characters[index] if 0 <= index < len(characters) else default_char


def new_rangesplitter(alphabet: str) -> RangeSplitter:
    """Return a `RangeSplitter` for the characters of `alphabet`.

    Raises:
        ValueError: there are none.
    """
    if not alphabet:
        raise ValueError("the alphabet is empty: a range cannot be cut without characters")
    splitter = RangeSplitter({}, [])
    splitter.add_characters_to_alphabet(alphabet)
    return splitter
