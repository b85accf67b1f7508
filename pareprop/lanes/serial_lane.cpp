#include "pareprop/lanes/serial_lane.h"

namespace pareprop {

void SerialLane::run(const TaskGraph& graph, const TaskBody& body, Observer* observer) {
  for (int id = 0; id < graph.size(); ++id) {
    if (observer != nullptr) observer->on_begin(id, 0);
    body(graph[id]);
    if (observer != nullptr) observer->on_end(id, 0);
  }
}

}  // namespace pareprop
