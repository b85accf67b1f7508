#include "pareprop/sweep/case_groups.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "pareprop/graph/policy.h"
#include "pareprop/text/units.h"

namespace pareprop::sweep {
namespace {

// "vit_tiny", "batch 4", "fp32", ...
std::vector<std::string> parts_of(const std::string& name) {
  constexpr std::string_view kBetween = ", ";
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find(kBetween, begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + kBetween.size();
  }
  return parts;
}

}  // namespace

using sweep::ResultRow;

ShortNames::ShortNames(const std::vector<ResultRow>& rows) {
  for (const ResultRow& row : rows) {
    const std::vector<std::string> parts = parts_of(row.case_name);
    std::set<std::string> own(parts.begin() + 1, parts.end());
    own.erase(row.precision);
    const auto [known, first] = common_.try_emplace(parts.front(), own);
    if (!first) std::erase_if(known->second, [&](const auto& part) { return !own.contains(part); });
  }
}

std::string ShortNames::operator()(const std::string& name) const {
  const std::vector<std::string> parts = parts_of(name);
  const auto common = common_.find(parts.front());
  std::string out = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const bool told = common != common_.end() && common->second.contains(parts[i]);
    if (!told || parts[i].starts_with("batch ")) out += ", " + parts[i];
  }
  return out;
}

std::vector<Group> grouped(const std::vector<ResultRow>& rows,
                           const std::function<std::string(const ResultRow&)>& name) {
  std::vector<Group> groups;
  for (const ResultRow& row : rows) {
    const std::string its = name(row);
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& one) { return one.name == its; });
    if (group == groups.end()) group = groups.insert(groups.end(), {its, {}});
    group->rows.push_back(row);
  }
  return groups;
}

std::string without(const std::string& case_name, std::string_view what) {
  const std::string part = ", " + std::string(what) + " ";
  const std::size_t begin = case_name.find(part);
  if (begin == std::string::npos) return case_name;
  const std::size_t end = std::min(case_name.find(", ", begin + part.size()), case_name.size());
  return case_name.substr(0, begin) + case_name.substr(end);
}

std::vector<Group> chosen_cases(const std::vector<ResultRow>& rows) {
  std::vector<ResultRow> timed;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(timed),
               [](const ResultRow& row) { return row.timed(); });
  std::vector<Group> chosen;
  const auto network = [](const ResultRow& row) {
    return without(without(row.case_name, "batch"), "depth");
  };
  for (const Group& of_network : grouped(timed, network)) {
    std::vector<Group> cases =
        grouped(of_network.rows, [](const ResultRow& row) { return row.case_name; });
    const auto has_budgets = [](const Group& one) {
      return std::any_of(one.rows.begin(), one.rows.end(),
                         [](const ResultRow& row) { return row.budget_bytes > 0; });
    };
    if (std::any_of(cases.begin(), cases.end(), has_budgets)) {
      std::erase_if(cases, [&](const Group& one) { return !has_budgets(one); });
    } else {
      const auto size = [](const Group& one) {
        return std::tuple(one.rows[0].batch, one.rows[0].depth);
      };
      cases = {*std::max_element(cases.begin(), cases.end(), [&](const Group& a, const Group& b) {
        return size(a) < size(b);
      })};
    }
    chosen.insert(chosen.end(), cases.begin(), cases.end());
  }
  return chosen;
}

std::string mode_text(const ResultRow& row) {
  if (row.budget_bytes == 0) return row.mode;
  return row.mode + " " + text::bytes_text(static_cast<double>(row.budget_bytes));
}

std::vector<std::string> modes_of(const std::vector<ResultRow>& rows) {
  std::vector<std::string> modes;
  for (const Mode mode : all_modes()) {
    const bool occurs = std::any_of(rows.begin(), rows.end(), [&](const ResultRow& row) {
      return row.mode == name(mode) && row.timed();
    });
    if (occurs) modes.emplace_back(name(mode));
  }
  return modes;
}

const ResultRow* find_mode(const std::vector<ResultRow>& rows, std::string_view mode) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const ResultRow& row) {
    return row.mode == mode && row.budget_bytes == 0 && row.timed();
  });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace pareprop::sweep
