#include "pareprop/graph/task.h"

namespace pareprop {

std::string_view name(TaskKind kind) {
  switch (kind) {
    case TaskKind::recover:
      return "recover";
    case TaskKind::gradient:
      return "gradient";
    case TaskKind::weight_gradient:
      return "weight gradient";
  }
  return "?";
}

std::string label(const Task& task) {
  std::string text(name(task.kind));
  text += task.is_f() ? " F" : " G";
  text += std::to_string(task.block());
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
  }
  return '?';
}

std::string short_label(const Task& task) {
  std::string out(1, letter(task.kind));
  out += task.is_f() ? " F" : " G";
  out += std::to_string(task.block());
  if (task.stack != 0) out += '\'';
  return out;
}

}  // namespace pareprop
