#include "pareprop/reversible/torch_lanes.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <omp.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <latch>

#include "pareprop/device/moment.h"
#include "pareprop/lanes/stream_lanes.h"
#include "pareprop/ops/device_path.h"
#include "pareprop/ops/shared_parts.h"

// Of MKL, where torch has it: sets the calling thread's own count, 0 for none, and returns the one
// before.
extern "C" __attribute__((weak)) int MKL_Set_Num_Threads_Local(int count);

namespace pareprop {
namespace {

int set_mkl_threads(int count) {
  return MKL_Set_Num_Threads_Local != nullptr ? MKL_Set_Num_Threads_Local(count) : 0;
}

// Note [Threads that spin]
// After a parallel region OpenMP's threads wait for the next one by spinning, 300,000 times unless
// GOMP_SPINCOUNT says otherwise: some 10 ms in which those of the forward pass would keep the lanes
// from the cores. So while lanes run they sleep in a region of their own. Inside of it the caller's
// own regions have one thread, so where lanes have more, the threads are sent away instead. That
// takes a tenth of a millisecond, and what torch has compiled for each thread is lost: brgemm's
// kernels of all shapes, 5 % of a forward pass of mvit_tiny.
void while_threads_sleep(const std::function<void()>& body) {
  std::exception_ptr error;
  std::latch done(1);
#pragma omp parallel
  {
    if (omp_get_thread_num() == 0) {
      try {
        body();
      } catch (...) {
        error = std::current_exception();
      }
      done.count_down();
    } else {
      done.wait();
    }
  }
  if (error) std::rethrow_exception(error);
}

// A lane sends its own away too: libgomp counts the threads of all pools, also those that sleep,
// and once they are more than the cores, every thread sleeps after each region and has to be woken
// for the next. A forward pass then takes 1.7 times as long.
void send_threads_away() { omp_pause_resource_all(omp_pause_soft); }

}  // namespace

// Note [MKL's own count]
// MKL follows OpenMP's count unless it was given one of its own, and at::set_num_threads gives it
// one: to the calling thread, and to every other when that asks for the first time. Lanes would
// then each use all cores, and overlapped backward passes take twice as long.
//
// Note [Torch's first look]
// A thread's first call of at::get_num_threads or at::parallel_for gives it the count that
// at::set_num_threads was told, and would undo what a scope has set. Who was first is remembered by
// an inline function, so torch has one memory and this binary another: both are made to look.
IntraOpThreads::IntraOpThreads(int count) : previous_(at::get_num_threads()) {
  at::internal::lazy_init_num_threads();  // Note [Torch's first look]
  omp_set_num_threads(std::max(1, count));
  previous_mkl_ = set_mkl_threads(std::max(1, count));
}
IntraOpThreads::~IntraOpThreads() {
  omp_set_num_threads(previous_);
  set_mkl_threads(previous_mkl_);
}

TorchCpuLanes::TorchCpuLanes(int lanes, int threads_per_lane)
    : lanes_(lanes), threads_per_lane_(threads_per_lane) {}

void TorchCpuLanes::run(const TaskGraph& graph, const TaskBody& body, Observer* observer) {
  const at::ThreadLocalState state;
  const bool device_path = takes_device_path();
  const int threads = threads_per_lane_ > 0 ? threads_per_lane_
                                            : at::get_num_threads() / std::max(1, graph.lanes());
  const Help help = [this](const std::function<void()>& work) { lanes_.share(work); };
  const auto run_lanes = [&] {
    lanes_.run(graph, body, observer, [&](int lane, const std::function<void()>& tasks) {
      IntraOpThreads intra_op(threads);
      const HelpScope scope(help);
      if (lane == 0) return tasks();
      at::ThreadLocalStateGuard guard(state);
      const DevicePathScope path(device_path);
      tasks();
      if (threads > 1) send_threads_away();
    });
  };
  if (graph.lanes() == 1) return run_lanes();
  if (threads <= 1) return while_threads_sleep(run_lanes);
  send_threads_away();
  run_lanes();
}

std::shared_ptr<Executor> make_executor(c10::Device device, int lanes) {
  if (has_streams(device)) return std::make_shared<StreamLanes>(device, 3);
  return std::make_shared<TorchCpuLanes>(lanes);
}

std::shared_ptr<Executor> Executors::get(c10::Device device, int lanes) {
  // Nothing runs on the meta device: it stands for one with streams as well.
  const bool suits = always_ && (always_->asynchronous() == has_streams(device) ||
                                 always_->lanes() == 1 || device.is_meta());
  if (suits) return always_;
  const std::lock_guard lock(mutex_);
  const auto same = std::find_if(made_.begin(), made_.end(),
                                 [&](const auto& entry) { return entry.first == device; });
  auto& executor = same == made_.end() ? made_.emplace_back(device, nullptr).second : same->second;
  if (!executor || (executor->lanes() < lanes && !executor->asynchronous())) {
    executor = make_executor(device, lanes);
  }
  return executor;
}

}  // namespace pareprop
