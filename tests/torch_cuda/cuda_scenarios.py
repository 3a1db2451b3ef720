"""The scenarios on the stand-in CUDA libraries: real trainings over NCCL with known answers."""
import re

import checks
from cuda_bench import GEMMS, LAUNCHES, calls, gpu_sync, ms
from harness import STAGES, median

SCENARIOS = []
STEADY = 14  # DDP waits for the device in its iterations 2 to 11, for statistics of its own


def scenario(name, quick=False, once=False):
    """Registers a function(bench, checks). quick: part of every `make test`; once: the same for every
    torch, so run on one."""
    def register(function):
        SCENARIOS.append((name, quick, once, function))
        return function
    return register


def healthy(c, run, ranks):
    checks.ended_well(c, run, ranks)
    checks.rows_are_iterations(c, run, ranks)
    checks.aligned(c, run, ranks)


# --- counts, and that nothing else changes

# what the watchdog threads and the clean-up of finished work call as often as time allows
BY_TIME = re.compile(r"cudaEventQuery|cuda(Peek|Get)(At)?LastError|ncclCommGetAsyncError|cuda[GS]etDevice"
                     r"|cudaThreadExchangeStreamCaptureMode|cudaStreamIsCapturing|cuda.*GetCaptureInfo"
                     r"|cudaEventDestroy|cudaEventCreate.*|cudaHostAlloc|cudaPointerGetAttributes"
                     r"|cuDevicePrimaryCtxGetState|cuCtxGetCurrent|cuCtxGetDevice")
WAITING = ("cudaEventSynchronize", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaStreamQuery",
           "cudaStreamWaitEvent", "cudaMemcpy", "cudaMemcpyAsync")


def own_calls(c, run, ranks, waits):
    """Events of ours: at most two at each boundary of a stage and two at each exposed wait."""
    for rank in range(ranks):
        steps = len(run.rows[rank])
        for name in WAITING:
            c.equal(calls(run, rank, name, ["own"]), 0, f"rank {rank}: {name} of our own")
        records = calls(run, rank, ("cudaEventRecord", "cudaEventRecordWithFlags"), ["own"])
        copies = run.rows[rank][STEADY]["h2d_copies"]
        bound = 2 * (len(STAGES) + copies + waits)
        print(f"      rank {rank}: {records / steps:.1f} events of ours a step, at most {bound}")
        c.that(records <= steps * bound, f"rank {rank}: {records} events in {steps} steps")
        c.that(records > 5 * steps, f"rank {rank}: only {records} events: is this measured at all?")


@scenario("counts are exact, and the program's calls are as without", quick=True)
def counts(bench, c):
    steps = 24
    env = {"STEPS": steps, "ITEM": 5}
    bare = bench.run("ddp", 2, False, env=env)
    run = bench.run("ddp", 2, env=env)
    healthy(c, run, 2)
    checks.ended_well(c, bare, 2)
    for rank in range(2):
        rows = run.rows[rank]
        at = f"rank {rank}"
        for name, expected in (("h2d_copies", 2), ("h2d_bytes", 8 * 32 * 4 + 8 * 8), ("h2d_overlapped", 0),
                               ("collectives", 5)):
            got = {r[name] for r in rows[3:]}
            c.equal(got, {expected}, f"{at}: {name}")
        parameters = 32 * 256 + 256 + 4 * (256 * 256 + 256) + 256 * 8 + 8
        c.equal({r["collective_bytes"] for r in rows[3:]}, {4 * parameters}, f"{at}: collective_bytes")
        c.equal([r["host_syncs"] for r in rows[STEADY:]],
                [2 + (i % 5 == 4) for i in range(STEADY, steps)], f"{at}: host_syncs")
        launches = sum(r["launches"] for r in rows[3:])
        c.equal(len({r["launches"] for r in rows[3:] if r["step"] % 5 != 4}), 1, f"{at}: launches differ")
        seen = calls(run, rank, LAUNCHES)
        c.that(0.6 * seen < launches < seen, f"{at}: {launches} launches in rows, {seen} in all")
        for name in set(bare.calls[rank]) | set(run.calls[rank]):
            if BY_TIME.fullmatch(name):
                continue
            c.equal(calls(run, rank, name), calls(bare, rank, name), f"{at}: calls of {name}")
    c.equal(run.out, bare.out, "output")
    own_calls(c, run, 2, 5)


# --- the device's clock

def stands_still(c, run, rank, factor, gemm_ms=1.0):
    """In each steady step the device stands still for the rest of the step, but for its own gemms."""
    gemms = calls(run, rank, GEMMS) / len(run.rows[rank])
    c.equal(gemms, round(gemms), f"rank {rank}: gemms are the same in each step")
    step = median(run.final[rank]["device_ms"][STEADY:])
    expected = step - round(gemms) * gemm_ms * factor
    got = [gpu_sync(r) for r in run.rows[rank][STEADY:-1]]
    if not c.that(None not in got and got, f"rank {rank}: gpu_*_sync_ns: {got}"):
        return None
    c.near(ms(median(got)), expected, max(0.02 * expected, 0.15),
           f"rank {rank}: standing still, ms of {step:.2f} ms a step")
    return median(got)


def device_partition(c, run, rank, since=2):
    """From the second row on every closed row is measured, and its parts add up to its time."""
    rows = run.rows[rank]
    missing = [r["step"] for r in rows[since:-1] if r["gpu_dur_ns"] is None]
    c.equal(missing, [], f"rank {rank}: steps without device times")
    for r in rows[since:-1]:
        if r["gpu_dur_ns"] is None:
            continue
        parts = [r[f"gpu_{s}_ns"] or 0 for s in STAGES]
        c.equal(sum(parts), r["gpu_dur_ns"], f"rank {rank} step {r['step']}: sum of the device's parts")
    truth, got = run.final[rank]["device_ms"][since:-1], [r["gpu_dur_ns"] for r in rows[since:-1]]
    if None not in got and len(got) == len(truth):
        c.near(ms(sum(got)) / sum(truth), 1, 0.02, f"rank {rank}: device time, recorded / true")


def slow_device(bench, c, job, ranks, factors, knobs=None, steps=26):
    env = {"STEPS": steps, "PIN": 1, "SIM_FACTOR": ",".join(map(str, factors)), **(knobs or {})}
    run = bench.run(job, ranks, env=env, limit=240)
    healthy(c, run, ranks)
    for rank in range(ranks):
        device_partition(c, run, rank)
    return run, [stands_still(c, run, r, factors[r]) for r in range(ranks)]


@scenario("rank 2 of 4 has a device three times slower", quick=True)
def slow_of_four(bench, c):
    run, sync = slow_device(bench, c, "ddp", 4, (1, 1, 3, 1), steps=36)
    c.equal(min(range(4), key=lambda r: sync[r]), 2, f"the rank that waits least: {sync}")
    v = run.report["verdict"]
    c.that("STRAGGLER" in v["kind"], f"verdict {v['kind']}: {v['sentence']}")
    c.equal(v["rank"], 2, f"rank of the verdict ({v['sentence']})")
    c.equal(run.report["published"]["clock"], "gpu", "clock of the published policy")
    c.equal(run.report["coverage"]["device"]["state"], "observed", "coverage of the device")


def rule_holds(name, job, knobs=None, quick=False, once=False):
    @scenario(f"a slow device: {name}", quick, once)
    def run_rule(bench, c):
        _, sync = slow_device(bench, c, job, 2, (1, 2), knobs)
        c.that(None not in sync and sync[1] < sync[0], f"the slow rank waits less: {sync}")


rule_holds("DDP", "ddp")
rule_holds("Python communication hook", "ddp", {"HOOK": "python"})
rule_holds("synchronous collective in each step", "ddp", {"SYNC": 1})
rule_holds("mixed precision, clipping", "ddp", {"AMP": 1})
