#!/bin/sh
# Runs a benchmark at tiny sizes and checks that its files are there and can be read: test.sh PROGRAM NAME [some]
#
# Every rival must have a figure for every measure; with `some` only ours, and the others for some of them.
set -eu
program=$1
name=$2
some=${3-}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

"$program" --quick --runs 1 --sizes 50,400 --out "$out" >"$out/table"
grep -q '400 ' "$out/table"

python3 - "$out" "$name" "$some" <<'PYTHON'
import glob, json, os, sys
import xml.etree.ElementTree as xml

out, name, some = sys.argv[1:]
with open(os.path.join(out, name + ".json")) as f:
    report = json.load(f)
found = {(r["measure"], r["size"], r["rival"]): r["value"] for r in report["results"]}
assert found, "no results"
assert min(found.values()) >= 0, found
for number, rival in enumerate(report["rivals"]):
    missing = {measure["id"] for measure in report["measures"]} - {m for (m, _, r) in found if r == rival["name"]}
    assert not missing or some and number > 0 and len(missing) < len(report["measures"]), (rival["name"], missing)

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
