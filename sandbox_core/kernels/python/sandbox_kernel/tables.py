"""A table of pandas as data: the values of each column."""

from . import charts

CELLS_MAX = 100000


def of(frame):
    """None: there is too much of it, or it cannot be told."""
    rows, columns = frame.shape

    if rows * columns > CELLS_MAX:
        return None

    try:
        return {str(name): [value_of(value) for value in frame.iloc[:, i]]
                for i, name in enumerate(frame.columns)}
    except Exception:
        return None


def value_of(value):
    # NaT, NA
    if type(value).__name__ in ('NaTType', 'NAType'):
        return None
    return charts.plain(value)
