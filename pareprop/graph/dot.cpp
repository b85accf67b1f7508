#include "pareprop/graph/dot.h"

#include <algorithm>
#include <vector>

#include "pareprop/graph/text.h"

namespace pareprop {
namespace {

std::string_view fill(TaskKind kind) {
  switch (kind) {
    case TaskKind::recover:
      return "#a6cee3";
    case TaskKind::gradient:
      return "#fdbf6f";
    case TaskKind::weight_gradient:
      return "#b2df8a";
  }
  return "#ffffff";
}

std::string node(int id) { return "t" + std::to_string(id); }

std::string edge(int from, int to, std::string_view attributes) {
  return "  " + node(from) + " -> " + node(to) + std::string(attributes) + ";\n";
}

}  // namespace

std::string to_dot(const TaskGraph& graph, std::string_view title) {
  std::string out = "digraph " + text::dot(title) +
                    " {\n"
                    "  rankdir=LR;\n"
                    "  node [shape=box, style=filled, fontname=\"sans-serif\"];\n";
  for (int lane = 0; lane < graph.lanes(); ++lane) {
    out += "  subgraph cluster_lane" + std::to_string(lane) + " {\n    label=\"lane " +
           std::to_string(lane) + "\";\n    color=gray;\n";
    for (int id = 0; id < graph.size(); ++id) {
      if (graph[id].lane != lane) continue;
      out += "    " + node(id) + " [label=" + text::dot(label(graph[id])) + ", fillcolor=\"" +
             std::string(fill(graph[id].kind)) + "\"];\n";
    }
    out += "  }\n";
  }

  std::vector<int> previous(static_cast<std::size_t>(graph.lanes()), -1);
  for (int id = 0; id < graph.size(); ++id) {
    const Task& task = graph[id];
    for (int needed : task.needs) out += edge(needed, id, "");
    int& last = previous[static_cast<std::size_t>(task.lane)];
    const bool needs_last =
        std::find(task.needs.begin(), task.needs.end(), last) != task.needs.end();
    if (last >= 0 && !needs_last) out += edge(last, id, " [style=dashed, color=gray]");
    last = id;
  }
  return out + "}\n";
}

}  // namespace pareprop
