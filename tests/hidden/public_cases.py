#!/usr/bin/env python3
"""public_cases.py [NAME...]: what users of other tools reported, as real runs of the C trainer with known
answers, on the blocking and on the asynchronous stand-ins. (tests/scenarios/attribution_rows has the
same and more as rows, trainer_verdicts the plain faults, tests/torch* what needs PyTorch.)"""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import trainings
from controls import import_rows, other_clocks, rows_of
from judge import ACCUSING, ask
from trainings import ASYNCHRONOUS, TRAINER

BASE = "--ranks 4 --steps 60"
CASES = []


class Wrong(Exception):
    """The answer is not what it should be."""


def case(function):
    CASES.append(function)
    return function


def holds(condition, text):
    if not condition:
        raise Wrong(str(text))


class Place:
    """One run after another in a directory of the case's own."""

    def __init__(self, path):
        self.path, self.number = path, 0

    def run(self, options, environment=None):
        self.number += 1
        directory = self.path / str(self.number)
        directory.mkdir()
        return trainings.run(trainings.trainer(directory, f"{BASE} {options}", environment), directory)

    def report(self, options, environment=None):
        return ask(self.run(options, environment))


def verdict(report, kind, rank, stage=None, **also):
    v = report["verdict"]
    holds(v["kind"] in (kind if isinstance(kind, tuple) else (kind,)), f"{v['kind']}: {v['sentence']}")
    holds(v["rank"] == rank, f"rank {v['rank']}: {v['sentence']}")
    holds(stage is None or v["stage"] == stage, f"stage {v['stage']}: {v['sentence']}")
    for key, value in also.items():
        holds(v[key] == value, f"{key} {v[key]}: {v['sentence']}")
    return report["findings"][0] if report["findings"] else None


def nobody(report):
    v = report["verdict"]
    holds(v["rank"] is None and v["kind"] not in ACCUSING, f"{v['kind']}, {v['rank']}: {v['sentence']}")


def mean(report, rank, column):
    return next(r[column] for r in report["ranks"] if r["rank"] == rank)


@case
def backward_before_a_collective(place):
    """01: 200 ms inside one rank's backward, before or after the first of three all-reduces"""
    for bucket in (1, 2):
        r = place.report(f"--steps 30 --buckets 3 --fault 1:backward:200000:bucket={bucket}")
        verdict(r, "BACKWARD_STRAGGLER", 1, "backward", recurrence="persistent", severity="critical")
        waits = [mean(r, rank, "sync_ns") / 1e6 for rank in range(4)]
        holds(all(180 < waits[rank] < 260 for rank in (0, 2, 3)) and waits[1] < 60, waits)


@case
def victims_are_not_blamed(place):
    """06: 60 ms of reading on rank 0; 60 % reading and 40 % copying: the rank, but no single cause"""
    r = place.report("--steps 30 --fault 0:input:60000")
    verdict(r, "INPUT_STRAGGLER", 0, "input")
    r = place.report("--steps 30 --fault 0:input:36000 --fault 0:h2d:24000")
    finding = verdict(r, "STRAGGLER", 0)
    holds({"input", "h2d"} <= set(finding["evidence"]["excess_ms"]), finding["evidence"])


@case
def batches_from_memory(place):
    """12: no reads: not measured without PyTorch, which is said and not taken for 0; the rest is judged"""
    r = place.report("--source ram --jitter 3")
    verdict(r, "INCOMPLETE_DATA", None)
    holds("input_wait" in r["verdict"]["sentence"], r["verdict"]["sentence"])
    holds(mean(r, 0, "input_wait_ns") is None and r["run"]["steps"]["aligned"] >= 58, r["ranks"][0])
    verdict(place.report("--source ram --fault 2:backward:20000"), "BACKWARD_STRAGGLER", 2, "backward")


@case
def slow_first_batches(place):
    """13: each epoch begins 1.5 s late on all ranks, validation in between: no steps, no straggler"""
    r = place.report("--forward-us 12000 --backward-us 16000 --epoch 20 --validate 5 "
                     "--fault *:input:1500000:every=20")
    nobody(r)
    holds(58 <= r["run"]["steps"]["aligned"] <= 60, r["run"]["steps"])
    pauses = [f for f in r["findings"] if f["kind"] == "HOST_PERIODIC"]
    holds(pauses and pauses[0]["stage"] == "input" and r["verdict"]["stage"] == "input", r["verdict"])
    holds({20, 40} <= set(pauses[0]["evidence"]["steps"]), pauses[0])


@case
def late_start_of_one_rank(place):
    """50: the first read of one rank takes 3 s"""
    nobody(place.report("--fault 3:input:3000000:to=0"))


@case
def rotating_reads(place):
    """51: each step another rank reads 50 ms longer: imbalance, not slow collectives"""
    r = place.report("--fault 0:input:50000:rotate")
    verdict(r, "IMBALANCE", None, "input", recurrence="rotating")
    holds("is a symptom" in r["verdict"]["sentence"], r["verdict"]["sentence"])


@case
def rank_0_reads_for_all(place):
    """52: rank 0 reads four batches a step, the others wait in Broadcast"""
    r = place.report("--steps 30 --source rank0 --accumulate 4 --batch-bytes 400000 --input-us 10000")
    verdict(r, "INPUT_STRAGGLER", 0, "input", recurrence="persistent")
    holds("only this rank reads" in r["verdict"]["sentence"], r["verdict"]["sentence"])
    holds(mean(r, 0, "reads") >= 4 and mean(r, 1, "reads") == 0, [x["reads"] for x in r["ranks"]])


@case
def pauses_in_turn(place):
    """57: every 13th step another rank stands still for 300 ms between optimizer and next input"""
    for environment, more in ((None, ""), (ASYNCHRONOUS, "--item")):
        r = place.report(f"--steps 92 {more} --fault 0:host:300000:every=13:phase=5:rotate", environment)
        verdict(r, "IMBALANCE", None, "host", recurrence="rotating")
        wall = [x["dur_ns"] * x["steps"] for x in r["ranks"]]
        holds(max(wall) - min(wall) < 0.03 * max(wall), wall)


@case
def checkpoints(place):
    """59: rank 0 writes a checkpoint each 20 steps; all write and rank 2 is slow at it"""
    for rank, other in ((0, ""), (2, "--fault *:host:40000:every=20:phase=19")):
        r = place.report(f"--steps 80 --checkpoint 20:4000000 {other} "
                         f"--fault {rank}:host:400000:every=20:phase=19")
        verdict(r, "HOST_STRAGGLER", rank, "host", recurrence="periodic", period=20)
        holds(all(f["kind"] != "COMM_BOUND" or f["severity"] == "info" for f in r["findings"]),
              [f["kind"] for f in r["findings"]])


@case
def compilation(place):
    """62: five slow steps at the start, one on rank 1 later"""
    r = place.report("--forward-us 5000 --fault *:forward:500000:from=1:to=5 "
                     "--fault 1:forward:250000:from=40:to=40")
    nobody(r)


@case
def sequence_lengths(place):
    """63: each rank draws a length each step; forward, backward and the bytes copied follow it"""
    for environment in (None, ASYNCHRONOUS):
        r = place.report("--forward-us 10000 --backward-us 16000 --lengths 40", environment)
        finding = verdict(r, "IMBALANCE", None, recurrence="rotating")
        e = finding["evidence"]
        holds(e["correlation_with_h2d_bytes"] > 0.8 and e["gain_of_balancing_ms_per_step"] > 3, e)


@case
def throttled_device(place):
    """64: compute of one rank takes 1.3 times as long from step 20 on; the host does not see it"""
    shape = "--steps 80 --forward-us 12000 --backward-us 16000 --buckets 4"
    rules = {**ASYNCHRONOUS, "SIM_STEP_COLLECTIVES": 4, "SIM_RULES": "kernel@2@step20-:x1.5"}
    for name, more, environment in (
            ("blocking", "--fault 2:forward:6000:from=20 --fault 2:backward:8000:from=20", None),
            ("asynchronous", "", rules)):
        r = place.report(f"{shape} {more}", environment)
        finding = verdict(r, "COMPUTE_STRAGGLER", 2, "forward+backward", recurrence="persistent")
        since = finding["evidence"].get("since_step")
        holds(since is not None and abs(since - 20) <= 2, f"{name}: since {since}")


@case
def slow_link(place):
    """68: all arrive together, the collectives take 80 ms"""
    for environment in ({}, ASYNCHRONOUS):
        r = place.report("--steps 40 --buckets 2", {**environment, "SIM_NCCL_US": 40000})
        finding = verdict(r, "COMM_BOUND", None, "sync", severity="critical")
        e = finding["evidence"]
        holds(e["arrival_spread_ms"] < 8 and 70 < e["transfer_ms"] < 95, e)


@case
def clocks_of_hosts(place):
    """69: clocks that are seconds apart and drift change nothing"""
    run = place.run("--fault 0:input:60000 --steps 40")
    plain = import_rows(place.path, rows_of(run), "plain")
    shifted = rows_of(run)
    for row in shifted:
        row["start_ns"] += {1: 5_000_000_000, 2: 0}.get(row["rank"], 11_560_000_000)
    reports = [ask(import_rows(place.path, shifted, "shifted")), ask(plain)]
    answers = [{k: v for k, v in r["verdict"].items() if k != "next"} for r in reports]
    holds(answers[0] == answers[1], answers)
    for r in (*reports, ask(import_rows(place.path, other_clocks(rows_of(run)), "drifting"))):
        verdict(r, "INPUT_STRAGGLER", 0, "input")


def main():
    wanted, passed, failed = sys.argv[1:], 0, 0
    if not TRAINER.exists():
        sys.exit(f"public_cases: {TRAINER} is not there; run make")
    folder = Path(tempfile.mkdtemp(prefix="laggard-cases-"))
    for function in CASES:
        name = function.__name__
        if wanted and not any(w in name for w in wanted):
            continue
        place = Place(folder / name)
        place.path.mkdir()
        try:
            function(place)
        except (Wrong, RuntimeError, OSError, LookupError, TypeError, subprocess.SubprocessError) as error:
            failed += 1
            print(f"FAIL {name} ({function.__doc__}): {type(error).__name__}: {error}", flush=True)
        else:
            passed += 1
            print(f"ok   {name}", flush=True)
        shutil.rmtree(place.path)
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
