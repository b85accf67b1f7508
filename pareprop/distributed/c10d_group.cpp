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

class C10dGroup : public ProcessGroup {
 public:
  C10dGroup(LaunchVariables variables, const GroupOptions& options)
      : variables_(std::move(variables)),
        on_cpu_(options.device.is_cpu()),
        store_(meet_at_store(variables_, options.timeout)),
        heartbeat_(store_, variables_.rank, variables_.world, options.timeout) {
    const auto own = c10::make_intrusive<c10d::PrefixStore>("group", store_);
    run("making connections", [&] {
      // It asks the store, which may not answer.
      const auto make = on_cpu_ ? make_gloo : make_nccl;
      backend_ = call_within(options.timeout + kConnectMargin,
                             [make, own, variables = variables_, timeout = options.timeout] {
                               return make(own, variables, timeout);
                             });
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
    return begin("all-reduce", [&] {
      std::vector<at::Tensor> tensors{checked(tensor)};
      return backend_->allreduce(tensors);
    });
  }

  void broadcast(const at::Tensor& tensor, int from) override {
    begin("broadcast", [&] {
      std::vector<at::Tensor> tensors{checked(tensor)};
      c10d::BroadcastOptions options;
      options.rootRank = from;
      return backend_->broadcast(tensors, options);
    })->wait();
  }

  void barrier() override {
    begin("barrier", [&] { return backend_->barrier(); })->wait();
  }

 private:
  class Operation : public Pending {
   public:
    Operation(C10dGroup& group, const char* name, c10::intrusive_ptr<c10d::Work> work)
        : group_(group), name_(name), work_(std::move(work)) {
      // NCCL's would be called on a stream of its own.
      if (!group_.on_cpu_) return;
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

  template <class Begin>
  std::unique_ptr<Pending> begin(const char* name, Begin&& begin_work) {
    heartbeat_.count_operation();
    try {
      return std::make_unique<Operation>(*this, name, begin_work());
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
      throw std::runtime_error("rank " + std::to_string(rank()) + " of " + std::to_string(world()) +
                               " cannot go on: " + heartbeat_.blame() +
                               ". See what it said; start "
                               "again from the last checkpoint. (" +
                               name + ": " + what_torch_said(error) + ")");
    }
  }

  const LaunchVariables variables_;
  const bool on_cpu_;
  const c10::intrusive_ptr<c10d::Store> store_;
  Heartbeat heartbeat_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_c10d_group(const LaunchVariables& variables,
                                              const GroupOptions& options) {
  if (!options.device.is_cpu() && !options.device.is_cuda()) {
    throw std::invalid_argument("several processes cannot train together on device " +
                                options.device.str() + ", expected the CPU or CUDA");
  }
  return std::make_unique<C10dGroup>(variables, options);
}

}  // namespace pareprop::distributed
