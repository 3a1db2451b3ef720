"""torch_checks.py: the training loops of torch_victim.c and the rows that each has to leave. Run on
this machine by guest_torch and on another one by guest_aarch64."""
from guest import FLAG, SLEPT, SOURCE, Place, check_rows, check_slept, compare, rows

LABELS = SOURCE["label_input"] | SOURCE["label_forward"] | SOURCE["label_optimizer"]
USUAL = LABELS | SOURCE["engine"] | SOURCE["reducer"]
SEEN_TORCH = 1
COMMUNICATOR = 5  # enum lg_rank_source


def only(**stages):
    """the stages of SLEPT that are named (None: as there)"""
    return {f"{k}_ns": v or SLEPT[f"{k}_ns"] for k, v in stages.items()}


def flags(tally, name, got, expected):
    """`expected`: {step: flags}; all others have none, the first is `first`"""
    want = [expected.get(r["step"], 0) | (FLAG["first"] if r["step"] == 0 else 0) for r in got]
    tally.equal(f"{name}: flags", [r["flags"] for r in got], want)


def header(tally, name, spool, dropped=0):
    tally.equal(f"{name}: how it ended",
                {k: spool[k] for k in ("ended", "exit_status", "stop_reason", "rows_lost")},
                {"ended": 1, "exit_status": 7, "stop_reason": 0, "rows_lost": 0})
    tally.equal(f"{name}: lost calls", spool["entries_dropped"], dropped)
    tally.check(f"{name}: PyTorch was seen", spool["seen"] & SEEN_TORCH, spool["seen"])


def usual(tally, name, spool, got):
    check_slept(tally, name, got)
    tally.equal(f"{name}: sources", {r["sources"] for r in got}, {USUAL})
    flags(tally, name, got, {})


def nested(tally, name, spool, got):
    # two forwards, the second inside autograd.grad; a backward inside the backward
    check_slept(tally, name, got, {**SLEPT, "forward_ns": 6_000_000, "backward_ns": 7_500_000})
    tally.equal(f"{name}: outermost backwards", {r["n_backward"] for r in got}, {1})
    flags(tally, name, got, {})


def throws(tally, name, spool, got):
    failed = [r for r in got if r["step"] % 3 == 2]
    check_slept(tally, name, [r for r in got if r["step"] % 3 != 2])
    check_slept(tally, f"{name}, failed", failed, only(input_wait=None, forward=None))
    flags(tally, name, got, {r["step"]: FLAG["no_step"] for r in failed})
    tally.equal(f"{name}: sources", {r["sources"] for r in got if r not in failed}, {USUAL})


def throws_in_sync(tally, name, spool, got):
    throws(tally, name, spool, got)
    check_slept(tally, f"{name}, failed", [r for r in got if r["step"] % 3 == 2],
                only(backward=4_000_000))


def two_threads(tally, name, spool, got):
    """the first step of each thread begins with its backward: only then it is known"""
    half = len(got) // 2
    began = (got[0], got[half])
    check_slept(tally, name, [r for r in got if r not in began])
    check_slept(tally, f"{name}, first", began, only(backward=None, optimizer=None))
    flags(tally, name, got, {half: FLAG["first"]})
    tally.check(f"{name}: no thread's CPU time is charged to the other",
                all(0 <= r["thread_cpu_ns"] <= r["dur_ns"] * 2 for r in got
                    if r["thread_cpu_ns"] is not None), [r["thread_cpu_ns"] for r in got])


def jumps_out_of_read(tally, name, spool, got):
    check_slept(tally, name, got[1:])  # the first begins with its forward
    flags(tally, name, got, {r["step"]: FLAG["gap_input"] for r in got[1:]})


def jumps_out_of_backward(tally, name, spool, got):
    check_slept(tally, name, [r for r in got if r["step"] != 2])
    check_slept(tally, f"{name}, left", [r for r in got if r["step"] == 2],
                only(input_wait=None, forward=None, backward=4_000_000))
    flags(tally, name, got, {2: FLAG["recovered"] | FLAG["no_step"]})


def collectives(tally, name, spool, got):
    # an all-reduce and three waits by hand, after the backward
    check_slept(tally, name, got, {**only(input_wait=None, forward=None, backward=4_000_000),
                                   "optimizer_sync_ns": 6_000_000, "optimizer_after_ns": 1_000_000})
    tally.equal(f"{name}: counted", [(r["collectives"], r["collective_bytes"], r["collective_seq"])
                                     for r in got], [(1, 4000, n + 1) for n in range(len(got))])
    tally.equal(f"{name}: rank", [spool[k] for k in ("rank", "world", "rank_source")],
                [1, 4, COMMUNICATOR])
    flags(tally, name, got, {})


def old_group(tally, name, spool, got):
    tally.equal(f"{name}: rank", [spool[k] for k in ("rank", "world", "rank_source")],
                [2, 3, COMMUNICATOR])
    usual(tally, name, spool, got)


def evaluates(tally, name, spool, got):
    check_slept(tally, name, got)
    check_slept(tally, f"{name}: batches of evaluation are no input",
                [r for r in got if r["step"] % 2 == 1], {"other_ns": 5_000_000})
    flags(tally, name, got, {r["step"]: FLAG["has_eval"] for r in got if r["step"] % 2 == 1})


def engine_only(tally, name, spool, got):
    check_slept(tally, name, got, only(backward=None, backward_sync=None))
    check_slept(tally, f"{name}: before the backward", got[1:], only(forward=2_000_000))
    flags(tally, name, got, {})


# scenario: (steps, rows, calls whose end never came, check)
SCENARIOS = {
    "train": (6, 6, 0, usual),
    "nested": (6, 6, 0, nested),
    "throws": (7, 7, 0, throws),
    "throws-in-sync": (7, 7, 0, throws_in_sync),
    "cancelled": (4, 8, 0, two_threads),
    "thread-left": (4, 8, 0, two_threads),
    "jumps-out-of-read": (6, 6, 0, jumps_out_of_read),
    "jumps-out-of-backward": (6, 6, 1, jumps_out_of_backward),
    "collectives": (6, 6, 0, collectives),
    "old-group": (4, 4, 0, old_group),
    "evaluates": (6, 6, 0, evaluates),
    "engine-only": (6, 6, 0, engine_only),
}


def scenario(tally, machine, name):
    steps, count, dropped, check = SCENARIOS[name]
    with Place() as place:
        command = [machine.directory / "torch-victim", machine.torch, name, steps]
        bare, traced = compare(tally, name, command, place, machine=machine)
        tally.check(f"{name}: pointers to members are even", "member pointer: even" in traced.out)
        left = traced.spools()
        if not tally.equal(f"{name}: spools", len(left), 1):
            return
        got = rows(left[0])
        gaps = check_rows(tally, name, got, count)
        tally.equal(f"{name}: rows that do not follow the one before", len(gaps),
                    1 if check is two_threads else 0)
        header(tally, name, left[0], dropped)
        if len(got) == count:
            check(tally, name, left[0], got)


def run_all(tally, machine):
    for name in SCENARIOS:
        scenario(tally, machine, name)
