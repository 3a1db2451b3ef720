"""What the jobs share: one line "ok NAME" or "FAILED NAME: why" for each check, exact device times,
and the stand-ins' own functions. By the scenario's settings only gemms (1 ms) and collectives
(2 ms) take time, and queues hold any number of operations."""
import ctypes
import traceback

import torch

GATE_NS = 1_000_000_000  # the device is busy for so long while the host issues what is measured


def cudart():
    with open("/proc/self/maps", encoding="ascii") as maps:
        path = next(line.split()[-1] for line in maps if "/libcudart.so." in line)
    return ctypes.CDLL(path)


def check(name, holds, detail=""):
    print(f"ok {name}" if holds else f"FAILED {name}: {detail}", flush=True)


def run(*tests):
    """Each test is a function; what it returns, if anything, is what went wrong."""
    for test in tests:
        try:
            wrong = test()
        except Exception:  # pylint: disable=broad-except
            wrong = traceback.format_exc().replace("\n", " | ")[-1500:]
        check(test.__name__, not wrong, wrong)


def event():
    return torch.cuda.Event(enable_timing=True)


def device_ms(work, before=lambda: None):
    """Device time of work(), issued while the device is still busy with something else. before()
    may bring the ranks' devices to a common start."""
    begin, end = event(), event()
    torch.cuda.synchronize()
    torch.cuda._sleep(GATE_NS)
    before()
    begin.record()
    work()
    end.record()
    ahead = not begin.query()
    end.synchronize()
    if not ahead:
        return f"the host was too slow: more than {GATE_NS} ns to issue"
    return round(begin.elapsed_time(end), 2)
