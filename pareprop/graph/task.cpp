#include "pareprop/graph/task.h"

namespace pareprop {
namespace {

// An update is of a whole block.
std::string place(const Task& task) {
  const std::string_view branch = task.kind == TaskKind::update ? "" : task.is_f() ? "F" : "G";
  return " " + std::string(branch) + std::to_string(task.block());
}

}  // namespace

std::string_view name(TaskKind kind) {
  switch (kind) {
    case TaskKind::recover:
      return "recover";
    case TaskKind::gradient:
      return "gradient";
    case TaskKind::weight_gradient:
      return "weight gradient";
    case TaskKind::update:
      return "update";
  }
  return "?";
}

std::string label(const Task& task) {
  std::string text(name(task.kind));
  text += place(task);
  if (task.stack != 0) text += " below";
  return text;
}

char letter(TaskKind kind) {
  switch (kind) {
    case TaskKind::recover:
      return 'R';
    case TaskKind::gradient:
      return 'B';
    case TaskKind::weight_gradient:
      return 'W';
    case TaskKind::update:
      return 'U';
  }
  return '?';
}

std::string short_label(const Task& task) {
  std::string out(1, letter(task.kind));
  out += place(task);
  if (task.stack != 0) out += '\'';
  return out;
}

}  // namespace pareprop
