"""Chance: random numbers that begin somewhere

What is left to chance is told where it begins, so that a simulated world plays the same course again.
"""

import random
import uuid


def chance_from(seed: uuid.UUID) -> random.Random:
    """The same numbers for the same id."""
    return random.Random(seed.int)
