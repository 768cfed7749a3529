"""Makes tables of cells: every combination of some factors, or a selection of them."""

import itertools


def all_cells(factors):
    return [dict(zip(factors, values)) for values in itertools.product(*factors.values())]


def pairwise_cells(factors):
    """Returns a few cells that contain every pair of values of different factors. The result is always the same."""
    def pairs(cell):
        return set(itertools.combinations(sorted(cell.items()), 2))

    cells = all_cells(factors)
    missing, chosen = set().union(*map(pairs, cells)), []
    while missing:
        chosen.append(max(cells, key=lambda cell: len(pairs(cell) & missing)))
        missing -= pairs(chosen[-1])
    return chosen
