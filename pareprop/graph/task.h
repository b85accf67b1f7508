#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pareprop {

// Note [The chain of branches]
// A stack of N blocks is a chain of 2N branches B[0], B[1], ... = F0, G0, F1, G1, ... that acts on
// one sequence of stream values. With u[0] = x1 and u[1] = x2 of the lowest block,
//     u[k+2] = u[k] + B[k](u[k+1])                      forward
//     u[k]   = u[k+2] - B[k](u[k+1])                    recover
//     du[k+1] += B[k]'(u[k+1])^T du[k+2]                gradient (and du[k] += du[k+2])
// The outputs are u[2N] and u[2N+1]. Block i owns branches 2i (F) and 2i+1 (G); its inputs are
// u[2i] and u[2i+1]. Everything below is written for one branch k: there is no even or odd case,
// and so no depth at which the last step differs from the others.
// An ordinary network has one stream, v[0] = x, and the output is v[2N]:
//     v[k+1] = v[k] + B[k](v[k])                        forward (Coupling::residual)
//     v[k+1] = B[k](v[k])                               forward (Coupling::sequential)
//     dv[k]  = dv[k+1] + B[k]'(v[k])^T dv[k+1]          gradient (the first term if residual)
// Nothing can be recovered there but from below: v[2i+1] from v[2i], by running F of block i again.
// Tasks and plans are the same; coupling.h says what a branch reads and makes, and which is
// recovered first.

// In the order in which a lane that is free prefers them (LaneRule::any).
enum class TaskKind {
  recover,          // rebuild the tape of branch k and, where it is needed, u[k] (or v[k+1])
  gradient,         // du[k+1] from du[k+2]; weight gradients too, unless they are deferred
  weight_gradient,  // the weight gradients that were deferred
  update,           // whoever takes the gradients of block k / 2 gets them: an optimizer
};

struct Task {
  TaskKind kind = TaskKind::gradient;
  int branch = 0;               // k of Note [The chain of branches]
  int lane = 0;                 // the one that runs it (LaneRule::fixed); 0 (LaneRule::any)
  std::vector<int> needs = {};  // tasks that must have ended before; always added earlier
  int stack = 0;  // 0: the stack being differentiated; 1: the next one below (look-ahead)

  int block() const { return branch / 2; }
  bool is_f() const { return branch % 2 == 0; }
};

std::string_view name(TaskKind kind);

// "recover F3", "gradient G0", "update 3", "recover G5 below".
std::string label(const Task& task);

// R recover, B gradient, W weight gradient, U update.
char letter(TaskKind kind);
// "R F3", "B G0", "U 3", "R G5'" (in the stack below).
std::string short_label(const Task& task);

}  // namespace pareprop
