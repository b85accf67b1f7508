#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>

#include "pareprop/distributed/launch_variables.h"

namespace pareprop::distributed {

// An operation under way.
class Pending {
 public:
  virtual ~Pending() = default;
  // Returns when it is done. Throws as the operations of ProcessGroup do. Once.
  virtual void wait() = 0;
  // When it was done, in seconds of std::chrono::steady_clock; where the backend does not tell,
  // when wait() returned. After wait().
  virtual double done_at() const = 0;
};

// The processes that train together. Its operations are called by all of them, in the same order,
// from one thread at a time. In a group of one process they return at once, so nobody has to ask
// whether there are others.
//
// When a process died or does not come within the time-out, all throw std::runtime_error that names
// its rank. The group can only be destroyed after that.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int local_rank() const = 0;
  virtual int world() const = 0;
  virtual int local_world() const { return world(); }  // on this machine

  // The sum of all processes' tensors, the same bits in all of them, in place. The tensor is left
  // alone until wait() returned. Here and below, one that is not contiguous is a
  // std::invalid_argument.
  virtual std::unique_ptr<Pending> all_reduce(const at::Tensor& tensor) = 0;
  // The sum in process `to`, in place; what the tensors of the others hold then is undefined. By
  // Gloo it has the bits of all_reduce(), for a tensor as large.
  virtual std::unique_ptr<Pending> reduce(const at::Tensor& tensor, int to) = 0;
  // Gives all the tensor of process `from`.
  virtual std::unique_ptr<Pending> broadcast(const at::Tensor& tensor, int from = 0) = 0;
  // Returns when all have called it.
  virtual void barrier() = 0;
};

struct GroupOptions {
  // How long one operation may take: longer than processes differ in the time of a step, of
  // saving, or of evaluating.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  at::Device device = at::kCPU;
};

// This process alone.
std::unique_ptr<ProcessGroup> one_process();

// The group that the variables describe. Tensors of the CPU travel by Gloo, those of CUDA by NCCL,
// where libtorch has it, and those of other accelerators by Gloo through the host's memory.
//
// Throws std::invalid_argument for a device without a way to communicate, std::runtime_error when
// rank 0 cannot listen (port in use) or others do not come within the time-out.
std::unique_ptr<ProcessGroup> make_process_group(const LaunchVariables& variables,
                                                 const GroupOptions& options = {});

// From the variables of this process's environment.
std::unique_ptr<ProcessGroup> process_group_from_environment(const GroupOptions& options = {});

}  // namespace pareprop::distributed
