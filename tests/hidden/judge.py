"""What a report says about a training, and whether that is the truth."""
import json
import subprocess

from trainings import LAGGARD

ACCUSING = ("STRAGGLER", "INPUT_STRAGGLER", "H2D_STRAGGLER", "COMPUTE_STRAGGLER", "BACKWARD_STRAGGLER",
            "OPTIMIZER_STRAGGLER", "HOST_STRAGGLER")
DEVICE_STAGES = ("forward+backward", "forward", "backward")  # what a slow device may be called


def ask(run, *arguments):
    """The report of a run directory."""
    done = subprocess.run([LAGGARD, "report", run, "--format", "json", *arguments], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"laggard report: status {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def answer(report):
    """What is kept of a report until the list is opened."""
    verdict = report["verdict"]
    return {"kind": verdict["kind"], "severity": verdict["severity"], "rank": verdict["rank"],
            "stage": verdict["stage"], "recurrence": verdict["recurrence"], "score": verdict["score"],
            "sentence": verdict["sentence"], "clock": report["run"]["clock"],
            "published": [report["published"]["kind"], report["published"]["worst_rank"]],
            "suspects": [[s["rank"], s["stage"], s["late_ns_per_step"]] for s in report["suspects"][:4]],
            "ranks": [[r["rank"], r["dur_ns"], r["sync_ns"], r["device_wait_ns"]]
                      for r in report["ranks"]]}


def is_truth(fault, rank, stage):
    stages = DEVICE_STAGES if fault["stage"] == "device" else (fault["stage"],)
    return rank == fault["rank"] and stage in stages


def judge(fault, said):
    """(verdict names the culprit, first in verdict or suspects, among the first two)"""
    verdict = is_truth(fault, said["rank"], said["stage"])
    suspects = [is_truth(fault, rank, stage) for rank, stage, _ in said["suspects"]]
    return verdict, verdict or any(suspects[:1]), verdict or any(suspects[:2])


def names_somebody(said):
    return said["rank"] is not None or said["kind"] in ACCUSING


def numbers(said):
    """Lines that tell what a verdict was made of."""
    yield f"{said['kind']} ({said['severity']}), {said['clock']} clock: {said['sentence']}"
    yield "suspects: " + (", ".join(f"rank {r} {s} {late / 1e6:.2f} ms" for r, s, late in said["suspects"])
                          or "none")
    yield "ms a step (in collectives, waiting for the device): " + ", ".join(
        f"rank {r} {dur / 1e6:.1f} ({(sync or 0) / 1e6:.1f}, {(wait or 0) / 1e6:.1f})"
        for r, dur, sync, wait in said["ranks"] if dur)
