#include "pareprop/trace/recorder.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "pareprop/reversible/network_memory.h"
#include "pareprop/trace/memory_sampler.h"

namespace pareprop {

struct TraceRecorder::State {
  struct WholePass {
    bool backward;
    double begin, end;
  };
  struct Scope {
    StepKind kind;
    std::string name;
    Moment begin, end;
  };

  c10::Device device = at::kCPU;
  std::mutex mutex;
  bool recording = false;
  StepTrace trace;
  std::vector<WholePass> passes;
  std::vector<Scope> scopes;
  std::shared_ptr<MemorySampler> sampler;  // lanes may read while it is being taken away

  template <typename Add>
  void if_recording(Add&& add) {
    const std::lock_guard lock(mutex);
    if (recording) add();
  }

  void sample() {
    std::shared_ptr<MemorySampler> now;
    {
      const std::lock_guard lock(mutex);
      now = sampler;
    }
    if (now) now->sample();
  }
};

TraceRecorder::TraceRecorder(const Network& network) : state_(std::make_shared<State>()) {
  state_->device = device_of(network);
  const auto& stacks = network.stacks();
  state_->trace.stacks = static_cast<int>(stacks.size());
  int below = StepSpan::kNone;  // an empty stack has no part in a pass
  for (int i = 0; i < state_->trace.stacks; ++i) {
    const Stack& stack = stacks[static_cast<std::size_t>(i)];
    watches_.push_back(stack->watch(
        {.on_forward =
             [state = state_, i](const Timeline& timeline) {
               state->if_recording([&] { add_forward(state->trace, timeline, i); });
             },
         .on_backward =
             [state = state_, i, below](const TaskGraph& graph, const Timeline& timeline) {
               state->if_recording([&] { add_backward(state->trace, graph, timeline, i, below); });
             },
         .on_task = [state = state_] { state->sample(); }}));
    if (stack->depth() > 0) below = i;
  }
}

TraceRecorder::~TraceRecorder() {
  const std::lock_guard lock(state_->mutex);
  state_->recording = false;
  state_->sampler.reset();
}

double TraceRecorder::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void TraceRecorder::begin(std::string title) {
  const std::lock_guard lock(state_->mutex);
  state_->trace = {.title = std::move(title),
                   .stacks = state_->trace.stacks,
                   .begin = now(),
                   .tags = memory_tags(state_->device)};
  state_->passes.clear();
  state_->scopes.clear();
  state_->sampler = std::make_shared<MemorySampler>(state_->device);
  state_->recording = true;
}

StepTrace TraceRecorder::finish() {
  const MomentClock clock(state_->device);
  for (State::Scope& scope : std::exchange(state_->scopes, {})) {
    add(scope.kind, std::move(scope.name), clock.seconds(scope.begin), clock.seconds(scope.end));
  }
  std::shared_ptr<MemorySampler> sampler;
  StepTrace trace;
  {
    const std::lock_guard lock(state_->mutex);
    state_->recording = false;
    state_->trace.end = now();
    sampler = std::exchange(state_->sampler, nullptr);
    trace = std::exchange(state_->trace, {.stacks = state_->trace.stacks});
  }
  if (sampler) trace.samples = sampler->finish();
  for (const State::WholePass& pass : state_->passes) {
    add_between_stacks(trace, pass.backward, pass.begin, pass.end);
  }
  std::stable_sort(trace.spans.begin(), trace.spans.end(),
                   [](const StepSpan& a, const StepSpan& b) { return a.begin < b.begin; });
  return trace;
}

void TraceRecorder::add(StepKind kind, std::string name, double begin, double end) {
  state_->if_recording([&] {
    if (kind == StepKind::forward || kind == StepKind::other_backward) {
      state_->passes.push_back({kind == StepKind::other_backward, begin, end});
    } else {
      state_->trace.spans.push_back(
          {.kind = kind, .name = std::move(name), .begin = begin, .end = end});
    }
  });
}

namespace {

bool is_on_device(StepKind kind) {
  return kind == StepKind::forward || kind == StepKind::other_backward ||
         kind == StepKind::optimizer;
}

}  // namespace

TraceScope::TraceScope(TraceRecorder* recorder, StepKind kind, std::string name)
    : recorder_(recorder), kind_(kind), name_(std::move(name)) {
  if (recorder_ == nullptr) return;
  begin_.emplace(is_on_device(kind) ? recorder_->state_->device : at::kCPU);
}

TraceScope::~TraceScope() {
  if (recorder_ == nullptr) return;
  TraceRecorder::State& state = *recorder_->state_;
  try {
    const Moment end(is_on_device(kind_) ? state.device : at::kCPU);
    state.if_recording([&] { state.scopes.push_back({kind_, std::move(name_), *begin_, end}); });
  } catch (const c10::Error&) {
    // The device is lost, and with it the step whose error is on its way.
  }
}

}  // namespace pareprop
