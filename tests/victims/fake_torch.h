// fake_torch.h - the few classes of PyTorch, c10d and Gloo that the library stands in for, with
// their real names, and so their real mangled names, in the real kinds of linkage: virtual members
// that another object overrides and calls without the vtable, free functions that take a struct by
// value, constructors, pointers to members. Shared by the two fake libraries.
#ifndef LAGGARD_TESTS_VICTIMS_FAKE_TORCH_H
#define LAGGARD_TESTS_VICTIMS_FAKE_TORCH_H

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace at
{
class Tensor
{
  public:
    explicit Tensor(long value = 0) : value_(std::make_shared<long>(value))
    {
    }
    long value() const
    {
        return *value_;
    }

  private:
    std::shared_ptr<long> value_; // not trivially copyable, as the real one
};

enum class RecordScope : uint8_t { FUNCTION = 0, USER_SCOPE = 7, NUM_SCOPES = 10 };

struct ObserverContext {
    virtual ~ObserverContext() = default;
};

class RecordFunction;

class RecordFunctionCallback
{
  public:
    using StartCallback = std::unique_ptr<ObserverContext> (*)(const RecordFunction &);
    using EndCallback = void (*)(const RecordFunction &, ObserverContext *);
    StartCallback start_ = nullptr;
    EndCallback end_ = nullptr;
    double sampling_prob_ = 1.0;
    std::array<bool, 10> scopes_ = {};
    bool needs_inputs_ = false, needs_outputs_ = false, needs_ids_ = false;
};
static_assert(sizeof(RecordFunctionCallback) == 40, "as in PyTorch");

uint64_t addGlobalCallback(RecordFunctionCallback callback);

class RecordFunction
{
  public:
    explicit RecordFunction(const char *name);
    virtual ~RecordFunction();
    const char *name() const;

  private:
    const char *name_;
    std::vector<std::unique_ptr<ObserverContext>> contexts_;
};
} // namespace at

namespace c10
{
struct GradMode {
    static bool is_enabled();
    static void set_enabled(bool enabled);
};
struct InferenceMode {
    static bool is_enabled();
};

namespace detail
{
template <class T> struct intrusive_target_default_null_type {
};
} // namespace detail

// Not trivially copyable: passed by value, it goes through a pointer.
template <class T, class Null = detail::intrusive_target_default_null_type<T>> class intrusive_ptr
{
  public:
    explicit intrusive_ptr(T *target) : target_(target)
    {
    }
    T *operator->() const
    {
        return target_.get();
    }

  private:
    std::shared_ptr<T> target_;
};
} // namespace c10

namespace torch
{
namespace autograd
{
struct Node {
    virtual ~Node() = default;
    virtual void apply() = 0;
};

struct Edge {
    std::shared_ptr<Node> function;
    uint32_t input_nr = 0;
};

using edge_list = std::vector<Edge>;
using variable_list = std::vector<at::Tensor>;

struct Engine {
    virtual ~Engine();
    virtual variable_list execute(const edge_list &roots, const variable_list &inputs,
                                  bool keep_graph, bool create_graph, bool accumulate_grad,
                                  const edge_list &outputs = {});
    static Engine &get_base_engine();
};

using EngineStub = Engine &(*)();
void set_default_engine_stub(EngineStub stub);
Engine &get_default_engine();
} // namespace autograd
} // namespace torch

namespace gloo
{
namespace rendezvous
{
class Context
{
  public:
    Context(int rank, int size, int base = 2);
    int rank, size, base;
};
} // namespace rendezvous

struct AllreduceOptions {
    char before[80];
    size_t elements, elementSize;
};
struct BroadcastOptions {
    char before[32];
    size_t elements, elementSize;
};
void allreduce(const AllreduceOptions &options);
void broadcast(BroadcastOptions &options);
} // namespace gloo

namespace c10d
{
using milliseconds = std::chrono::milliseconds;

// `body` is what happens inside: sleeping, an exception, being cancelled.
struct Work {
    virtual ~Work() = default;
    virtual bool wait(milliseconds timeout = milliseconds(0));
    std::function<void()> body;
};

class Reducer
{
  public:
    void finalize_backward();
    std::function<void()> body;
    long finalized = 0;
};

class Backend
{
  public:
    Backend(int rank, int size);
    virtual ~Backend() = default;
    int rank_, size_;
};

// up to PyTorch 1.13 the backends derive from this one
class ProcessGroup
{
  public:
    ProcessGroup(int rank, int size);
    virtual ~ProcessGroup() = default;
    int rank_, size_;
};

class ProcessGroupGloo : public Backend
{
  public:
    class AsyncWork : public Work
    {
      public:
        size_t elements = 0;
    };
    class SendWork : public Work
    {
      public:
        bool wait(milliseconds timeout = milliseconds(0)) override;
    };
    class RecvWork : public Work
    {
      public:
        bool wait(milliseconds timeout = milliseconds(0)) override;
    };
    ProcessGroupGloo(int rank, int size);
    void enqueue(c10::intrusive_ptr<AsyncWork> work);
    // one collective: issued here, run on a thread of its own, waited for with work->wait()
    void allreduce(size_t elements, const std::function<void()> &body);

  private:
    gloo::rendezvous::Context context_;
};
} // namespace c10d

#endif
