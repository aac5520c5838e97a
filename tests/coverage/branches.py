"""Branches that no test took, with their reasons: python3 branches.py ROOT COVERAGE.json

A branch is a line of source and a way out of it. reasons.txt holds lines  FILE-PATTERN | REGULAR EXPRESSION OF THE SOURCE LINE | REASON.
"""

import fnmatch
import json
import pathlib
import re
import sys


def read_reasons(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            fields = [field.strip() for field in line.split(" | ", 2)]
            if len(fields) != 3:
                sys.exit(f"{path.name}:{number}: three fields are needed, separated by ' | '")
            yield fields[0], re.compile(fields[1]), fields[2]


def main():
    root = pathlib.Path(sys.argv[1])
    reasons = list(read_reasons(root / "tests/coverage/reasons.txt"))
    used = [0] * len(reasons)
    total = taken = unexplained = 0
    for entry in sorted(json.loads(pathlib.Path(sys.argv[2]).read_text())["files"], key=lambda e: e["file"]):
        name = entry["file"]
        source = (root / name).read_text().splitlines()
        missing = []
        for line in entry["lines"]:
            branches = line.get("branches", [])
            count = sum(1 for branch in branches if branch["count"] > 0)
            total += len(branches)
            taken += count
            if count < len(branches):
                missing.append((line["line_number"], len(branches) - count, len(branches)))
        for number, lacking, of in missing:
            text = source[number - 1].strip()
            found = next((i for i, (pattern, expression, _) in enumerate(reasons)
                          if fnmatch.fnmatch(name, pattern) and expression.search(text)), None)
            if found is None:
                unexplained += lacking
                print(f"{name}:{number}: {lacking} of {of} never taken, no reason: {text}")
            else:
                used[found] += lacking
    print("\nnever taken, by reason:")
    for (pattern, expression, reason), count in zip(reasons, used):
        print(f"{count:5}  {reason}  ({pattern}: {expression.pattern})")
    percent = 100.0 * taken / max(total, 1)
    print(f"branches: {total} in src/ without src/cli, {taken} taken ({percent:.1f} %), {total - taken} not, {unexplained} of these without a reason")
    return 0 if percent >= 90.0 and unexplained == 0 else 1


sys.exit(main())
