#pragma once

#include <cstdint>
#include <vector>

#include "pareprop/graph/keep_plan.h"
#include "pareprop/graph/timeline.h"

namespace pareprop {

// What branch k of Note [The chain of branches] takes while it is alive.
struct BranchBytes {
  std::int64_t tape = 0;       // what its gradient reads, its input u[k+1] not counted
  std::int64_t value = 0;      // the stream tensor u[k]
  std::int64_t workspace = 0;  // what its gradient takes for itself
};

struct LivePeak {
  std::int64_t tape_bytes = 0;   // tapes alone, kept ones included
  std::int64_t total_bytes = 0;  // tapes, values and workspaces
  int recovered_tapes = 0;       // tapes that were not kept from the forward pass
};

// Note [Live memory]
// What one backward pass of a stack holds, and from when to when:
//     tape k       from the beginning of recover(k), or from the start where it was kept or
//                  recovered in advance, until the end of gradient(k) and weight_gradient(k)
//     value u[k]   from the beginning of recover(k), or from the start where it was kept or
//                  recovered in advance, until the end of recover(k-2), its last reader in the
//                  chain, and of tape k-1, whose input it is
//     workspace k  from the beginning of gradient(k) until its end, or that of weight_gradient(k)
// The outputs of the stack, u[2N] and u[2N+1], count from the start as far as the plan wants them,
// with the bytes of u[2N-2] and u[2N-1]. Where u[0] is recovered to measure the drift, u[0] and
// u[1] stay to the end; so does everything recovered for the stack below. Of stacks of one stream
// only the tapes.

class LiveMemory {
 public:
  // A recovered tape that the graph does not recover was recovered in advance. `below` is the plan
  // of the stack below, for graphs that begin its recovery. One BranchBytes per branch of the plan.
  // Throws std::invalid_argument when graph, plans and bytes do not fit together.
  LiveMemory(const TaskGraph& graph, const KeepPlan& plan, const std::vector<BranchBytes>& bytes);
  LiveMemory(const TaskGraph& graph, const KeepPlan& plan, const std::vector<BranchBytes>& bytes,
             const KeepPlan& below, const std::vector<BranchBytes>& below_bytes);

  // The peaks of one run.
  LivePeak along(const Timeline& timeline) const;

  // Upper bounds of the peaks over every run that the graph allows, however long its tasks take.
  LivePeak worst_case() const;

 private:
  struct Item {
    std::int64_t bytes = 0;
    bool is_tape = false;
    bool recovered = false;
    int made_by = -1;              // task, or -1: alive from the start
    std::vector<int> released_by;  // released when all have ended; empty: never
  };
  struct Tasks;

  void add_stack(const Tasks& tasks, const KeepPlan& plan, const std::vector<BranchBytes>& bytes);
  void add_below(const Tasks& tasks, const KeepPlan& plan, const std::vector<BranchBytes>& bytes);
  void add_value(const Tasks& tasks, const KeepPlan& plan, const std::vector<BranchBytes>& bytes,
                 int k);

  TaskGraph graph_;
  std::vector<Item> items_;
};

}  // namespace pareprop
