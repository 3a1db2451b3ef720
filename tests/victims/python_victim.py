"""python_victim.py LIBTORCH_PYTHON SCENARIO FILE: a Python program that trains on the fake PyTorch and
makes processes in the ways that Python has. Says the same with and without the library.
"""
import ctypes
import multiprocessing
import os
import subprocess
import sys
import threading
import time

STEPS = 3
BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Torch:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)  # RTLD_LOCAL, and the GIL is not held in its functions
        self.library.fake_execute.restype = ctypes.c_long
        self.library.fake_execute.argtypes = [ctypes.c_long, ctypes.c_int, BODY, ctypes.c_void_p]
        self.library.fake_label.argtypes = [ctypes.c_char_p, BODY, ctypes.c_void_p]
        self.library.fake_finalize.argtypes = [BODY, ctypes.c_void_p]
        self.library.fake_import()
        self.sleeps = {ms: BODY(lambda _, ms=ms: time.sleep(ms / 1000)) for ms in (1, 1.5, 2, 3)}
        self.node = BODY(self.backward)

    def backward(self, _):
        time.sleep(0.004)
        self.library.fake_finalize(self.sleeps[1.5], None)

    def train(self, steps):
        for _ in range(steps):
            self.library.fake_label(b"enumerate(DataLoader)#X.__next__", self.sleeps[2], None)
            self.library.fake_label(b"DistributedDataParallel.forward", self.sleeps[3], None)
            if self.library.fake_execute(2, 1, self.node, None) != 403:
                print("wrong result", flush=True)
            self.library.fake_label(b"Optimizer.step#SGD.step", self.sleeps[1], None)


def read_all(path):
    fd = os.open(path, os.O_RDONLY)
    size = 0
    while part := os.read(fd, 1009):
        size += len(part)
    os.close(fd)
    return size


def put_sizes(path, queue):
    queue.put(read_all(path))


def with_multiprocessing(method, path):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    workers = [context.Process(target=put_sizes, args=(path, queue)) for _ in range(3)]
    for worker in workers:
        worker.start()
    print(sorted(queue.get() for _ in workers), flush=True)
    for worker in workers:
        worker.join()
    print([worker.exitcode for worker in workers], flush=True)


def with_pool(_method, path):
    with multiprocessing.get_context("fork").Pool(3) as pool:
        print(pool.map(read_all, [path] * 12), flush=True)


def with_os_fork(_method, path):
    pid = os.fork()
    if pid == 0:
        read_all(path)
        os._exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def subprocess_storm(_method, _path):
    def run_some(talks):
        for n in range(8):
            done = subprocess.run(["sh", "-c", f"echo {n}; exit {n}"], capture_output=True)
            if done.stdout != b"%d\n" % n or done.returncode != n:
                print("wrong", done, flush=True)
            try:
                subprocess.run(["/does/not/exist"])
            except FileNotFoundError as error:
                if n == 0 and talks:
                    print(error, flush=True)
            subprocess.run(["true"], preexec_fn=os.setpgrp, close_fds=True)  # by fork, not vfork

    threads = [threading.Thread(target=run_some, args=(n == 0,)) for n in range(2)]
    for thread in threads:
        thread.start()
    TORCH.train(STEPS)
    for thread in threads:
        thread.join()


SCENARIOS = {
    "fork": with_multiprocessing,
    "spawn": with_multiprocessing,
    "forkserver": with_multiprocessing,
    "pool": with_pool,
    "os-fork": with_os_fork,
    "subprocess-storm": subprocess_storm,
}

if __name__ == "__main__":
    TORCH = Torch(sys.argv[1])
    TORCH.train(STEPS)
    SCENARIOS[sys.argv[2]](sys.argv[2], sys.argv[3])
    TORCH.train(STEPS)
    print("end", flush=True)
    sys.exit(7)
