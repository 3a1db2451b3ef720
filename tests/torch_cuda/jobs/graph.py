"""A step of its own is captured in a graph in iteration CAPTURE and replayed in each one after that, beside
an ordinary training. MODE: thread_local, relaxed or global. Prints the number of the graph's nodes and what
its replay left in memory."""
import ctypes

from cuda_job import CudaJob, knob, loss_of, nn, torch

job = CudaJob()
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters())
layer, fixed = nn.Linear(8, 8, device=job.device), torch.zeros(4, 8, device=job.device)
source, target = torch.arange(5.0).to(job.device), torch.zeros(5, device=job.device)
layer(fixed).sum().backward()
graph, options = torch.cuda.CUDAGraph(keep_graph=True), {"capture_error_mode": knob("MODE", "global")}
replays = 0


def nodes():
    count = ctypes.c_size_t()
    job.simulator.cudaGraphGetNodes(ctypes.c_void_p(graph.raw_cuda_graph()), None, ctypes.byref(count))
    return count.value


for x, y in job.batches(job.loader()):
    if job.iteration == knob("CAPTURE", 5):
        with torch.cuda.graph(graph, **options):
            layer(fixed).sum().backward()
            target.copy_(source)
        print(f"rank {job.rank} nodes {nodes()}", flush=True)
        graph.instantiate()
        source.copy_(torch.arange(5.0) + 10)
    elif job.iteration > knob("CAPTURE", 5):
        graph.replay()
        replays += 1
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    job.backward(loss)
    optimizer.step()
    job.keep(loss)
print(f"rank {job.rank} replays {replays}, target {target.tolist()}", flush=True)
job.finish()
