#!/usr/bin/env python3
"""hidden_rank.py [--seed N] [--faults N] [--quick] [--no-controls] [--only TEXT] [--dir DIR] [--show]

Draws a sealed list of faults (plan.py), runs each training under `laggard run`, asks `laggard report`,
writes the answers down, and only then opens the list: how often is the culprit, rank and stage, the
verdict's or the first suspect, how often among the first two? Then the controls, in which nobody is to
blame (controls.py). Prints every miss with its numbers.

--quick    a dozen faults and six controls: part of every `make test`
--only     trainings whose backend or name contains the text
--dir      keep the list, the run directories and the answers there; what is already answered there is
           not run again
--show     the answers that were right too
Passed: at least 49 of 50 first, all among the first two, no control names a rank (as many parts of what
was run). The closing line is "N passed, N failed[, N skipped]".
"""
import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import controls
import plan
import trainings
from judge import answer, ask, judge, names_somebody, numbers

FIRST = 0.98  # of the faults: culprit first


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-controls", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--show", action="store_true")
    return parser.parse_args()


class Place:
    """Where the trainings leave their runs, and the answers."""

    def __init__(self, directory):
        self.kept = directory is not None
        self.path = directory or Path(tempfile.mkdtemp(prefix="laggard-hidden-"))
        self.path.mkdir(parents=True, exist_ok=True)
        self.path = self.path.resolve()

    def answer(self, name, start):
        """Runs a training by start(directory), which gives the run directory, and asks laggard."""
        written = self.path / f"{name}.json"
        if written.exists():
            return json.loads(written.read_text())
        directory = self.path / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        try:
            said = answer(ask(start(directory)))
        except trainings.Unavailable as why:
            return {"skipped": str(why)}
        except (RuntimeError, OSError) as error:
            return {"failed": str(error)}
        written.write_text(json.dumps(said))
        if not self.kept:
            shutil.rmtree(directory)
        return said

    def close(self):
        if not self.kept:
            shutil.rmtree(self.path)


class Score:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def skip(self, name, why):
        self.skipped += 1
        print(f"SKIP {name}: {why}", flush=True)

    def check(self, holds, text):
        self.passed += bool(holds)
        self.failed += not holds
        print(f"{'ok  ' if holds else 'FAIL'} {text}", flush=True)


def describe(entry):
    fault = entry["fault"]
    when = {"always": "", "late": f" from step {fault['first']} on",
            "periodic": f" each {fault['every']}th step"}[fault["pattern"]]
    return (f"{entry['backend']}{' (' + entry['job'] + ')' if 'job' in entry else ''}, {entry['steps']} "
            f"steps: rank {fault['rank']}, {fault['stage']}, {100 * fault['size']:.0f} %{when}")


def show(title, said):
    print(f"     {title}")
    for line in numbers(said):
        print(f"       {line}")


def hidden(place, options, score):
    """The sealed list, the answers, and their comparison."""
    count = options.faults or (12 if options.quick else 50)
    sealed = place.path / f"sealed-{options.seed}-{count}{'-quick' * options.quick}.json"
    sealed.write_text(json.dumps(plan.make(options.seed, count, options.quick)))
    answers, begun = {}, time.monotonic()
    for n, entry in enumerate(json.loads(sealed.read_text())):
        if options.only in entry["backend"]:
            answers[n] = place.answer(f"{sealed.stem[7:]}-{n:02}",
                                      lambda d, e=entry: trainings.run(trainings.entry_script(e, d), d))
            print(f"... {n + 1} of {count} ({time.monotonic() - begun:.0f} s)", flush=True)
    if answers:
        compare(json.loads(sealed.read_text()), answers, score, options.show)


def compare(entries, answers, score, show_all):
    tally = {"verdict": 0, "first": 0, "two": 0, "of": 0}
    for n, said in answers.items():
        name = describe(entries[n])
        if "skipped" in said:
            score.skip(name, said["skipped"])
        elif "failed" in said:
            score.check(False, f"{name}: {said['failed']}")
        else:
            verdict, first, two = judge(entries[n]["fault"], said)
            for key, holds in (("verdict", verdict), ("first", first), ("two", two), ("of", True)):
                tally[key] += holds
            if show_all or not (verdict and first):
                word = "right" if verdict else "verdict elsewhere" if first else "second" if two else "MISSED"
                show(f"{n}: {word}: {name}", said)
    if not tally["of"]:
        return
    print(f"     culprit (rank and stage) named by the verdict: {tally['verdict']} of {tally['of']}")
    score.check(tally["first"] >= int(FIRST * tally["of"]),
                f"hidden ranks: culprit first in {tally['first']} of {tally['of']}")
    score.check(tally["two"] == tally["of"],
                f"hidden ranks: culprit among the first two in {tally['two']} of {tally['of']}")


def nobody(place, options, score):
    clean = asked = 0
    for n, (name, start) in enumerate(controls.chosen(options.quick)):
        if options.only not in name:
            continue
        said = place.answer(f"control-{name.partition(':')[0].replace(', ', '-')}-{n:02}", start)
        if "skipped" in said:
            score.skip(name, said["skipped"])
        elif "failed" in said:
            score.check(False, f"{name}: {said['failed']}")
        else:
            asked, clean = asked + 1, clean + (not names_somebody(said))
            score.check(not names_somebody(said), f"nobody: {name}: {said['kind']}")
            if options.show or names_somebody(said):
                show(name, said)
    if asked:
        print(f"     controls: {clean} of {asked} name nobody")


def main():
    options, score = arguments(), Score()
    for path in (Path(trainings.LAGGARD), trainings.TRAINER):
        if not path.exists():
            sys.exit(f"hidden_rank: {path} is not there; run make")
    place, begun = Place(options.dir), time.monotonic()
    hidden(place, options, score)
    if not options.no_controls:
        nobody(place, options, score)
    place.close()
    print(f"     seed {options.seed}, {time.monotonic() - begun:.0f} s")
    print(f"{score.passed} passed, {score.failed} failed"
          + (f", {score.skipped} skipped" if score.skipped else ""))
    sys.exit(1 if score.failed or not score.passed else 0)


if __name__ == "__main__":
    main()
