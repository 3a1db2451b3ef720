"""What must hold for every traced run, and where injected sleeps must show."""
from harness import STAGES, median, ms, own, sync

# the column in which a sleep of the job's stage shows, unless a job says otherwise
COLUMN = {"input": "input_wait", "forward": "forward", "backward": "backward",
          "optimizer": "optimizer", "host": "other"}


def ended_well(c, run, ranks):
    """The job itself came to its end; without that nothing else is worth checking."""
    for rank in range(ranks):
        if rank not in run.final:
            text = run.err.get(rank, "").strip() or run.err[-1].strip()
            raise RuntimeError(f"rank {rank} did not finish (status {run.status}): "
                               + " | ".join(text.splitlines()[-3:])[-400:])
    c.equal(run.status, 0, "exit status")


def partition(c, run, rank, h2d=False):
    """Rows of one rank are consecutive, touch each other, and are the sum of their six stages."""
    rows = run.rows.get(rank, [])
    c.equal([r["step"] for r in rows], list(range(len(rows))), f"rank {rank}: step numbers")
    for row in rows:
        at = f"rank {rank} step {row['step']}"
        parts = {s: row[f"{s}_ns"] for s in STAGES}
        missing = [s for s, v in parts.items() if v is None and (s != "h2d" or h2d)]
        if not c.that(not missing, f"{at}: not measured: {', '.join(missing)}"):
            return
        c.equal(sum(v or 0 for v in parts.values()), row["dur_ns"], f"{at}: sum of the stages")
        c.that(all((v or 0) >= 0 for v in parts.values()), f"{at}: a negative stage: {parts}")
        for stage, value in parts.items():
            part = row[f"{stage}_sync_ns"] or 0
            c.that(0 <= part <= (value or 0), f"{at}: {stage}_sync {part} of {value}")
    for a, b in zip(rows, rows[1:]):
        c.equal(b["start_ns"], a["start_ns"] + a["dur_ns"],
                f"rank {rank}: step {b['step']} begins where step {a['step']} ends")


def rows_are_iterations(c, run, ranks, loader=True):
    """Exactly one row per true iteration on every rank, at the same time, with its backwards."""
    c.equal(sorted(run.rows), list(range(ranks)), "ranks with rows")
    for rank in range(ranks):
        truth, rows = run.truth[rank], run.rows.get(rank, [])
        partition(c, run, rank)
        if not c.equal(len(rows), len(truth), f"rank {rank}: rows"):
            continue
        c.equal([r["n_backward"] for r in rows], [t["backwards"] for t in truth],
                f"rank {rank}: backward passes a step")
        if len(rows) < 4:
            continue
        if loader:  # the row begins with the request for its batch, as the iteration does
            apart = median(abs(r["start_ns"] - t["begin"]) for r, t in zip(rows[1:], truth[1:]))
            c.that(apart < 2e6, f"rank {rank}: rows begin {ms(apart):.2f} ms off")
        wall, recorded = (x[-1][k] - x[1][k] for x, k in ((truth, "begin"), (rows, "start_ns")))
        c.near(recorded / wall, 1, 0.01 if loader else 0.05,
               f"rank {rank}: time of the loop, recorded / true")


def aligned(c, run, ranks):
    """The number of the last collective at each step's end is the same on all ranks."""
    numbers = [[r["collective_seq"] for r in run.rows.get(rank, [])] for rank in range(ranks)]
    c.that(all(n and None not in n for n in numbers), "collective_seq is measured")
    c.that(all(n == numbers[0] for n in numbers[1:]),
           f"collective_seq differs between ranks: {[n[-3:] for n in numbers]}")


def affected(run, rank, stage):
    """(iterations with a sleep in that stage alone, iterations without any), the start left out"""
    lines = [t for t in run.truth[rank] if t["i"] >= 3]
    return ([t for t in lines if list(t["sleep"]) == [stage]],
            [t for t in lines if not t["sleep"]])


def sleep_shows(c, run, rank, stage, column):
    """A sleep in a stage of one rank lengthens the rank's own time in that column, and no other.
    A column "next:NAME" is that of the next row."""
    slept, quiet = affected(run, rank, stage)
    rows = run.rows.get(rank, [])
    shift, column = (1, column[5:]) if column.startswith("next:") else (0, column)
    rows = rows[shift:] + rows[:shift]
    if not c.that(slept and quiet and len(rows) == len(run.truth[rank]),
                  f"rank {rank}: no iterations to compare for a sleep in {stage}"):
        return
    injected = median(t["sleep"][stage] for t in slept)
    for name in STAGES:
        usual = median(own(rows[t["i"]], name) for t in quiet)
        excess = median(own(rows[t["i"]], name) for t in slept) - usual
        if name == column:
            c.near(ms(excess), ms(injected), max(0.15 * ms(injected), 5),
                   f"rank {rank}: sleep in {stage} shows in {name}, ms")
        else:
            c.that(ms(excess) < 0.5 * ms(injected),
                   f"rank {rank}: sleep of {ms(injected):.1f} ms in {stage} shows in {name}, "
                   f"{ms(excess):.1f} ms")


def sleep_is_difference(c, run, rank, stage, column):
    """A rank that sleeps in every step: its own time in the column exceeds that of the others."""
    injected = median(t["sleep"][stage] for t in run.truth[rank] if t["i"] >= 3)
    base = median(t["sleep"].get(stage, 0) for r, lines in run.truth.items() if r != rank
                  for t in lines if t["i"] >= 3)
    usual = {r: median(own(row, column) for row in rows[3:]) for r, rows in run.rows.items()}
    others = median(v for r, v in usual.items() if r != rank)
    c.near(ms(usual[rank] - others), ms(injected - base), 0.15 * ms(injected),
           f"rank {rank}: own {column} beyond the others', ms")


def others_wait(c, run, rank, stage, ranks):
    """While a rank sleeps before its sync, the others wait in theirs (in whatever stage)."""
    slept, quiet = affected(run, rank, stage)
    late = {t["i"] + 1 for t in run.truth[rank] if {"optimizer", "host"} & set(t["sleep"])}
    quiet = [t for t in quiet if t["i"] not in late]  # those begin with a wait
    for other in set(range(ranks)) - {rank}:
        rows = run.rows.get(other, [])
        if len(rows) != len(run.truth[rank]):
            continue
        usual = median(sync(rows[t["i"]]) for t in quiet)
        excess = median(sync(rows[t["i"]]) for t in slept) - usual
        injected = median(t["sleep"][stage] for t in slept)
        c.near(ms(excess), ms(injected), max(0.15 * ms(injected), 5),
               f"rank {other}: wait for rank {rank}'s sleep in {stage}, ms")


def verdict(c, run, kind, rank, stage=None, severity=None):
    got = run.report["verdict"]
    c.equal((got["kind"], got["rank"]), (kind, rank), f"verdict ({got['sentence']})")
    if stage:
        c.equal(got["stage"], stage, "stage of the verdict")
    if severity:
        c.equal(got["severity"], severity, "severity of the verdict")


def published(c, run, kind, rank, severity=None):
    got = run.report["published"]
    c.equal(got["kind"], kind, "published policy")
    if rank is not None:
        c.equal(got["worst_rank"], rank, "published policy's rank")
    if severity:
        c.equal(got["severity"], severity, "published policy's severity")


def nobody_accused(c, run):
    got = run.report["verdict"]
    c.equal(got["rank"], None, f"rank of the verdict ({got['kind']}: {got['sentence']})")
    c.that("STRAGGLER" not in got["kind"], f"verdict {got['kind']}, though nobody was slow")
