"""The scenarios on the stand-in CUDA libraries: real trainings over NCCL with known answers."""
import re
import subprocess
from pathlib import Path

import checks
from cuda_bench import GEMMS, LAUNCHES, calls, gpu_sync, ms, simcuda
from harness import STAGES, TREE, median

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
            # untraced runs differ by one wait, too, on a busy machine; ours would be one a step
            c.near(calls(run, rank, name), calls(bare, rank, name), 2 * (name == "cudaStreamWaitEvent"),
                   f"{at}: calls of {name}")
    c.equal(run.out, bare.out, "output")
    own_calls(c, run, 2, 5)


# --- the device's clock

def stands_still(c, run, rank, factor, gemm_ms):
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
    gemm_ms = env.get("SIM_GEMM_US", 1000) / 1000
    return run, [stands_still(c, run, r, factors[r], gemm_ms) for r in range(ranks)]


@scenario("rank 2 of 4 has a device three times slower", quick=True)
def slow_of_four(bench, c):
    run, sync = slow_device(bench, c, "ddp", 4, (1, 1, 3, 1), steps=36)
    c.equal(min(range(4), key=lambda r: sync[r]), 2, f"the rank that waits least: {sync}")
    v = run.report["verdict"]
    c.that("STRAGGLER" in v["kind"], f"verdict {v['kind']}: {v['sentence']}")
    c.equal(v["rank"], 2, f"rank of the verdict ({v['sentence']})")
    c.equal(run.report["published"]["clock"], "gpu", "clock of the published policy")
    c.equal(run.report["coverage"]["device"]["state"], "observed", "coverage of the device")


@scenario("rank 2 of 4 has a device 1.3 times slower")
def a_little_slower(bench, c):
    run, sync = slow_device(bench, c, "ddp", 4, (1, 1, 1.3, 1), {"SIM_GEMM_US": 2500, "SIM_NCCL_US": 300},
                            steps=44)
    c.equal(min(range(4), key=lambda r: sync[r]), 2, f"the rank that waits least: {sync}")
    v = run.report["verdict"]
    c.equal((v["kind"], v["rank"], v["stage"]), ("COMPUTE_STRAGGLER", 2, "forward+backward"),
            f"verdict ({v['sentence']})")
    c.equal(run.report["run"]["clock"], "gpu", "clock of the verdict")


def rule_holds(name, job, knobs=None, quick=False, once=False):
    @scenario(f"a slow device: {name}", quick, once)
    def run_rule(bench, c):
        _, sync = slow_device(bench, c, job, 2, (1, 2), knobs)
        c.that(None not in sync and sync[1] < sync[0], f"the slow rank waits less: {sync}")


rule_holds("DDP", "ddp")
rule_holds("Python communication hook", "ddp", {"HOOK": "python"})
rule_holds("synchronous collective in each step", "ddp", {"SYNC": 1})
rule_holds("mixed precision, clipping", "ddp", {"AMP": 1})
rule_holds("FSDP2", "fsdp2", {"SIM_GEMM_US": 3000})
rule_holds("gradient accumulation", "accum", {"ACC": 2})


@scenario("a slow device: gradient scaler, which waits for the device in each step")
def scaler(bench, c):
    """The device idles for the host here as well, so what is left of a step beside its gemms is no measure.
    But the stand-in knows how long its stream stood still for events, and the host has waited for all of
    that when a step begins."""
    run = bench.run("ddp", 2, env={"STEPS": 26, "PIN": 1, "AMP": "scaler", "SIM_FACTOR": "1,2"})
    checks.ended_well(c, run, 2)
    checks.aligned(c, run, 2)
    sync = [median(gpu_sync(r) for r in run.rows[rank][STEADY:-1]) for rank in range(2)]
    c.that(sync[0] > sync[1] + 8e6, f"the rank with the fast device waits longer: {sync}")
    for rank in range(2):
        waited = run.final[rank]["waited_ns"]
        got = [ms(gpu_sync(r)) for r in run.rows[rank][STEADY:-1]]
        # counted from the end: an iteration whose scaler skips the optimizer has no row of its own
        truth = [ms(b - a) for a, b in zip(waited, waited[1:])][-1 - len(got):-1]
        right = [abs(g - t) <= max(0.02 * t, 0.15) for g, t in zip(got, truth)]
        # a host that is stopped between two calls lets the device idle in the middle of a wait
        c.that(sum(right) >= 0.7 * len(right) and len(right) > 5,
               f"rank {rank}: standing still for the other, ms, recorded and true: {list(zip(got, truth))}")
        idle = median(run.final[rank]["device_ms"][STEADY:]) - median(truth)
        c.that(idle > 16.5 * (1, 2)[rank], f"rank {rank}: the rest of a step, 17 gemms of 1 ms and more: {idle}")
    v = run.report["verdict"]
    c.equal(v["rank"], 1, f"rank of the verdict ({v['kind']}: {v['sentence']})")


@scenario("batches copied on a stream beside the compute stream", once=True)
def copied_beside(bench, c):
    run = bench.run("streams", 2, env={"STEPS": 24, "PIN": 1, "SIDE": 1, "SIM_COPY_US": 2000})
    healthy(c, run, 2)
    for rank in range(2):
        device_partition(c, run, rank)
        rows = run.rows[rank][STEADY:-1]
        c.equal({r["h2d_overlapped"] for r in rows}, {8 * 32 * 4 + 8 * 8}, f"rank {rank}: h2d_overlapped")
        c.equal({r["gpu_h2d_ns"] for r in rows}, {0}, f"rank {rank}: copies on the compute stream")


@scenario("the training moves to another stream", once=True)
def other_stream(bench, c):
    run = bench.run("streams", 2, env={"STEPS": 30, "PIN": 1, "FROM": 8, "SIM_FACTOR": "1,2"})
    healthy(c, run, 2)
    for rank, factor in ((0, 1), (1, 2)):
        missing = [r["step"] for r in run.rows[rank][2:-1] if r["gpu_dur_ns"] is None]
        c.that(set(missing) <= set(range(7, 13)), f"rank {rank}: steps without device times: {missing}")
        gemms = calls(run, rank, GEMMS) / 30
        rows = run.rows[rank][STEADY:-1]
        own = median(r["gpu_dur_ns"] - gpu_sync(r) for r in rows if r["gpu_dur_ns"] is not None)
        c.near(ms(own), gemms * factor, max(0.02 * gemms * factor, 0.3), f"rank {rank}: own device time, ms")


@scenario("one process without collectives", once=True)
def single(bench, c):
    run = bench.run("single", 1, launcher="none", env={"STEPS": 24, "PIN": 1})
    checks.ended_well(c, run, 1)
    checks.rows_are_iterations(c, run, 1)
    device_partition(c, run, 0)
    rows = run.rows[0]
    c.equal({gpu_sync(r) for r in rows}, {None}, "standing still for others")
    c.near(ms(median(r["gpu_forward_ns"] for r in rows[3:-1])), 6, 0.2, "forward on the device, ms")
    c.near(ms(median(r["gpu_backward_ns"] for r in rows[3:-1])), 11, 0.2, "backward on the device, ms")


def without_device_times(name, env):
    @scenario(f"a slow device that nobody measures: {name}", quick=name == "switched off", once=True)
    def run_blind(bench, c):
        run = bench.run("ddp", 2, env={"STEPS": 30, "PIN": 1, "ITEM": 1, "SIM_FACTOR": "1,3", **env})
        healthy(c, run, 2)
        for rank in range(2):
            c.equal({r["gpu_dur_ns"] for r in run.rows[rank]}, {None}, f"rank {rank}: device times")
            c.equal(calls(run, rank, "cudaEventRecord", ["own"]), 0, f"rank {rank}: events of ours")
        v = run.report["verdict"]
        c.equal(v["rank"], None, f"rank of the verdict ({v['kind']}: {v['sentence']})")
        c.that(v["kind"] != "BALANCED", f"verdict {v['kind']}: {v['sentence']}")
        text = bench.tool("report", run.record)
        c.that(re.search(r"device-side\s+skew\s+is\s+not\s+observable", text), f"the report says so: {text}")


without_device_times("switched off", {"LAGGARD_DEVICE_CLOCK": 0})
without_device_times("one hardware queue", {"CUDA_DEVICE_MAX_CONNECTIONS": 1})


@scenario("more waits in a step than are measured")
def sampled(bench, c):
    run = bench.run("many_waits", 2, env={"STEPS": 40, "PIN": 1, "WAITS": 80, "SIM_NCCL_US": 100,
                                          "SIM_FACTOR": "1,2"})
    healthy(c, run, 2)
    for rank in range(2):
        rows = run.rows[rank][2:-1]
        c.equal([r["step"] for r in rows if r["gpu_dur_ns"] is None], [], f"rank {rank}: not measured")
        measured = [r["step"] for r in rows[2:] if gpu_sync(r) is not None]
        c.equal(measured, [16, 17, 32, 33], f"rank {rank}: steps whose waits are")
        flagged = [r["step"] for r in rows[2:] if r["sources"] & 1 << 9]
        c.equal(flagged, [s for s in range(4, 39) if s % 16 > 1], f"rank {rank}: steps said to be sampled")
        standing = median(gpu_sync(run.rows[rank][s]) for s in measured)
        waits = 80 + (5 if bench.torch.backend == "nccl2" else 1)
        c.that(ms(standing) >= 0.1 * (waits - 1), f"rank {rank}: stands still {ms(standing)} ms")
    v = run.report["verdict"]
    c.equal(v["rank"], 1, f"rank of the verdict ({v['kind']}: {v['sentence']})")


@scenario("an evaluation of 1200 batches between two steps", once=True)
def long_row(bench, c):
    run = bench.run("evaluation", 2, env={"STEPS": 24, "PIN": 1, "SIM_GEMM_US": 500})
    checks.ended_well(c, run, 2)
    for rank in range(2):
        rows = run.rows[rank]
        c.equal(len(rows), 24, f"rank {rank}: rows")
        device_partition(c, run, rank)
        long = max(rows[2:], key=lambda r: r["dur_ns"])
        c.that(long["flags"] & 1 << 5, f"rank {rank}: the long row contains an evaluation")
        c.that(long["gpu_other_ns"] > 0.9 * long["gpu_dur_ns"],
               f"rank {rank}: evaluation is no stage of training on the device: {long}")


# --- faults of the host

@scenario("sleeps of the host in each stage of rank 1", quick=True)
def host_faults(bench, c):
    stages = ("input", "forward", "backward", "optimizer", "host")
    faults = ",".join(f"1:{stage}:40:every=10:from={STEADY + 2 * n}" for n, stage in enumerate(stages))
    run = bench.run("ddp", 2, env={"STEPS": 55, "PIN": 1, "FAULT": faults, "SIM_GEMM_US": 100,
                                   "SIM_NCCL_US": 100})
    healthy(c, run, 2)
    for stage in stages:
        tenth_shows(c, run, 1, stage, checks.COLUMN[stage])


def tenth_shows(c, run, rank, stage, column):
    """What was injected shows in that column within 10 % (and what the host's scheduler adds)."""
    lines = [t for t in run.truth[rank] if t["i"] >= STEADY]
    slept = [t for t in lines if list(t["sleep"]) == [stage]]
    quiet = [t for t in lines if not t["sleep"]]
    rows = run.rows[rank]
    if not c.that(len(slept) >= 3 and quiet, f"rank {rank}: no steps with a sleep in {stage}"):
        return
    injected = median(t["sleep"][stage] for t in slept)
    for name in STAGES:
        own = [[(rows[t["i"]][f"{name}_ns"] or 0) - (rows[t["i"]][f"{name}_sync_ns"] or 0) for t in part]
               for part in (slept, quiet)]
        excess = median(own[0]) - median(own[1])
        if name == column:
            c.near(ms(excess), ms(injected), 0.1 * ms(injected),
                   f"rank {rank}: sleep in {stage} shows in {name}, ms")
        else:
            c.that(ms(excess) < 0.3 * ms(injected),
                   f"rank {rank}: sleep of {ms(injected):.1f} ms in {stage} shows in {name}, {ms(excess):.1f} ms")


@scenario("pageable copies block the host of rank 1", once=True)
def pageable(bench, c):
    run = bench.run("pageable", 2, env={"STEPS": 40, "SIM_RULES": "pageable@1:+15ms", "SIM_GEMM_US": 300,
                                        "SIM_NCCL_US": 100})
    healthy(c, run, 2)
    rows = [run.rows[rank][STEADY:] for rank in range(2)]
    c.equal({r["h2d_bytes"] for r in rows[1]}, {(4 << 20) + 8 * 32 * 4 + 8 * 8}, "bytes copied in a step")
    copies = rows[1][0]["h2d_copies"]
    excess = [ms(median(r["h2d_ns"] for r in part)) for part in rows]
    c.near(excess[1] - excess[0], 15 * copies, 0.1 * 15 * copies, "time in the copies beyond rank 0's, ms")
    v = run.report["verdict"]
    c.equal((v["kind"], v["rank"], v["stage"]), ("H2D_STRAGGLER", 1, "h2d"), f"verdict ({v['sentence']})")


# --- graphs

def captures(mode, quick, once):
    @scenario(f"nothing of ours is called while a graph is captured, mode {mode}", quick, once)
    def capture(bench, c):
        env = {"STEPS": 20, "PIN": 1, "MODE": mode, "SIM_NOT_READY": 1}
        bare = bench.run("graph", 2, False, env=env)
        run = bench.run("graph", 2, env=env)
        checks.ended_well(c, bare, 2)
        checks.ended_well(c, run, 2)
        checks.aligned(c, run, 2)
        c.equal([len(run.rows[rank]) for rank in range(2)], [20, 20], f"{mode}: rows")
        for rank in range(2):
            at = f"{mode}, rank {rank}"
            captured = sum(n for f in run.calls[rank].values() for k, n in f.items() if k == "through*")
            c.that(captured > 3, f"{at}: {captured} calls of the program's passed on while capturing")
            own = {f: k["own*"] for f, k in run.calls[rank].items() if k["own*"]}
            c.equal(set(own) - {"cudaStreamIsCapturing"}, set(), f"{at}: calls of ours while capturing: {own}")
            c.equal(run.out[rank], bare.out[rank], f"{at}: output")
            c.that("target [10.0, 11.0, 12.0, 13.0, 14.0]" in run.out[rank], f"{at}: {run.out[rank]}")
            rows = run.rows[rank]
            c.that(rows[5]["gpu_dur_ns"] is None, f"{at}: the step of the capture has no device times")
            missing = [r["step"] for r in rows[8:-1] if r["gpu_dur_ns"] is None]
            c.equal(missing, [], f"{at}: steps with replays without device times")
            c.equal(rows[12]["launches"] - rows[4]["launches"], 1, f"{at}: a replay is one launch")


captures("global", quick=True, once=False)
captures("thread_local", quick=False, once=True)
captures("relaxed", quick=False, once=True)


# --- what can't be seen is said

@scenario("training on the CPU while CUDA's driver is loaded", once=True)
def driver_only(bench, c):
    run = bench.run("cpu", 2, env={"STEPS": 12})
    checks.ended_well(c, run, 2)
    coverage = run.report["coverage"]["device"]
    c.equal(coverage["state"], "not_observed", "coverage of the device")
    c.that("linked statically" in coverage["why"], f"coverage says what may be missed: {coverage['why']}")


@scenario("case 28: torch.profiler inside a traced run", once=True)
def case_28(bench, c):
    env = {"STEPS": 16, "PIN": 1, "PROFILE": 1}
    bare, run = bench.run("profiled", 2, False, env=env), bench.run("profiled", 2, env=env)
    checks.ended_well(c, bare, 2)
    healthy(c, run, 2)
    c.equal(run.out, bare.out, "output")
    c.that("profiled" in run.out[0], f"the profiler saw something: {run.out[0]}")


# --- the script for machines with GPUs

@scenario("tools/gpu-check works, as far as the stand-ins can tell", once=True)
def gpu_check(bench, c):
    done = subprocess.run([TREE / "tools" / "gpu-check"], stdout=subprocess.PIPE, text=True, check=False,
                          timeout=600, env=simcuda.plain_environment(LAGGARD_GPU_CHECK_STANDINS="2.15.0"))
    c.equal(done.returncode, 0, f"exit status: {done.stdout[-1500:]}")
    c.equal(len(re.findall("^PASS", done.stdout, re.M)), 13, f"checks that pass: {done.stdout[-1500:]}")
    if not Path("/dev/nvidiactl").exists():
        done = subprocess.run([TREE / "tools" / "gpu-check"], stdout=subprocess.PIPE, text=True, check=False)
        c.equal((done.returncode, done.stdout.splitlines()[-1]), (0, "0 passed, 0 failed, 13 skipped"),
                "without a GPU everything is skipped")


# --- cases of public reports

@scenario("case 02: the batch is copied inside the loader, one ahead")
def case_02(bench, c):
    for accumulate in (1, 2):
        run = bench.run("prefetched", 2, env={"STEPS": 24, "ACC": accumulate, "SIM_COPY_US": 3000,
                                               "SIM_PAGEABLE_US": 3000})
        checks.ended_well(c, run, 2)
        for rank in range(2):
            at = f"{accumulate} micro-batches, rank {rank}"
            rows = run.rows[rank]
            c.equal(len(rows), 24, f"{at}: rows")
            steady = rows[4:-3]
            c.equal({r["h2d_copies"] for r in steady}, {2 * accumulate}, f"{at}: copies in each row")
            c.that(all((r["h2d_ns"] or 0) > 0.9 * 6e6 * accumulate for r in steady),
                   f"{at}: the copies' time is in h2d: {[r['h2d_ns'] for r in steady]}")
            c.that(all((r["gpu_h2d_ns"] or 0) >= 6e6 * accumulate for r in steady),
                   f"{at}: and on the device: {[r['gpu_h2d_ns'] for r in steady]}")


@scenario("case 03: a background thread runs the loader", once=True)
def case_03(bench, c):
    run = bench.run("thread_loader", 2, env={"STEPS": 30, "READ_MS": 20, "FAULT": "*:forward:60",
                                             "SIM_GEMM_US": 100, "SIM_NCCL_US": 100})
    checks.ended_well(c, run, 2)
    for rank in range(2):
        rows = run.rows[rank]
        c.equal(len(rows), 30, f"rank {rank}: rows")
        waited = median(r["input_wait_ns"] or 0 for r in rows[STEADY:])
        c.that(ms(waited) < 5, f"rank {rank}: input wait {ms(waited):.1f} ms, though batches were ready")
    c.that("INPUT" not in run.report["verdict"]["kind"], f"verdict {run.report['verdict']['sentence']}")


@scenario("case 56: fifteen scalars are read in each step", quick=True, once=True)
def case_56(bench, c):
    run = bench.run("items", 2, env={"STEPS": 40, "PIN": 1, "SIM_GEMM_US": 3000, "SIM_NCCL_US": 20})
    healthy(c, run, 2)
    for rank in range(2):
        syncs = {r["host_syncs"] for r in run.rows[rank][STEADY:]}
        c.equal(syncs, {15}, f"rank {rank}: waits of the host for the device in a step")
    v = run.report["verdict"]
    c.equal((v["kind"], v["rank"]), ("SYNC_BOUND", None), f"verdict ({v['sentence']})")


@scenario("case 62: start-up, and one slow step on rank 1", once=True)
def case_62(bench, c):
    run = bench.run("ddp", 2, env={"STEPS": 60, "PIN": 1, "SIM_GEMM_US": 2000, "SIM_NCCL_US": 20,
                                   "FAULT": "*:forward:300:every=1000:from=1,1:forward:600:every=1000:from=40"})
    healthy(c, run, 2)
    v = run.report["verdict"]
    c.that(v["severity"] in ("none", "info") or v["recurrence"] == "sparse",
           f"one slow step is no straggler: {v['kind']}, {v['recurrence']}: {v['sentence']}")
