"""guest.py: what the guest_* scenarios share. They run programs bare and under the library and look at
what differs: nothing that the program or its user could see.

Tally    counts checks and prints the closing line
victims  the programs that ran, and how many were harmed
run      one program, traced or not, with a time limit; compare: both, and that they say the same
spools   the spools that a traced run left, as tests/victims/spool_dump.c prints them
"""
import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
VICTIMS = TREE / "build" / "tests" / "victims"
LIBRARY = TREE / "build" / "liblaggard.so"
FAKE_TORCH = VICTIMS / "torch" / "libtorch_python.so"
LIMIT = 60  # seconds for one program: a hang is a failure, not a wait

# nanoseconds that the stages of victim_train() (victim.h) take at least
SLEPT = {"input_wait_ns": 2_000_000, "forward_ns": 3_000_000, "backward_ns": 5_500_000,
         "optimizer_ns": 1_000_000, "backward_sync_ns": 1_500_000}
STAGES = ("input_wait_ns", "h2d_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns")


def names(path, macro):
    """{name: number} of a list in schema/bits.def"""
    found = {}
    for line in (TREE / path).read_text().splitlines():
        if line.startswith(macro + "("):
            number, name = line[len(macro) + 1:].split(",")[:2]
            found[name.strip()] = int(number)
    return found


FLAG = {name: 1 << bit for name, bit in names("schema/bits.def", "FLAG").items()}
SOURCE = {name: 1 << bit for name, bit in names("schema/bits.def", "SOURCE").items()}
LOSS = names("schema/bits.def", "LOSS")


class Victims:
    """Programs that ran bare and traced, by name, and whether anything that their user sees differed.
    `make guests` adds up the lines of all scenarios."""

    def __init__(self):
        self.harmed = {}
        atexit.register(self.say)

    def count(self, name, same):
        self.harmed[name] = self.harmed.get(name, False) or not same

    def say(self):
        if self.harmed:
            print(f"{sum(self.harmed.values())} of {len(self.harmed)} programs harmed", flush=True)


victims = Victims()


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, name, good, detail=""):
        if good:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAIL  {name}: {str(detail)[:1500]}", flush=True)
        return bool(good)

    def equal(self, name, got, expected):
        return self.check(name, got == expected, f"{got!r}, expected {expected!r}")

    def skip(self, name, reason):
        self.skipped += 1
        print(f"SKIP  {name}: {reason}", flush=True)

    def done(self):
        tail = f", {self.skipped} skipped" if self.skipped else ""
        print(f"{self.passed} passed, {self.failed} failed{tail}")
        sys.exit(1 if self.failed else 0)


class Result:
    def __init__(self, process, out, err, hung, place):
        self.pid, self.status, self.hung = process.pid, process.returncode, hung
        self.out, self.err, self.place = out, err, place

    def seen(self):
        """what the program's user sees"""
        return {"status": "hung" if self.hung else self.status, "stdout": self.out,
                "stderr": self.err}

    def spools(self):
        return spools(self.place)


class Machine:
    """how programs of one machine are run: natively, or by an emulator that hands over LD_PRELOAD"""

    def __init__(self, directory=VICTIMS, library=LIBRARY, emulator=()):
        self.directory, self.library, self.emulator = directory, library, list(emulator)
        self.torch = directory / "torch" / "libtorch_python.so"

    def command(self, command, traced):
        command = [str(c) for c in command]
        if not self.emulator:
            return command
        preload = ["-E", f"LD_PRELOAD={self.library}"] if traced else []
        return [*self.emulator, *preload, *command]


NATIVE = Machine()


def clean_environment():
    return {k: v for k, v in os.environ.items()
            if k != "LD_PRELOAD" and not k.startswith("LAGGARD_")}


def run(command, place=None, machine=NATIVE, limit=LIMIT, environment=None, traced=True,
        stdin=subprocess.DEVNULL, **options):
    """Runs a program; traced with its spools in `place`. `environment`: more variables, None deletes
    one. It leads a process group of its own, which is killed after the limit."""
    variables = clean_environment()
    if traced:
        if not machine.emulator:
            variables["LD_PRELOAD"] = str(machine.library)
        if place is not None:
            variables["LAGGARD_DIR"] = str(place)
    for name, value in (environment or {}).items():
        if value is None:
            variables.pop(name, None)
        else:
            variables[name] = value
    process = subprocess.Popen(machine.command(command, traced), env=variables, stdin=stdin,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               errors="replace", start_new_session=True, **options)
    hung = False
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        hung = True
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
    return Result(process, out, err, hung, place)


def compare(tally, name, command, place, **options):
    """Runs it bare, then traced; the same status, output and errors, or a failed check. Returns both
    results."""
    bare = run(command, traced=False, **options)
    traced = run(command, place, **options)
    tally.check(f"{name}: ends by itself", not bare.hung, bare.seen())
    victims.count(name, tally.equal(f"{name}: looks the same", traced.seen(), bare.seen()))
    return bare, traced


def spools(place):
    """The spools under a run directory, by (pid, seq)."""
    paths = sorted(Path(place).glob("spool/*/*.spool")) if place else []
    if not paths:
        return []
    dump = subprocess.run([VICTIMS / "spool-dump", *paths], text=True, capture_output=True)
    if dump.returncode != 0:
        raise RuntimeError(dump.stderr)
    return sorted((json.loads(line) for line in dump.stdout.splitlines()),
                  key=lambda s: (s["pid"], s["seq"]))


def rows(spool):
    """All rows that a reader would take after the writer's end: the ring, then what it lacks of the held
    ones and of the newer provisional copy. A step that is twice in the ring is twice in here."""
    found = list(spool["rows"])
    known = {r["step"] for r in found}
    copies = sorted((p for p in spool["provisional"] if p["state"] and p["serial"]),
                    key=lambda p: p["serial"])
    for row in spool["held"] + copies[-1:]:
        if row["step"] not in known:
            known.add(row["step"])
            found.append(row)
    return found


def check_rows(tally, name, got, count):
    """`count` rows, numbered without a gap, each beginning where the last one ended, and whose stages
    sum to its duration."""
    tally.equal(f"{name}: one row an iteration", [r["step"] for r in got], list(range(count)))
    torn = [r["step"] for r in got if sum(r[s] or 0 for s in STAGES) != r["dur_ns"]]
    tally.check(f"{name}: the stages sum to the duration", not torn, torn)
    gaps = [b["step"] for a, b in zip(got, got[1:]) if a["start_ns"] + a["dur_ns"] != b["start_ns"]]
    return gaps


def check_slept(tally, name, got, slept=None):
    """Each stage is at least as long as the program slept in it."""
    slept = slept or SLEPT
    short = [(r["step"], c, r[c]) for r in got for c, ns in slept.items()
             if r[c] is None or r[c] < ns]
    tally.check(f"{name}: each stage has its time", not short, short[:5])


class Place:
    """A directory that is there while a test runs."""

    def __enter__(self):
        self.path = Path(tempfile.mkdtemp(prefix="laggard-guest-"))
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)
