#!/usr/bin/env python3
"""run_cuda.py [--quick] [--list] [--flavour VERSION:BACKEND]... [PATTERN...]

Runs the scenarios of real PyTorch trainings over NCCL on the asynchronous stand-in CUDA libraries, all or
those whose name contains a PATTERN. A flavour is a torch and its NCCL backend: 2.15.0:nccl2, 2.15.0:classic
and 2.9.1:classic if none is named. --quick: the subset for every `make test`, on the first of them. Prints
one line a scenario, and a closing line "N passed, N failed, N skipped"; leaves with 1 if any failed. A
failed run's files are kept.
"""
import argparse
import subprocess
import sys
import time

from cuda_bench import CudaBench, Flavour, Skip, simcuda
from cuda_scenarios import SCENARIOS
from harness import TREE, Checks

FLAVOURS = ("2.15.0:nccl2", "2.15.0:classic", "2.9.1:classic")
SHOWN = 8  # failures printed a scenario


def one(bench, name, function):
    """Runs a scenario; gives 'passed', 'failed' or 'skipped'."""
    begun, c, trouble = time.monotonic(), Checks(), []
    try:
        function(bench, c)
    except Skip as reason:
        print(f"SKIP  {bench.torch.name}: {name}: {reason}", flush=True)
        return "skipped"
    except (RuntimeError, OSError, LookupError, TypeError, ValueError, AssertionError,
            subprocess.TimeoutExpired) as error:
        trouble.append(f"{type(error).__name__}: {error}")
    trouble += c.failures
    took = f"({c.count} checks, {time.monotonic() - begun:.0f} s)"
    print(f"{'FAIL' if trouble else 'ok  '}  {bench.torch.name}: {name} {took}", flush=True)
    for text in trouble[:SHOWN]:
        print(f"      {text}")
    if len(trouble) > SHOWN:
        print(f"      and {len(trouble) - SHOWN} more")
    return "failed" if trouble else "passed"


def on_flavour(flavour, wanted):
    try:
        bench = CudaBench(flavour, TREE / "build")
    except OSError as error:
        sys.exit(f"run_cuda: {error}")
    results = [one(bench, name, function) for name, function in wanted]
    if "failed" in results:
        print(f"      files of the runs: {bench.scratch}")
    else:
        bench.clean()
    return results


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--flavour", action="append", default=[], metavar="VERSION:BACKEND")
    parser.add_argument("patterns", nargs="*")
    return parser.parse_args()


def main():
    options = arguments()
    flavours = options.flavour or (FLAVOURS[:1] if options.quick else FLAVOURS)
    wanted = [(name, quick, only, function) for name, quick, only, function in SCENARIOS
              if (quick or not options.quick)
              and (not options.patterns or any(p in name for p in options.patterns))]
    if options.list:
        print("\n".join(name for name, *_ in wanted))
        return 0
    for file in ("laggard", "liblaggard.so"):
        if not (TREE / "build" / file).exists():
            sys.exit(f"run_cuda: build/{file} is not there; run make")
    if not wanted:
        sys.exit("run_cuda: no scenario has such a name")
    results = []
    for number, text in enumerate(flavours):
        version, _, backend = text.partition(":")
        try:
            flavour = Flavour(version, backend)
        except simcuda.Unavailable as why:
            print(f"SKIP  {text}: {why}", flush=True)
            results.append("skipped")
            continue
        results += on_flavour(flavour, [(name, function) for name, _, once, function in wanted
                                        if number == 0 or not once])
    print(", ".join(f"{results.count(r)} {r}" for r in ("passed", "failed", "skipped")))
    return 1 if "failed" in results else 0


if __name__ == "__main__":
    sys.exit(main())
