// fake_torch_python.cpp - libtorch_python.so of the tests: the engine of Python, which overrides
// execute() and calls the base's through the PLT, and a C interface (fake_torch_api.h).
#include "fake_torch_api.h"
#include "fake_torch.h"

#include <cstring>
#include <stdexcept>

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::variable_list;

namespace
{
struct PythonEngine : Engine {
    variable_list execute(const edge_list &roots, const variable_list &inputs, bool keep_graph,
                          bool create_graph, bool accumulate_grad,
                          const edge_list &outputs) override
    {
        return Engine::execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
    }
    static Engine &get()
    {
        static PythonEngine engine;
        return engine;
    }
};

struct BodyNode : torch::autograd::Node {
    BodyNode(fake_body body, void *argument) : body_(body), argument_(argument)
    {
    }
    void apply() override
    {
        if (body_ != nullptr)
            body_(argument_);
    }
    fake_body body_;
    void *argument_;
};

std::function<void()> bound(fake_body body, void *argument)
{
    return [=] {
        if (body != nullptr)
            body(argument);
    };
}

c10d::ProcessGroupGloo *group;
c10d::Reducer reducer;
void (c10d::Reducer::*const finalize)() = &c10d::Reducer::finalize_backward;
} // namespace

void fake_import(void)
{
    torch::autograd::set_default_engine_stub(PythonEngine::get);
}

void fake_label(const char *name, fake_body body, void *argument)
{
    at::RecordFunction label(name);
    if (body != nullptr)
        body(argument);
}

long fake_execute(long inputs, int accumulate, fake_body body, void *argument)
{
    edge_list roots(1);
    roots[0].function = std::make_shared<BodyNode>(body, argument);
    try {
        variable_list out = torch::autograd::get_default_engine().execute(
            roots, variable_list(static_cast<size_t>(inputs), at::Tensor(7)), false, false,
            accumulate != 0, {});
        return static_cast<long>(out.size()) + 100 * out.back().value();
    } catch (const std::exception &) {
        return -1;
    }
}

void fake_throw(const char *what)
{
    throw std::runtime_error(what);
}

void fake_set_gradients(int enabled)
{
    c10::GradMode::set_enabled(enabled != 0);
}

void fake_init_group(int rank, int size)
{
    group = new c10d::ProcessGroupGloo(rank, size);
}

void fake_init_old_group(int rank, int size)
{
    struct OldGroup : c10d::ProcessGroup {
        using ProcessGroup::ProcessGroup;
    };
    static OldGroup old_group(rank, size);
    (void)old_group;
}

void fake_finalize(fake_body body, void *argument)
{
    reducer.body = bound(body, argument);
    (reducer.*finalize)();
}

long fake_finalized(void)
{
    return reducer.finalized;
}

uintptr_t fake_member_pointer(void)
{
    uintptr_t word;
    std::memcpy(&word, &finalize, sizeof word);
    return word;
}

int fake_wait(int kind, fake_body body, void *argument)
{
    std::unique_ptr<c10d::Work> work(kind == 1   ? new c10d::ProcessGroupGloo::SendWork
                                     : kind == 2 ? new c10d::ProcessGroupGloo::RecvWork
                                                 : new c10d::Work);
    work->body = bound(body, argument);
    return work->wait() ? 1 : 0;
}

void fake_allreduce(long elements, fake_body body, void *argument)
{
    group->allreduce(static_cast<size_t>(elements), bound(body, argument));
}
