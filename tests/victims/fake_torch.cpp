// fake_torch.cpp - libtorch_cpu.so of the tests: see fake_torch.h. Everything has default
// visibility and lies in one object, as in PyTorch; -fsemantic-interposition keeps calls between
// exported functions on the PLT.
#include "fake_torch.h"

#include <mutex>
#include <thread>

namespace at
{
static std::mutex lock;
static std::vector<RecordFunctionCallback> callbacks;

uint64_t addGlobalCallback(RecordFunctionCallback callback)
{
    std::lock_guard<std::mutex> held(lock);
    callbacks.push_back(callback);
    return callbacks.size();
}

RecordFunction::RecordFunction(const char *name) : name_(name)
{
    for (const auto &callback : callbacks)
        if (callback.scopes_[static_cast<size_t>(RecordScope::USER_SCOPE)])
            contexts_.push_back(callback.start_(*this));
}

RecordFunction::~RecordFunction()
{
    for (size_t i = 0; i < contexts_.size(); i++)
        callbacks[i].end_(*this, contexts_[i].get());
}

const char *RecordFunction::name() const
{
    return name_;
}
} // namespace at

namespace c10
{
static thread_local bool gradients = true;

bool GradMode::is_enabled()
{
    return gradients;
}

void GradMode::set_enabled(bool enabled)
{
    gradients = enabled;
}

bool InferenceMode::is_enabled()
{
    return false;
}
} // namespace c10

namespace torch
{
namespace autograd
{
static EngineStub default_engine = Engine::get_base_engine;

Engine::~Engine() = default;

// Returns one tensor more than it was given: the hidden result pointer must arrive.
variable_list Engine::execute(const edge_list &roots, const variable_list &inputs, bool keep_graph,
                              bool create_graph, bool accumulate_grad, const edge_list &outputs)
{
    variable_list result = inputs;
    for (const auto &root : roots)
        root.function->apply();
    result.emplace_back(keep_graph * 1 + create_graph * 2 + accumulate_grad * 4 +
                        8 * static_cast<long>(outputs.size()));
    return result;
}

Engine &Engine::get_base_engine()
{
    static Engine engine;
    return engine;
}

void set_default_engine_stub(EngineStub stub)
{
    default_engine = stub;
}

Engine &get_default_engine()
{
    return default_engine();
}
} // namespace autograd
} // namespace torch

namespace gloo
{
namespace rendezvous
{
Context::Context(int rank_, int size_, int base_) : rank(rank_), size(size_), base(base_)
{
}
} // namespace rendezvous

void allreduce(const AllreduceOptions &)
{
}

void broadcast(BroadcastOptions &)
{
}
} // namespace gloo

namespace c10d
{
bool Work::wait(milliseconds)
{
    if (body)
        body();
    return true;
}

void Reducer::finalize_backward()
{
    if (body)
        body();
    finalized++;
}

Backend::Backend(int rank, int size) : rank_(rank), size_(size)
{
}

ProcessGroup::ProcessGroup(int rank, int size) : rank_(rank), size_(size)
{
}

bool ProcessGroupGloo::SendWork::wait(milliseconds)
{
    if (body)
        body();
    return true;
}

bool ProcessGroupGloo::RecvWork::wait(milliseconds)
{
    if (body)
        body();
    return true;
}

ProcessGroupGloo::ProcessGroupGloo(int rank, int size) : Backend(rank, size), context_(rank, size)
{
}

void ProcessGroupGloo::enqueue(c10::intrusive_ptr<AsyncWork> work)
{
    std::thread worker([work] {
        gloo::AllreduceOptions options = {};
        options.elements = work->elements;
        options.elementSize = sizeof(float);
        gloo::allreduce(options);
        gloo::BroadcastOptions unused = {};
        gloo::broadcast(unused);
    });
    worker.join();
}

void ProcessGroupGloo::allreduce(size_t elements, const std::function<void()> &body)
{
    auto *work = new AsyncWork;
    c10::intrusive_ptr<AsyncWork> held(work);
    work->elements = elements;
    work->body = body;
    enqueue(held);
    Work *base = work;
    base->wait();
}
} // namespace c10d
