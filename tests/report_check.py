#!/usr/bin/env python3
"""Opens a report in a real browser and looks at what its script made of it.

Usage: tests/report_check.py MOESAIC    the binary; trains a small run, makes its page, moves over it
Needs Chromium; without it, exits with 77, which ctest shows as skipped. What must hold: no error on the console, a heat map and a
timeline drawn, the read-out of a chart showing the value of metrics.jsonl, smoothing and hiding a run having their effect."""
import html.parser
import json
import os
import shutil
import subprocess
import sys
import tempfile

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# Acts as a reader would, then leaves what a reader would see in the page.
ACT = """<script>
const seen = {};
const point = (selector, type, x, y) => {
  const element = document.querySelector(selector), box = element.getBoundingClientRect();
  element.dispatchEvent(new PointerEvent(type, {clientX: box.left + box.width * x, clientY: box.top + box.height * y, bubbles: true}));
};
const text = selector => document.querySelector(selector).textContent;
const count = selector => document.querySelectorAll(selector).length;
point('[data-chart="0"] .plot', 'pointermove', 1, .5);
seen.at = text('[data-chart="0"] output');
seen.loss = +text('[data-chart="0"] output b');
seen.norm = text('[data-chart="1"] output');
point('.heat .plot', 'pointermove', 0, 0);
seen.heat = text('.heat output');
seen.cells = count('.heat .cells path');
const select = document.querySelector('.heat select');
select.selectedIndex = 0;
select.dispatchEvent(new Event('change'));
seen.layers = [...document.querySelectorAll('.heat .yt')].map(label => label.textContent);
seen.spans = count('.timeline .cells path');
seen.from = text('.timeline .xt');
for (const [type, x] of [['pointerdown', .4], ['pointermove', .6], ['pointerup', .6]]) point('.timeline .plot', type, x, .1);
seen.enlarged = text('.timeline .xt');
const slider = document.getElementById('smoothing');
slider.value = .5;
slider.dispatchEvent(new Event('input'));
seen.smoothed = count('[data-chart="0"] .smoothed');
document.querySelector('[data-toggle="1"]').click();
seen.hidden = [...document.querySelectorAll('path.line')].filter(path => path.style.display === 'none').length;
document.body.dataset.seen = JSON.stringify(seen);
</script></body>"""


class Body(html.parser.HTMLParser):
    seen = None

    def handle_starttag(self, tag, attributes):
        if tag == "body":
            self.seen = dict(attributes).get("data-seen")


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    if BROWSER is None:
        print("there is no Chromium here: nothing is checked")
        return 77
    moesaic = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as work:
        def run(*arguments):
            subprocess.run([moesaic, *arguments], cwd=work, check=True, stdout=subprocess.DEVNULL)

        with open(os.path.join(work, "text.txt"), "w") as text:
            text.writelines(f"line {i} of a text to train on\n" for i in range(1500))
        with open(os.path.join(work, "run.toml"), "w") as config:
            config.write('[model]\npreset = "tiny"\n[layout]\nn = 2\n[data]\ntrain = "text"\n[train]\nsteps = 8\nseq_len = 32\ntrace_steps = [5]\n')
        run("data", "prepare", "text.txt", "text")
        for name in "a", "b":
            run("train", "run.toml", "--set", f"run.name={name}", "--set", f"train.seed={ord(name)}")
        run("report", "runs/a", "runs/b", "--out", "page.html")
        page = os.path.join(work, "page.html")
        with open(page) as file:
            content = file.read()
        with open(page, "w") as file:
            file.write(content.replace("</body>", ACT))
        shown = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
                                f"--user-data-dir={work}/profile", "--dump-dom", "file://" + page],
                               capture_output=True, text=True, timeout=120, check=True)
        with open(os.path.join(work, "runs/a/metrics.jsonl")) as lines:
            last = [json.loads(line) for line in lines][-1]
    errors = [line for line in shown.stderr.splitlines() if "CONSOLE" in line]
    body = Body()
    body.feed(shown.stdout)
    if errors or body.seen is None:
        print("the script failed:", *errors, sep="\n")
        return 1
    seen = json.loads(body.seen)
    checks = {
        "the read-out names the last step": seen["at"].startswith("step 7") and seen["norm"].startswith("step 7"),
        "the read-out is the loss": abs(seen["loss"] - last["loss"]) < 1e-4 * last["loss"],
        "the heat map has cells": seen["cells"] > 1,
        "its read-out names expert and step": seen["heat"].startswith("expert 0, step 0"),
        "it shows all layers when asked": seen["layers"] == ["layer 0", "layer 1"],
        "the timeline has operations": seen["spans"] > 3,
        "the timeline can be enlarged": seen["enlarged"] != seen["from"],
        "both runs are smoothed": seen["smoothed"] == 2,
        "a run can be hidden": seen["hidden"] > 3,
    }
    failed = [name for name, holds in checks.items() if not holds]
    for name in failed:
        print(f"FAILED: {name}: {seen}")
    if not failed:
        print(f"the page in a browser: {len(checks)} checks, all as expected")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
