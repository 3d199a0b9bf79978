#!/bin/sh
# Runs a benchmark at tiny sizes and checks that its files are there and can be read: test.sh PROGRAM NAME
set -eu
program=$1
name=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

"$program" --quick --runs 1 --sizes 50,400 --out "$out" >"$out/table"
grep -q '400 ' "$out/table"

python3 - "$out" "$name" <<'PYTHON'
import glob, json, os, sys
import xml.etree.ElementTree as xml

out, name = sys.argv[1:]
with open(os.path.join(out, name + ".json")) as f:
    report = json.load(f)
found = {(r["measure"], r["size"], r["rival"]): r["value"] for r in report["results"]}
assert found, "no results"
for measure in report["measures"]:
    for rival in report["rivals"]:
        values = [v for (m, _, r), v in found.items() if m == measure["id"] and r == rival["name"]]
        assert values and min(values) >= 0, (measure["id"], rival["name"], values)

page = open(os.path.join(out, name + ".md")).read()
charts = glob.glob(os.path.join(out, name + "-*.svg"))
assert charts, "no charts"
for chart in charts:
    root = xml.parse(chart).getroot()
    assert root.tag.endswith("svg") and root.find("{http://www.w3.org/2000/svg}title") is not None, chart
    assert os.path.basename(chart) in page, chart
PYTHON

if "$program" --only nothing >"$out/table" 2>&1; then
    echo "an unknown measure was accepted" >&2
    exit 1
fi
