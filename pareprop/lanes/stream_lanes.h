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
// issued, with the caller's current stream ordered after all lanes, and these begin after what it
// has to do at the start. Lane 0 is the caller's stream: allocators have a pool for each stream,
// and so what the rest of a network takes before and after serves this lane too. The third lane is
// for what can wait: its stream has a lower priority than the second. Memory that lanes share goes
// by the edges of the graph (Note [Memory between lanes]).
class StreamLanes final : public Executor {
 public:
  // Throws std::invalid_argument when the device has no streams in this build of torch, as the CPU,
  // or is not there.
  explicit StreamLanes(c10::Device device, int lanes = 2);
  ~StreamLanes() override;

  int lanes() const override;
  bool asynchronous() const override { return true; }
  void hand_back(std::shared_ptr<const void> memory, int owner) override;
  // Throws std::invalid_argument when the graph has more lanes than this executor, or any lane may
  // run its tasks: the host does not know which stream is free. After a body threw, the caller's
  // stream is ordered after everything that was issued until then.
  void run(const TaskGraph& graph, const TaskBody& body, Observer* observer = nullptr) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pareprop
