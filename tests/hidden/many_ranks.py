#!/usr/bin/env python3
"""many_ranks.py [RANKS]: one run of the C trainer with 128 ranks, one of them slow: the right culprit, and
how large what is stored and reported is."""
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import trainings
from judge import ask

STEPS, CULPRIT = 60, 77
OTHERS_MB = 0.11  # what another tool reports for a window of 32 ranks


def main():
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 128
    folder = Path(tempfile.mkdtemp(prefix="laggard-many-"))
    culprit = min(CULPRIT, ranks - 1)
    options = (f"--ranks {ranks} --steps {STEPS} --input-us 15000 --h2d-us 5000 --forward-us 60000 "
               f"--backward-us 90000 --optimizer-us 15000 --host-us 10000 --buckets 3 --jitter 3 "
               f"--batch-bytes 8192 --params 256 --fault {culprit}:backward:70000")
    run = trainings.run(trainings.trainer(folder, options, {"SIM_TIMEOUT_MS": 120000}), folder)
    stored = sum(p.stat().st_size for p in run.rglob("*") if p.is_file())
    report = ask(run)
    text = subprocess.run([trainings.LAGGARD, "report", run, "--format", "json"], check=True,
                          stdout=subprocess.PIPE).stdout
    v, seen = report["verdict"], len(report["run"]["ranks_seen"])
    print(f"{seen} ranks, {STEPS} steps: {v['kind']} ({v['severity']}): {v['sentence']}")
    print(f"stored: {stored / 1e6:.2f} MB, {stored / seen / STEPS:.0f} bytes a rank and step; JSON report "
          f"{len(text) / 1e6:.2f} MB, {len(json.dumps(json.loads(text))) / 1e6:.2f} MB without white space "
          f"({OTHERS_MB} MB for a window of 32 ranks elsewhere: {len(text) * 32 / seen / 1e6:.2f} MB here)")
    shutil.rmtree(folder)
    checks = [(seen == ranks, f"ranks seen: {seen}"), (v["rank"] == culprit, f"rank {v['rank']}"),
              (v["stage"] == "backward", f"stage {v['stage']}")]
    for holds, words in checks:
        print(f"{'ok  ' if holds else 'FAIL'} {words}")
    failed = sum(not holds for holds, _ in checks)
    print(f"{len(checks) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
