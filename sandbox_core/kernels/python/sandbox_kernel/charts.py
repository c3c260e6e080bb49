"""What a figure shows, as data: its axes, and the points, bars, slices or boxes
on them.

A figure with more than POINTS_MAX of these is told of without any; nothing of
this may fail a cell.
"""

import datetime
import decimal
import re
import sys

POINTS_MAX = 20000              # of a figure
TEXT_MAX = 1000                 # characters of a label


class TooMany(Exception):
    pass


class Reader:

    def __init__(self):
        self.left = POINTS_MAX

    def take(self, count):
        self.left -= count
        if self.left < 0:
            raise TooMany

    # ---- a figure ---------------------------------------------------------

    def figure(self, figure):
        # A colour bar explains another one.
        axes = [ax for ax in figure.axes if not hasattr(ax, '_colorbar')]

        if not axes:
            return None
        if len(axes) == 1:
            return self.axes(axes[0])

        title = getattr(figure, '_suptitle', None)

        return {'type': 'superchart',
                'title': text(title.get_text()) if title else None,
                'elements': [self.axes(ax) for ax in axes]}

    def axes(self, ax):
        chart = {'type': 'unknown', 'title': text(ax.get_title()),
                 'elements': []}
        kind = kind_of(ax)

        if kind == 'pie':
            elements = self.slices(ax)
        elif kind == 'bar':
            elements = self.bars(ax, chart)
        elif kind == 'box_and_whisker':
            elements = self.boxes(ax, chart)
        elif kind in ('line', 'scatter'):
            labels(ax, chart)
            for name, axis in (('x', ax.xaxis), ('y', ax.yaxis)):
                self.scale(chart, name, axis)
            elements = self.lines(ax) if kind == 'line' else self.dots(ax)
        else:
            elements = None

        if elements is not None:
            chart['type'] = kind
            chart['elements'] = elements

        return chart

    # ---- points -----------------------------------------------------------

    def scale(self, chart, name, axis):
        ticks = axis.get_majorticklocs()
        marks = [label.get_text()[:TEXT_MAX]
                 for label in axis.get_majorticklabels()]
        self.take(len(ticks))

        scale = axis.get_scale()
        if is_time(axis):
            scale = 'datetime'
        elif scale == 'linear' and is_named(axis, ticks, marks):
            scale = 'categorical'

        chart[name + '_ticks'] = [place(axis, tick) for tick in ticks] \
            if scale == 'datetime' else [plain(tick) for tick in ticks]
        chart[name + '_tick_labels'] = marks
        chart[name + '_scale'] = scale

    def lines(self, ax):
        elements = []

        for line in ax.lines:
            if is_rule(line, ax):
                continue

            x, y = line.get_xdata(), line.get_ydata()
            self.take(len(x))
            elements.append({
                'label': label_of(line, 'Line'),
                'points': [[plain(a), plain(b)] for a, b in zip(x, y)]})

        return elements

    def dots(self, ax):
        elements = []

        for collection in ax.collections:
            offsets = collection.get_offsets()
            self.take(len(offsets))
            elements.append({
                'label': label_of(collection, 'Scatter'),
                'points': [[place(ax.xaxis, x), place(ax.yaxis, y)]
                           for x, y in offsets]})

        return elements

    # ---- slices, bars -----------------------------------------------------

    def slices(self, ax):
        self.take(len(ax.patches))

        return [{'label': text(wedge.get_label()) or '',
                 'angle': abs(round(float(wedge.theta2 - wedge.theta1), 4)),
                 'radius': plain(wedge.r)} for wedge in ax.patches]

    def bars(self, ax, chart):
        from matplotlib.container import BarContainer

        elements = []
        bars = [c for c in ax.containers if isinstance(c, BarContainer)]

        # Rectangles that are nobody's bars.
        if sum(len(container) for container in bars) != len(ax.patches):
            return None

        lying = bool(bars) and all(
            getattr(container, 'orientation', None) == 'horizontal'
            for container in bars)
        labels(ax, chart, lying)
        names = names_of(ax.yaxis if lying else ax.xaxis)

        for container in bars:
            group = label_of(container, 'Group')
            self.take(len(container))

            for bar in container:
                at, size, value = (bar.get_y(), bar.get_height(),
                                   bar.get_width())
                if not lying:
                    at, size, value = bar.get_x(), value, size
                elements.append({
                    'label': name_at(names, at + size / 2, at),
                    'group': group,
                    'value': plain(value)})

        return elements

    # ---- boxes ------------------------------------------------------------

    def boxes(self, ax, chart):
        self.take(len(ax.patches))
        self.take(sum(len(line.get_xdata()) for line in ax.lines))

        for lying in (False, True):
            elements = boxes(ax, lying)
            if elements is not None:
                labels(ax, chart, lying)
                return elements

        return None


def boxes(ax, lying):
    """None: these are not, when seen so."""
    first, second = (1, 0) if lying else (0, 1)
    names = names_of(ax.yaxis if lying else ax.xaxis)
    found = []

    for patch in ax.patches:
        vertices = patch.get_path().vertices
        across, along = vertices[:, first], vertices[:, second]
        found.append({'from': float(min(across)), 'to': float(max(across)),
                      'low': float(min(along)), 'high': float(max(along)),
                      'median': None, 'width': 0, 'min': None, 'max': None,
                      'points': []})

    for line in ax.lines:
        data = [float(v) for v in line.get_xdata()], \
            [float(v) for v in line.get_ydata()]
        across, along = data[first], data[second]
        box = next((box for box in found if across and
                    all(reaches(box['from'], v, box['to']) for v in across)),
                   None)

        if box is None:
            continue
        if line.get_linestyle() in ('None', ' ', ''):
            box['points'] += along
        elif len(across) == 2:
            part(box, across, along)

    elements = []

    for box in found:
        if None in (box['median'], box['min'], box['max']):
            return None

        center = (box['from'] + box['to']) / 2
        elements.append({
            'label': name_at(names, center, center),
            'min': box['min'],
            'first_quartile': box['low'],
            'median': box['median'],
            'third_quartile': box['high'],
            'max': box['max'],
            'outliers': [v for v in box['points']
                         if not box['min'] <= v <= box['max']]})

    return elements


def part(box, across, along):
    """A whisker, or the widest line across the box."""
    if same(along[0], along[1]) and not same(across[0], across[1]):
        width = abs(across[1] - across[0])
        if reaches(box['low'], along[0], box['high']) \
                and width > box['width'] * 1.001:
            box['median'], box['width'] = along[0], width
    elif same(across[0], across[1]):
        low, high = min(along), max(along)
        if same(high, box['low']) and box['min'] is None:
            box['min'] = low
        elif same(low, box['high']):
            box['max'] = high


def same(a, b):
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def reaches(low, value, high):
    return low <= value <= high or same(low, value) or same(value, high)


# ---- what an axes has ------------------------------------------------------

def kind_of(ax):
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch, Rectangle, Wedge
    from matplotlib.text import Text

    if hasattr(ax, 'get_zlim'):
        return 'unknown'

    children = [child for child in
                [*ax.lines, *ax.patches, *ax.collections, *ax.images,
                 *ax.tables, *ax.artists] if not isinstance(child, Text)]

    def all_are(*kinds):
        return all(isinstance(child, kinds) for child in children)

    if all_are(Line2D):
        return 'line'
    if all_are(PathPatch, Line2D):
        return 'box_and_whisker'

    # Lines that only show where something is.
    children = [child for child in children
                if not (isinstance(child, Line2D)
                        and (is_rule(child, ax) or is_straight(child)))]

    for kind, cls in (('scatter', PathCollection), ('pie', Wedge),
                      ('bar', Rectangle)):
        if all_are(cls):
            return kind

    return 'unknown'


def is_rule(line, ax):
    """From one side to the other, as axhline() draws them."""
    return line.get_transform() != ax.transData


def is_straight(line):
    x, y = line.get_xdata(), line.get_ydata()
    return len(x) == 2 and bool(x[0] == x[1] or y[0] == y[1])


def labels(ax, chart, lying=False):
    told = [text(ax.get_xlabel()), text(ax.get_ylabel())]
    if lying:
        told.reverse()

    for name, label in zip('xy', told):
        chart[name + '_label'] = label
    for name, label in zip('xy', told):
        chart[name + '_unit'] = unit(label)


def unit(label):
    """Of "Length (cm)" or "Length [cm]"."""
    match = re.search(r'\s\(([^()]+)\)|\[([^][]+)\]', label or '')
    return (match.group(1) or match.group(2)) if match else None


def label_of(artist, word):
    """Those that matplotlib makes up have a number at their end."""
    label = str(artist.get_label())
    match = re.match(r'_[a-z]+(\d+)$', label)
    return '%s %s' % (word, match.group(1)) if match else label[:TEXT_MAX]


def converter(axis):
    get = getattr(axis, 'get_converter', None)
    return get() if get is not None else axis.converter


def is_time(axis):
    return 'Date' in type(converter(axis)).__name__


def is_named(axis, ticks, marks):
    if 'Category' in type(converter(axis)).__name__:
        return True

    return len(ticks) > 0 and len(ticks) == len(marks) \
        and all(tick == i and mark != str(i)
                for i, (tick, mark) in enumerate(zip(ticks, marks))) \
        and not any(is_number(mark) for mark in marks)


def is_number(mark):
    try:
        float(mark.replace('\N{MINUS SIGN}', '-'))
        return True
    except ValueError:
        return False


def names_of(axis):
    return [(float(tick), label.get_text()) for tick, label
            in zip(axis.get_majorticklocs(), axis.get_majorticklabels())]


def name_at(names, *places):
    """What is written there; or the place itself."""
    for at in places:
        for tick, name in names:
            if name and abs(tick - at) <= 1e-6 * max(1, abs(at)):
                return name[:TEXT_MAX]

    return '%g' % places[0]


# ---- values ----------------------------------------------------------------

def text(value):
    return str(value)[:TEXT_MAX] or None


def place(axis, value):
    """On an axis, as it is written there."""
    if is_time(axis):
        import matplotlib.dates
        try:
            return matplotlib.dates.num2date(value).isoformat()
        except (ValueError, OverflowError):
            return plain(value)

    if 'Category' in type(converter(axis)).__name__:
        return name_at(names_of_units(axis), float(value))

    return plain(value)


def names_of_units(axis):
    return [(number, name) for name, number in axis.units._mapping.items()]


def plain(value):
    """A number, a string, or None for what is no number."""
    if isinstance(value, (str, bool)):
        return value[:TEXT_MAX] if isinstance(value, str) else value
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat() if value == value else None
    if type(value).__name__ == 'datetime64':
        return None if value != value else str(value)
    if hasattr(value, 'item') and getattr(value, 'ndim', 0) == 0:
        value = value.item()
    if isinstance(value, decimal.Decimal):
        value = float(value)
    if isinstance(value, (int, float)):
        return value if value - value == 0 and abs(value) < 1 << 1000 \
            else None

    return None if value is None else str(value)[:TEXT_MAX]


# ---- for the bundle --------------------------------------------------------

def of(figure):
    """None: there is nothing to tell."""
    try:
        return Reader().figure(figure)
    except TooMany:
        return {'type': 'unknown', 'title': None, 'elements': [],
                'omitted': 'more than %d points' % POINTS_MAX}
    except Exception as e:
        return {'type': 'unknown', 'title': None, 'elements': [],
                'omitted': type(e).__name__}
