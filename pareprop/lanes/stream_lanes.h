#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "pareprop/lanes/executor.h"

namespace pareprop {

// Note [Stream lanes]
// A lane is a c10::Stream, an edge between lanes a c10::Event: no device header, any accelerator.
// All tasks are issued by the calling thread in the order of the graph, each with its lane's stream
// as the current one. c10::Event::block on an event that was not recorded yet returns silently, so
// that order is what makes the waits real. The host never waits: run() returns when everything is
// issued, with the caller's current stream ordered after all lanes. Lane 0 is the caller's stream.
// A tensor made on one lane and read on another must be recorded on the reader's stream by the body
// (record_on_current_stream), or its memory could be reused too early.
class StreamLanes final : public Executor {
 public:
  explicit StreamLanes(c10::Device device, int lanes = 2);
  ~StreamLanes() override;

  int lanes() const override;
  void run(const TaskGraph& graph, const TaskBody& body, Observer* observer = nullptr) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pareprop
