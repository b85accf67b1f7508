#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "pareprop/lanes/executor.h"

namespace c10 {
struct Storage;
}

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
  // Throws std::invalid_argument when the device has no streams in this build of torch, as the CPU.
  explicit StreamLanes(c10::Device device, int lanes = 2);
  ~StreamLanes() override;

  int lanes() const override;
  // Throws std::invalid_argument when the graph has more lanes than this executor, or any lane may
  // run its tasks: the host does not know which stream is free. After a body threw, the caller's
  // stream is ordered after everything that was issued until then.
  void run(const TaskGraph& graph, const TaskBody& body, Observer* observer = nullptr) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The memory of `storage` is not reused before the work that its device's current stream has now is
// done. Does nothing for storages on the CPU and undefined ones.
void record_on_current_stream(const c10::Storage& storage);

}  // namespace pareprop
