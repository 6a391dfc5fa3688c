"""Line charts as SVG, without any library: axes, ticks, legend, error bars."""
import math
from html import escape

WIDTH, HEIGHT = 660, 430
LEFT, RIGHT, BOTTOM = 66, 24, 74
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9"]
GREY, LIGHT, DARK = "#777777", "#e4e4e4", "#222222"
FONT = 'font-family="Helvetica, Arial, sans-serif"'
LETTER = 0.56  # mean width of a letter, of the font's size


def text_width(text, size=12):
    return LETTER * size * len(text)


def label(value):
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def linear_ticks(low, high):
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(m for m in (1, 2, 2.5, 5, 10) if (high - low) / (step * m) <= 6)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low, high):
    """Round numbers between low and high: as few to the decade as give at least four."""
    ticks = []
    for digits in ([1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1 + i / 10 for i in range(90)]):
        ticks = [d * 10 ** e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
                 for d in digits if low <= d * 10 ** e <= high]
        if len(ticks) >= 4:
            break
    return ticks


class Axis:
    """Maps values to pixels. From 0 when linear; a little beyond the values when logarithmic."""

    def __init__(self, values, start, end, log):
        self.log, self.start, self.end = log, start, end
        self.low, self.high = min(values), max(values)
        if log:
            room = max((self.high / self.low) ** 0.06, 1.02)
            self.low, self.high = self.low / room, self.high * room
        else:
            self.low, self.high = 0, self.high * 1.06
        if self.low == self.high:
            self.high = self.low + 1

    def __call__(self, value):
        a, b = self.low, self.high
        if self.log:
            a, b, value = math.log(a), math.log(b), math.log(value)
        return self.start + (value - a) / (b - a) * (self.end - self.start)

    def ticks(self):
        return log_ticks(self.low, self.high) if self.log else linear_ticks(self.low, self.high)


def legend_rows(names):
    """The names in rows that fit, each with its x."""
    rows, x = [[]], LEFT
    for name in names:
        width = 34 + text_width(name) + 14
        if rows[-1] and x + width > WIDTH - 8:
            rows.append([])
            x = LEFT
        rows[-1].append((x, name))
        x += width
    return rows


def draw(chart):
    """The chart as SVG text. chart: title, x, y (axis titles), x_log, y_log, footer, and series: name, points [x, y] or
    [x, y, low, high], and `ideal` for the dashed straight line."""
    series = [s for s in chart["series"] if s["points"]]
    rows = legend_rows([s["name"] for s in series])
    top = 62 + 19 * len(rows)
    xs = sorted({p[0] for s in series for p in s["points"]})
    x = Axis(xs, LEFT, WIDTH - RIGHT, chart["x_log"])
    y = Axis([v for s in series for p in s["points"] for v in p[1:]], HEIGHT - BOTTOM, top, chart["y_log"])
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
           f'role="img" {FONT} font-size="12">', f'<title>{escape(chart["title"])}</title>',
           f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#ffffff"/>',
           f'<text x="{LEFT}" y="26" font-size="15" font-weight="bold" fill="{DARK}">{escape(chart["title"])}</text>']

    def text(px, py, content, anchor="middle", colour=DARK, size=12):
        out.append(f'<text x="{px:.1f}" y="{py:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">'
                   f'{escape(content)}</text>')

    def line(x1, y1, x2, y2, colour, more=""):
        out.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{more}/>')

    # Grid and ticks: on y round numbers, on x the measured values where there is room for them.
    last = math.inf
    for value in y.ticks():
        line(LEFT, y(value), WIDTH - RIGHT, y(value), LIGHT)
        if last - y(value) >= 15:
            text(LEFT - 7, y(value) + 4, label(value), "end")
            last = y(value)
    last = -math.inf
    for value in xs:
        line(x(value), y.start, x(value), y.start + 5, GREY)
        if x(value) - last >= text_width(label(value)) / 2:
            text(x(value), y.start + 19, label(value))
            last = x(value) + text_width(label(value)) / 2 + 8
    line(LEFT, y.start, WIDTH - RIGHT, y.start, GREY)
    line(LEFT, top, LEFT, y.start, GREY)
    text((LEFT + WIDTH - RIGHT) / 2, y.start + 39, chart["x"])
    text(LEFT - 50, top - 10, chart["y"], "start")
    text(WIDTH - RIGHT, HEIGHT - 10, chart["footer"], "end", GREY, 10)

    styles, colours = {}, iter(COLOURS * len(series))
    for s in series:
        ideal = s.get("ideal", False)
        colour = GREY if ideal else next(colours)
        styles[s["name"]] = (colour, ' stroke-dasharray="6 4"' if ideal else "", ideal)
    for row, names in enumerate(rows):
        for px, name in names:
            colour, dash, ideal = styles[name]
            py = 44 + 19 * row
            line(px, py, px + 26, py, colour, f' stroke-width="2"{dash}')
            if not ideal:
                out.append(f'<circle cx="{px + 13}" cy="{py}" r="3.5" fill="{colour}"/>')
            text(px + 33, py + 4, name, "start")
    # The ideal line lies beneath the measured ones.
    for s in sorted(series, key=lambda s: not s.get("ideal", False)):
        colour, dash, ideal = styles[s["name"]]
        path = " ".join(f"{x(p[0]):.1f},{y(p[1]):.1f}" for p in s["points"])
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{1.5 if ideal else 2}"{dash}/>')
        if ideal:
            continue
        for p in s["points"]:
            if len(p) == 4 and abs(y(p[2]) - y(p[3])) > 8:
                line(x(p[0]), y(p[2]), x(p[0]), y(p[3]), colour, ' stroke-opacity="0.5"')
            out.append(f'<circle cx="{x(p[0]):.1f}" cy="{y(p[1]):.1f}" r="3.5" fill="{colour}"/>')
    out.append("</svg>")
    return "\n".join(out) + "\n"
