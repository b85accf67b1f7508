#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "pareprop/lanes/cpu_lanes.h"
#include "pareprop/lanes/executor.h"

namespace pareprop {

// CPU lanes whose tasks call torch: each lane has its own share of the caller's intra-op threads
// and the caller's thread-local state (gradient mode, autocast, dispatch keys).
class TorchCpuLanes final : public Executor {
 public:
  // `threads_per_lane` 0: the caller's count, divided by the lanes, at least 1.
  explicit TorchCpuLanes(int lanes = 2, int threads_per_lane = 0);

  int lanes() const override { return lanes_.lanes(); }
  void run(const TaskGraph& graph, const TaskBody& body, Observer* observer = nullptr) override;

 private:
  CpuLanes lanes_;
  int threads_per_lane_;
};

// Sets the intra-op threads of this thread only, until the scope ends: OpenMP's count, which
// oneDNN follows, and MKL's own (Note [MKL's own count]). at::set_num_threads would change every
// thread that asks for the first time.
class IntraOpThreads {
 public:
  explicit IntraOpThreads(int count);
  ~IntraOpThreads();
  IntraOpThreads(const IntraOpThreads&) = delete;
  IntraOpThreads& operator=(const IntraOpThreads&) = delete;

 private:
  int previous_;
  int previous_mkl_;  // 0: none of its own
};

// What runs overlapped passes on `device`: TorchCpuLanes, or StreamLanes with three lanes.
std::shared_ptr<Executor> make_executor(c10::Device device, int lanes);

// Who runs the overlapped backward passes of one stack, or of all stacks of a network: an executor
// for each device, made when it is first needed. Thread-safe.
class Executors {
 public:
  Executors() = default;
  // This one, wherever it can: threads are not for tensors of an accelerator, where autograd would
  // run the tape of a lane on the thread that waits for the lane. Nor are streams for others.
  explicit Executors(std::shared_ptr<Executor> always) : always_(std::move(always)) {}

  // With at least so many lanes, unless it is the one that was given.
  std::shared_ptr<Executor> get(c10::Device device, int lanes);

 private:
  const std::shared_ptr<Executor> always_;
  std::mutex mutex_;
  std::vector<std::pair<c10::Device, std::shared_ptr<Executor>>> made_;  // guarded by mutex_
};

}  // namespace pareprop
