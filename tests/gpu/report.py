"""What ./dev gpu tells of its measurements: ours beside PyTorch's, its best way, and what was predicted for the card."""
import json, re

SHORTER_IS_BETTER = ("us", "ms")


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def key(line):
    """The benchmark and its sizes: what lines of the same measurement have in common."""
    return " ".join([line["bench"], *(f"{k}={v}" for k, v in line.items() if k not in ("system", "bench", "value", "unit", "way"))])


def predictions(file):
    """{key: (low, high)} of the table of measurements, whose last column is "a" or "a to b"."""
    with open(file) as of:
        tables = json.load(of)["tables"]
    found = {}
    for measurements in (t for t in tables if t["columns"][0] == "measurement"):
        for row in measurements["rows"]:
            numbers = [float(n) for n in re.findall(r"[\d.]+", row[-1])]
            found[re.sub(r" \(.*\)$", "", row[0])] = (numbers[0], numbers[-1])
    return found


def ratio(line, peer):
    """Speed: above 1, ours is faster."""
    quotient = peer["value"] / line["value"] if line["unit"] in SHORTER_IS_BETTER else line["value"] / peer["value"]
    return f"{quotient:.2f}"


def best(lines):
    return (min if lines[0]["unit"] in SHORTER_IS_BETTER else max)(lines, key=lambda line: line["value"])


def beside(value, expected):
    """How a measurement lies to its prediction."""
    low, high = expected
    if low <= value <= high:
        return "as predicted"
    return f"{value / (low if value < low else high):.2f} times {'the least' if value < low else 'the most'} of it"


def cells(line, peers, expected):
    eager = [p for p in peers if "way" not in p]
    told = [f"{eager[0]['value']:g}", ratio(line, eager[0])] if eager else ["not measured", ""]
    if any("way" in p for p in peers):
        fastest = best(peers)
        told += [f"{fastest['value']:g} ({fastest.get('way', 'eager')})", ratio(line, fastest)]
    else:
        told += ["", ""]
    if expected:
        low, high = expected
        told += [f"{low:g}" if low == high else f"{low:g} to {high:g}", beside(line["value"], expected)]
    else:
        told += ["", ""]
    return [f"{key(line)} ({line['unit']})", f"{line['value']:g}", *told]


def table(ours, theirs, predicted):
    """Rows of the same benchmark and sizes. What was predicted and not measured is a row, too."""
    systems = [lines[0]["system"] if lines else "PyTorch" for lines in (ours, theirs)]
    rows = [["", systems[0] if ours else "troupe", systems[1], "ratio", "its best way", "ratio", "predicted", "measured"]]
    for line in ours:
        rows.append(cells(line, [p for p in theirs if key(p) == key(line)], predicted.get(key(line))))
    measured = {key(line) for line in ours}
    for name in (n for n in predicted if n not in measured):
        low, high = predicted[name]
        rows.append([name, "not measured", "", "", "", "", f"{low:g} to {high:g}", ""])
    rows[1:1] = [["---"] * len(rows[0])]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)
