#pragma once

#include <utility>
#include <vector>

#include "pareprop/trace/step_trace.h"

namespace pareprop::testing {

// A network of two stacks of one block each, with everything that a step can have. Seconds, from
// 100 on:
//   data          0 1
//   forward       1 [embedding] 2 [F0 G0 of stage 1] 4 [boundary] 5 [F0 G0 of stage 2] 7 [head] 8
//   backward      8 [head] 9, stage 2 to 13 (at its end it recovers G0 of stage 1), [boundary] 14,
//                 stage 1 to 17, [embedding] 18
//   communication 12 to 16 and 15 to 19; optimizer 19 to 20
inline constexpr double kStart = 100.0;

inline Timeline timeline_from(std::vector<Span> spans) {
  for (Span& span : spans) {
    span.begin += kStart;
    span.end += kStart;
  }
  return {std::move(spans)};
}

inline TaskGraph upper_graph() {
  TaskGraph graph;
  graph.add({.kind = TaskKind::gradient, .branch = 1, .lane = 0});
  graph.add({.kind = TaskKind::recover, .branch = 0, .lane = 1});
  graph.add({.kind = TaskKind::gradient, .branch = 0, .lane = 0, .needs = {0, 1}});
  graph.add({.kind = TaskKind::recover, .branch = 1, .lane = 1, .stack = 1});
  return graph;
}

inline TaskGraph lower_graph() {
  TaskGraph graph;
  graph.add({.kind = TaskKind::gradient, .branch = 1, .lane = 0});
  graph.add({.kind = TaskKind::recover, .branch = 0, .lane = 1});
  graph.add({.kind = TaskKind::gradient, .branch = 0, .lane = 0, .needs = {0, 1}});
  graph.add({.kind = TaskKind::weight_gradient, .branch = 1, .lane = 1, .needs = {0}});
  return graph;
}

inline StepTrace small_step() {
  StepTrace trace{.title = "small <net>", .stacks = 2, .begin = kStart, .end = kStart + 20};
  trace.spans.push_back(
      {.kind = StepKind::data, .name = "batch 3", .begin = kStart, .end = kStart + 1});
  add_forward(trace, timeline_from({{0, 0, 2, 3}, {1, 0, 3, 4}}), 0);
  add_forward(trace, timeline_from({{0, 0, 5, 6}, {1, 0, 6, 7}}), 1);
  // Of recovery, half a second and the whole second of the stage below run beside a gradient.
  add_backward(trace, upper_graph(),
               timeline_from({{0, 0, 9, 10}, {1, 1, 9.5, 11}, {2, 0, 11, 13}, {3, 1, 11, 12}}), 1,
               0);
  // A weight gradient and a gradient beside one recovery count once.
  add_backward(trace, lower_graph(),
               timeline_from({{0, 0, 14, 15}, {1, 1, 14, 16}, {2, 0, 16, 17}, {3, 2, 14.5, 15.5}}),
               0, StepSpan::kNone);
  add_between_stacks(trace, /*backward=*/false, kStart + 1, kStart + 8);
  add_between_stacks(trace, /*backward=*/true, kStart + 8, kStart + 18);
  for (const auto& [begin, end] : {std::pair{12.0, 16.0}, std::pair{15.0, 19.0}}) {
    trace.spans.push_back({.kind = StepKind::communication,
                           .name = "all-reduce",
                           .begin = kStart + begin,
                           .end = kStart + end});
  }
  trace.spans.push_back(
      {.kind = StepKind::optimizer, .name = "AdamW", .begin = kStart + 19, .end = kStart + 20});
  trace.tags = {"parameters", "tape"};
  trace.samples = {{.time = kStart, .bytes = {1000, 0}, .total = 1000},
                   {.time = kStart + 8, .bytes = {1000, 3000}, .total = 4001},
                   {.time = kStart + 20, .bytes = {1000, 0}, .total = 1000}};
  return trace;
}

}  // namespace pareprop::testing
