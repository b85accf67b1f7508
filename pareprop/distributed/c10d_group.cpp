#include "pareprop/distributed/c10d_group.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "pareprop/distributed/c10d_backend.h"
#include "pareprop/distributed/call_within.h"
#include "pareprop/distributed/heartbeat.h"
#include "pareprop/distributed/rendezvous.h"

namespace pareprop::distributed {
namespace {

// For what is done after the time-out of the library itself is over.
constexpr std::chrono::milliseconds kConnectMargin{500};

// Gloo would take the first bytes of it, whatever they are.
at::Tensor checked(const at::Tensor& tensor) {
  if (!tensor.is_contiguous()) throw std::invalid_argument("the tensor is not contiguous");
  return tensor.detach();
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// When an operation ended: set by the thread that ran it.
using EndTime = std::atomic<double>;

using Backend = c10::intrusive_ptr<c10d::Backend>;

// An operation on a copy in the host's memory, whose result goes back to the tensor.
class ThroughHost : public Pending {
 public:
  ThroughHost(std::unique_ptr<Pending> copied, at::Tensor copy, at::Tensor tensor)
      : copied_(std::move(copied)), copy_(std::move(copy)), tensor_(std::move(tensor)) {}
  void wait() override {
    copied_->wait();
    tensor_.copy_(copy_);
  }
  double done_at() const override { return copied_->done_at(); }

 private:
  std::unique_ptr<Pending> copied_;
  at::Tensor copy_, tensor_;
};

// Gloo for tensors of the CPU: numbers and flags that processes exchange beside gradients, and
// barriers of hosts, whatever the device is. For those of CUDA there is NCCL; those of other
// accelerators travel through the host's memory.
class C10dGroup : public ProcessGroup {
 public:
  C10dGroup(LaunchVariables variables, const GroupOptions& options)
      : variables_(std::move(variables)),
        store_(meet_at_store(variables_, options.timeout)),
        heartbeat_(store_, variables_.rank, variables_.world, options.timeout) {
    const auto made = [&](auto make, const char* name) {
      const auto own = c10::make_intrusive<c10d::PrefixStore>(name, store_);
      // It asks the store, which may not answer.
      return call_within(options.timeout + kConnectMargin,
                         [make, own, variables = variables_, timeout = options.timeout] {
                           return make(own, variables, timeout);
                         });
    };
    run("making connections", [&] {
      gloo_ = made(make_gloo, "group");
      if (options.device.is_cuda()) nccl_ = made(make_nccl, "cuda");
    });
  }

  ~C10dGroup() override {
    // Not while an error is on its way: the others then find this process gone, and say so.
    if (!failed_ && std::uncaught_exceptions() == 0) heartbeat_.leave();
  }

  int rank() const override { return variables_.rank; }
  int local_rank() const override { return variables_.local_rank; }
  int world() const override { return variables_.world; }
  int local_world() const override {
    return variables_.local_world > 0 ? variables_.local_world : variables_.world;
  }

  std::unique_ptr<Pending> all_reduce(const at::Tensor& tensor) override {
    return begin_with("all-reduce", tensor, [](const Backend& backend, auto& tensors) {
      return backend->allreduce(tensors);
    });
  }

  std::unique_ptr<Pending> reduce(const at::Tensor& tensor, int to) override {
    c10d::ReduceOptions options;
    options.rootRank = to;
    return begin_with("reduce", tensor, [&](const Backend& backend, auto& tensors) {
      // Gloo's reduce adds up in another order than its all-reduce, and takes longer: 272 ms
      // against 88 for 16 MiB in three processes of one machine.
      return backend == gloo_ ? backend->allreduce(tensors) : backend->reduce(tensors, options);
    });
  }

  std::unique_ptr<Pending> broadcast(const at::Tensor& tensor, int from) override {
    c10d::BroadcastOptions options;
    options.rootRank = from;
    return begin_with("broadcast", tensor, [&](const Backend& backend, auto& tensors) {
      return backend->broadcast(tensors, options);
    });
  }

  void barrier() override {
    begin(
        "barrier", [&] { return gloo_->barrier(); }, /*tells_end=*/true)
        ->wait();
  }

 private:
  class Operation : public Pending {
   public:
    Operation(C10dGroup& group, const char* name, c10::intrusive_ptr<c10d::Work> work,
              bool tells_end)
        : group_(group), name_(name), work_(std::move(work)) {
      if (!tells_end) return;
      if (const auto future = work_->getFuture()) {
        future->addCallback([ended = ended_](c10::ivalue::Future&) { *ended = now(); },
                            /*uses_future=*/false);
      }
    }
    void wait() override {
      group_.run(name_, [this] { work_->wait(); });
      double unknown = 0.0;
      ended_->compare_exchange_strong(unknown, now());
    }
    double done_at() const override { return *ended_; }

   private:
    C10dGroup& group_;
    const char* name_;
    c10::intrusive_ptr<c10d::Work> work_;
    const std::shared_ptr<EndTime> ended_ = std::make_shared<EndTime>(0.0);
  };

  // Begins `operation` with the backend of the tensor's device, or on a copy that Gloo can take.
  template <class Operate>
  std::unique_ptr<Pending> begin_with(const char* name, const at::Tensor& tensor,
                                      Operate&& operation) {
    const bool by_nccl = tensor.is_cuda() && nccl_;
    const bool through_host = !tensor.is_cpu() && !by_nccl;
    const at::Tensor copy = through_host ? tensor.detach().cpu() : at::Tensor();
    auto pending = begin(
        name,
        [&] {
          std::vector<at::Tensor> tensors{checked(tensor)};
          if (through_host) tensors[0] = copy;
          return operation(by_nccl ? nccl_ : gloo_, tensors);
        },
        /*tells_end=*/!by_nccl);  // NCCL's would be called on a stream of its own
    if (!through_host) return pending;
    return std::make_unique<ThroughHost>(std::move(pending), copy, tensor.detach());
  }

  template <class Begin>
  std::unique_ptr<Pending> begin(const char* name, Begin&& begin_work, bool tells_end) {
    heartbeat_.count_operation();
    try {
      return std::make_unique<Operation>(*this, name, begin_work(), tells_end);
    } catch (const std::exception& error) {
      // Nothing was sent yet: it is the tensor that does not suit.
      throw std::invalid_argument(std::string(name) + ": " + what_torch_said(error));
    }
  }

  template <class Run>
  void run(const char* name, Run&& body) {
    try {
      body();
    } catch (const std::invalid_argument&) {
      throw;
    } catch (const std::exception& error) {
      failed_ = true;
      throw std::runtime_error(
          "rank " + std::to_string(rank()) + " of " + std::to_string(world()) +
          " cannot continue: " + heartbeat_.blame() +
          ". See the messages of the other processes, and resume from the last checkpoint. (" +
          name + ": " + what_torch_said(error) + ")");
    }
  }

  const LaunchVariables variables_;
  const c10::intrusive_ptr<c10d::Store> store_;
  Heartbeat heartbeat_;
  Backend gloo_;
  Backend nccl_;  // null unless the processes train on CUDA
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_c10d_group(const LaunchVariables& variables,
                                              const GroupOptions& options) {
  if (options.device.is_meta()) {
    throw std::invalid_argument(
        "several processes cannot train together on device meta, expected the CPU or an "
        "accelerator");
  }
  if (options.device.is_cuda()) expect_nccl();  // before the others are met
  return std::make_unique<C10dGroup>(variables, options);
}

}  // namespace pareprop::distributed
