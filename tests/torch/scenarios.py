"""The scenarios: real PyTorch trainings with known answers."""
import os
import signal
import subprocess
import time

import checks
from harness import Skip, kill_session, median, ms, own, seeded, wait_for_iterations

# Steps that take a few milliseconds of sleep on every rank: ranks that share two cores still
# keep pace, as on machines with an accelerator, where the host mostly waits.
EVEN = "*:forward:8"

SCENARIOS = []


def scenario(name, quick=False, since=(1, 13)):
    """Registers a function(bench, checks). quick: part of the subset for every `make test`."""
    def register(function):
        SCENARIOS.append((name, quick, since, function))
        return function
    return register


# --- verdicts over four ranks

@scenario("balanced: four ranks, nobody slow", quick=True)
def balanced(bench, c):
    run = bench.run("ddp", 4, env={"STEPS": 100, "FAULT": EVEN})
    checks.ended_well(c, run, 4)
    checks.rows_are_iterations(c, run, 4)
    checks.aligned(c, run, 4)
    checks.nobody_accused(c, run)
    c.equal(run.report["run"]["world_size"], 4, "world size")
    c.equal(run.report["run"]["ranks_missing"], [], "missing ranks")


@scenario("slow input on rank 2, read by the training process", quick=True)
def slow_input(bench, c):
    run = bench.run("ddp", 4, env={"STEPS": 60, "FAULT": f"{EVEN},2:input:30"})
    checks.ended_well(c, run, 4)
    checks.rows_are_iterations(c, run, 4)
    checks.sleep_is_difference(c, run, 2, "input", "input_wait")
    checks.verdict(c, run, "INPUT_STRAGGLER", 2, "input", "critical")
    checks.published(c, run, "INPUT_STRAGGLER", 2, "critical")


@scenario("slow input on rank 2, read by two workers")
def slow_workers(bench, c):
    run = bench.run("ddp", 4, env={"STEPS": 40, "WORKERS": 2, "FAULT": f"{EVEN},2:input:140"})
    checks.ended_well(c, run, 4)
    checks.rows_are_iterations(c, run, 4)
    checks.verdict(c, run, "INPUT_STRAGGLER", 2, "input", "critical")
    checks.published(c, run, "INPUT_STRAGGLER", 2, "critical")


@scenario("slow forward on rank 1, started by torchrun", quick=True)
def slow_forward(bench, c):
    run = bench.run("ddp", 4, launcher="torchrun",
                    env={"STEPS": 60, "FAULT": f"{EVEN},1:forward:30"})
    checks.ended_well(c, run, 4)
    checks.rows_are_iterations(c, run, 4)
    checks.sleep_is_difference(c, run, 1, "forward", "forward")
    checks.verdict(c, run, "COMPUTE_STRAGGLER", 1, "forward", "critical")
    checks.published(c, run, "COMPUTE_STRAGGLER", 1, "critical")


@scenario("slow backward on rank 3", quick=True)
def slow_backward(bench, c):
    run = bench.run("ddp", 4, env={"STEPS": 60, "FAULT": f"{EVEN},3:backward:30"})
    checks.ended_well(c, run, 4)
    checks.rows_are_iterations(c, run, 4)
    checks.sleep_is_difference(c, run, 3, "backward", "backward")
    injected = median(t["sleep"]["backward"] for t in run.truth[3])
    waited = [median(row["backward_sync_ns"] or 0 for row in run.rows[r][3:]) for r in range(4)]
    c.near(ms(median(waited[:3]) - waited[3]), ms(injected), 0.25 * ms(injected),
           "wait of the others in backward beyond rank 3's, ms")
    checks.verdict(c, run, "BACKWARD_STRAGGLER", 3, "backward", "critical")


@scenario("slow optimizer on rank 0")
def slow_optimizer(bench, c):
    run = bench.run("ddp", 4, env={"STEPS": 60, "FAULT": f"{EVEN},0:optimizer:30"})
    checks.ended_well(c, run, 4)
    checks.sleep_is_difference(c, run, 0, "optimizer", "optimizer")
    checks.verdict(c, run, "OPTIMIZER_STRAGGLER", 0, "optimizer")


@scenario("pauses between the steps of rank 1")
def slow_host(bench, c):
    run = bench.run("ddp", 4, env={"STEPS": 60, "FAULT": f"{EVEN},1:host:30"})
    checks.ended_well(c, run, 4)
    checks.sleep_is_difference(c, run, 1, "host", "other")
    checks.verdict(c, run, "HOST_STRAGGLER", 1, "host")


@scenario("another rank is slow in each step")
def rotating(bench, c):
    run = bench.run("ddp", 4, env={"STEPS": 80, "FAULT": f"{EVEN},rotate:forward:40"})
    checks.ended_well(c, run, 4)
    checks.nobody_accused(c, run)
    c.equal(run.report["verdict"]["kind"], "IMBALANCE", "verdict")


@scenario("one process")
def single(bench, c):
    run = bench.run("single", 1, launcher="none", env={"STEPS": 40, "FAULT": "0:input:10"})
    checks.ended_well(c, run, 1)
    checks.rows_are_iterations(c, run, 1)
    checks.verdict(c, run, "INPUT_BOUND", None, "input")


# --- the shapes of training loops

ALL = ("input", "forward", "backward", "optimizer", "host")


def stages(**other):
    """Where sleeps must show; a stage set to None is not tried."""
    return {s: other.get(s, checks.COLUMN[s]) for s in ALL if other.get(s, "") is not None}


def faults(columns, rank):
    """A sleep in another stage each time, an iteration without one between any two."""
    return ",".join(f"{rank}:{stage}:40:every={2 * len(columns)}:from={3 + 2 * n}"
                    for n, stage in enumerate(columns))


def shape(name, job, knobs=None, columns=None, since=(1, 13), quick=False, loader=True, steps=43,
          ragged=False, waits=()):
    """A scenario for a loop of that shape: two ranks, sleeps in every stage of rank 1; in those of
    `waits` rank 0 is seen to wait as long."""
    columns = stages() if columns is None else columns

    @scenario(f"loop: {name}", quick, since)
    def run_shape(bench, c):
        run = bench.run(job, 2, env={"STEPS": steps, "FAULT": faults(columns, 1), **(knobs or {})})
        checks.ended_well(c, run, 2)
        checks.rows_are_iterations(c, run, 2, loader)
        if not ragged:
            checks.aligned(c, run, 2)
        for stage, column in columns.items():
            checks.sleep_shows(c, run, 1, stage, column)
            if stage in waits:
                checks.others_wait(c, run, 1, stage, 2)


shape("DDP", "ddp", quick=True, waits=("input", "forward", "backward"))
shape("DDP in three epochs", "ddp", {"EPOCHS": 3}, steps=45)
shape("gradient accumulation under no_sync", "ddp_accum", quick=True)
shape("no DataLoader", "no_dataloader", columns=stages(host="next:input_wait"),
      loader=False)
shape("hand-written optimizer", "handwritten_opt", columns=stages(optimizer="other"))
shape("gradient scaler, with overflows", "amp_scaler", quick=True)
shape("evaluation under no_grad", "eval_between")
shape("evaluation under inference_mode", "eval_between", {"MODE": "inference"})
shape("evaluation through the DDP wrapper", "eval_between", {"MODE": "ddp"}, quick=True)
shape("GAN, two optimizers", "gan")
shape("activation checkpointing, reentrant", "checkpointing", {"REENTRANT": 1}, quick=True)
shape("activation checkpointing", "checkpointing")
shape("gradients averaged by hand", "manual_allreduce",
      waits=("input", "forward", "backward"))
shape("gradients averaged by hand, asynchronously", "manual_allreduce", {"ASYNC": 1})
shape("IterableDataset, two workers, three epochs", "iterable_workers",
      columns=stages(input=None), steps=45)
shape("IterableDataset, persistent workers", "iterable_workers", {"PERSIST": 1},
      columns=stages(input=None), steps=45)
shape("LBFGS, forward and backward inside step", "opt_kinds", columns=stages(optimizer=None))
shape("fused Adam", "opt_kinds", {"KIND": "fused"}, since=(2, 4))
shape("foreach Adam", "opt_kinds", {"KIND": "foreach"})
shape("several optimizers", "multi_opt")
shape("local SGD", "local_sgd", columns=stages(host=None))
shape("local SGD, ranks with unequal steps", "local_sgd", {"RAGGED": 1}, ragged=True,
      columns=stages(host=None))
shape("optimizer inside backward", "opt_in_backward", columns=stages(optimizer="backward"))
shape("inner epochs, as in PPO", "inner_epochs")
shape("FSDP2", "fsdp2", since=(2, 7), quick=True)
shape("compiled model", "compile_ddp", since=(2, 2))
shape("compiled model and optimizer", "compile_ddp", {"COMPILE_OPT": 1}, since=(2, 2),
      columns=stages(optimizer="other"))
shape("checkpoints and barriers", "barrier_ckpt")
shape("all kinds of collectives", "collectives")


@scenario("ranks made by torch.multiprocessing.spawn")
def mp_spawn(bench, c):
    run = bench.run("mp_spawn", 2, launcher="none", env={"STEPS": 20, "RANKS": 2})
    checks.ended_well(c, run, 2)
    checks.rows_are_iterations(c, run, 2)
    c.equal(run.report["run"]["world_size"], 2, "world size")


@scenario("an exception out of backward")
def raises(bench, c):
    run = bench.run("single", 1, launcher="none", env={"STEPS": 30, "RAISE": 12})
    checks.ended_well(c, run, 1)
    checks.partition(c, run, 0)
    lost = len(run.truth[0]) - len(run.rows.get(0, []))
    c.that(0 <= lost <= 1, f"{lost} rows lost; at most the failed iteration may share a row")


# --- a good guest

def same_as_bare(bench, c, job, ranks, launcher, env):
    bare = bench.run(job, ranks, False, launcher, env)
    traced = bench.run(job, ranks, True, launcher, env)
    c.equal(traced.status, bare.status, "exit status, traced against bare")
    c.equal({r: sorted(t.splitlines()) for r, t in traced.out.items()},
            {r: sorted(t.splitlines()) for r, t in bare.out.items()}, "output")
    for rank in range(ranks):
        if rank in bare.err:
            c.equal(traced.err.get(rank), bare.err[rank], f"rank {rank}: stderr")
    return bare, traced


def caught_in_backward(bench, c, retry):
    bare, traced = same_as_bare(bench, c, "caught_backward", 2, "ranks", {"STEPS": 23, "RETRY": retry})
    c.that("caught 4" in bare.out[0], "the job caught its exceptions")
    checks.ended_well(c, traced, 2)
    for rank in range(2):
        checks.partition(c, traced, rank)
        c.equal(len(traced.rows.get(rank, [])), len(traced.truth[rank]), f"rank {rank}: rows")
    c.equal(traced.report["losses"], [], "losses")


@scenario("an exception in the middle of backward, caught, and tried again")
def caught_and_tried_again(bench, c):
    caught_in_backward(bench, c, 1)


@scenario("an exception in the middle of backward, caught, and the batch given up")
def caught_and_given_up(bench, c):
    caught_in_backward(bench, c, 0)


@scenario("same output, status, threads and descriptors as without", quick=True)
def guest(bench, c):
    bare, traced = same_as_bare(bench, c, "ddp", 2, "ranks", {"STEPS": 30, "LOG": 1, "EXIT": 3})
    c.equal(bare.status, 3, "exit status of the bare run")
    c.that("losses" in bare.out[0] and bare.out[0].count("step") == 30, "the job printed its steps")
    for rank in range(2):
        a, b = bare.final.get(rank, {}), traced.final.get(rank, {})
        if not c.that(a and b, f"rank {rank} did not finish"):
            continue
        c.equal(b["tasks"], a["tasks"], f"rank {rank}: threads")
        c.equal([kind(f) for f in b["fds"]], [kind(f) for f in a["fds"]],
                f"rank {rank}: open descriptors")
        extra = {m for m in set(b["maps"]) - set(a["maps"]) if not ordinary(m)}
        ours = {m for m in extra if m.endswith("liblaggard.so") or ".spool" in m}
        c.equal(extra, ours, f"rank {rank}: mapped files")
        c.that(any(m.endswith("liblaggard.so") for m in ours), f"rank {rank}: library loaded")


def kind(descriptor):
    """A descriptor's target without what differs between any two runs."""
    head = descriptor.split(":")[0]
    return head if head in ("socket", "pipe") else os.path.basename(descriptor)


def ordinary(mapping):
    """Mappings that differ between any two runs."""
    return mapping.startswith(("[", "/dev/", "/memfd")) or "torch_" in mapping


@scenario("same output under torchrun, in a failing job")
def guest_torchrun(bench, c):
    bare, _ = same_as_bare(bench, c, "ddp", 2, "torchrun", {"STEPS": 10, "LOG": 1, "EXIT": 3})
    c.that(bare.status != 0, "torchrun reports the failure")


@scenario("the library is inert on demand")
def disabled(bench, c):
    process, directory = bench.start("ddp", 2, env={"STEPS": 10, "LAGGARD_DISABLE": "1"})
    process.wait(60)
    c.equal(process.returncode, 0, "exit status")
    c.equal(list(directory.glob("run/rank-*.sqlite")), [], "databases of an untraced run")


# --- killed

def complete_steps_are_there(c, run, ranks, what):
    for rank in range(ranks):
        last = len(run.truth.get(rank, []))
        rows = run.rows.get(rank, [])
        c.that(last > 0, f"{what}: rank {rank} had no complete step to lose")
        c.that(len(rows) >= last,
               f"{what}: rank {rank} has {len(rows)} rows of {last} complete steps")
        checks.partition(c, run, rank)


def killed(bench, c, what, name, accumulate=False):
    """Kills some of: the ranks, `laggard run`, at a random moment."""
    job, env = ("ddp_accum", {"ACC": 2}) if accumulate else ("ddp", {})
    after = seeded(f"{name}/{bench.torch.name}").randint(1, 60)
    process, directory = bench.start(job, 2, env={"STEPS": 150, "FAULT": "*:forward:5", **env})
    try:
        pids = wait_for_iterations(directory, 2, after)
        victims = {"ranks": pids, "recorder": [process.pid], "all": [process.pid, *pids],
                   "ranks, then recorder": [*pids, process.pid], "rank 1": pids[1:]}[what]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.05)
            if what == "rank 1":  # its peer waits for it; a user would end the job
                os.kill(pids[0], signal.SIGTERM)
        process.wait(60)
    except (RuntimeError, subprocess.TimeoutExpired):
        kill_session(process.pid)
        raise
    finally:
        time.sleep(0.2)
        kill_session(process.pid)
    run = bench.collect(directory, True)
    complete_steps_are_there(c, run, 2, f"{name} killed after {after} iterations")
    return run


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@scenario("SIGKILL to all ranks and to laggard run", quick=True)
def kill_all(bench, c):
    killed(bench, c, "all", "all")


@scenario("SIGKILL to the ranks")
def kill_ranks(bench, c):
    run = killed(bench, c, "ranks", "ranks")
    reasons = {loss["reason"] for loss in run.report["losses"]}
    c.that("killed" in reasons, f"the report says that ranks were killed: {sorted(reasons)}")


@scenario("SIGKILL to the ranks, then to laggard run, in gradient accumulation")
def kill_accumulating(bench, c):
    killed(bench, c, "ranks, then recorder", "accumulation", accumulate=True)


@scenario("SIGKILL to one rank of two")
def kill_one(bench, c):
    killed(bench, c, "rank 1", "rank 1")


@scenario("SIGKILL to laggard run; the training goes on", quick=True)
def kill_recorder(bench, c):
    run = killed(bench, c, "recorder", "recorder")
    for rank in range(2):
        c.equal(len(run.truth[rank]), 150, f"rank {rank}: iterations")
        c.equal(len(run.rows.get(rank, [])), 150, f"rank {rank}: rows")


__all__ = ["SCENARIOS", "Skip", "own"]
