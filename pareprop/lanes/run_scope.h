#pragma once

namespace pareprop {

// Note [Runs inside runs]
// An executor runs one graph at a time, so a task that runs another graph on the executor it is
// itself on would wait for ever. Each thread therefore knows the runs it is inside of, innermost
// first, and a lane's thread takes over those of the caller: the second run is found also when it
// is reached through another executor.

// This thread is inside a run of `executor` for as long as the object lives.
class RunScope {
 public:
  // Throws std::logic_error when this thread is inside a run of `executor` already.
  explicit RunScope(const void* executor);
  ~RunScope();
  RunScope(const RunScope&) = delete;
  RunScope& operator=(const RunScope&) = delete;

 private:
  const void* executor_;
  const RunScope* outer_;
};

// The thread of a lane is inside the run that `caller` entered on another thread.
class LaneScope {
 public:
  explicit LaneScope(const RunScope& caller);
  ~LaneScope();
  LaneScope(const LaneScope&) = delete;
  LaneScope& operator=(const LaneScope&) = delete;

 private:
  const RunScope* previous_;
};

}  // namespace pareprop
