#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "pareprop/sweep/result_row.h"

namespace pareprop::sweep {

// Rows that belong together.
struct Group {
  std::string name;
  std::vector<sweep::ResultRow> rows;
};

// In the order in which the names come first.
std::vector<Group> grouped(const std::vector<sweep::ResultRow>& rows,
                           const std::function<std::string(const sweep::ResultRow&)>& name);

// The name of a case without its part `what`: "vit_tiny, fp32" is "vit_tiny, batch 4, fp32" without
// batch.
std::string without(const std::string& case_name, std::string_view what);

// Names of cases for titles: without what all cases of a model have in common, but with
// batch and precision.
class ShortNames {
 public:
  explicit ShortNames(const std::vector<sweep::ResultRow>& rows);

  // Of a case, or of what without() made of one.
  std::string operator()(const std::string& name) const;

 private:
  std::map<std::string, std::set<std::string>> common_;  // parts, by model
};

// Cases that stand for the others in plots of one case each: all that have budgets; of networks
// without such, the one with the largest batch and, of those, the most blocks. Timed rows only.
std::vector<Group> chosen_cases(const std::vector<sweep::ResultRow>& rows);

// "auto 200.0 MiB", "reprop".
std::string mode_text(const sweep::ResultRow& row);

// Modes that occur, in the order that all_modes() has.
std::vector<std::string> modes_of(const std::vector<sweep::ResultRow>& rows);

// The row of a mode without a budget that was timed; null: none.
const sweep::ResultRow* find_mode(const std::vector<sweep::ResultRow>& rows, std::string_view mode);

}  // namespace pareprop::sweep
