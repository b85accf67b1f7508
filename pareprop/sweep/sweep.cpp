#include "pareprop/sweep/sweep.h"

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "pareprop/draw/axis.h"
#include "pareprop/text/fixed.h"

namespace pareprop::sweep {
namespace {

std::string depths_text(const std::vector<int>& depths) {
  std::string out;
  for (const int depth : depths) {
    if (!out.empty()) out += '+';
    out += std::to_string(depth);
  }
  return out;
}

template <typename Value>
void add_if(std::string& out, const char* what, const std::optional<Value>& value) {
  constexpr int kDigits = 9;
  if (!value) return;
  out += std::string(", ") + what + " " + text::short_number(static_cast<double>(*value), kDigits);
}

void expect_at_least(const char* what, long long least, long long got) {
  if (got >= least) return;
  throw std::invalid_argument(std::string(what) + ": expected " + std::to_string(least) +
                              " or more, got " + std::to_string(got));
}

void expect_some(const char* what, bool some) {
  if (!some) throw std::invalid_argument(std::string(what) + ": expected one or more, got none");
}

void expect_probability(const char* what, const std::optional<double>& got) {
  if (!got || (*got >= 0.0 && *got < 1.0)) return;
  throw std::invalid_argument(std::string(what) + ": expected a probability, 0 <= P < 1, got " +
                              std::to_string(*got));
}

void check(const Grid& grid) {
  expect_some("model", !grid.models.empty());
  expect_some("batch", !grid.batches.empty());
  expect_some("precision", !grid.precisions.empty());
  expect_some("threads", !grid.threads.empty());
  for (const auto batch : grid.batches) expect_at_least("batch", 1, batch);
  for (const auto threads : grid.threads) expect_at_least("threads", 0, threads);
  for (const auto budget : grid.budgets) expect_at_least("budget", 1, budget);
  expect_probability("dropout", grid.change.dropout);
  expect_probability("drop_path", grid.change.drop_path);
}

std::vector<Mode> modes_of(const Grid& grid) {
  if (!grid.modes.empty()) return grid.modes;
  return grid.change.plain ? plain_modes() : all_modes();
}

// One empty choice where there is no list: what the model has.
template <typename Value>
std::vector<std::optional<Value>> choices(const std::vector<Value>& list) {
  if (list.empty()) return {std::nullopt};
  return {list.begin(), list.end()};
}

template <typename Value>
void add_missing(std::vector<Value>& to, const std::vector<Value>& from) {
  for (const Value& value : from) {
    if (std::find(to.begin(), to.end(), value) == to.end()) to.push_back(value);
  }
}

void add_case(std::vector<Case>& cases, const Case& wanted) {
  const auto known = std::find_if(cases.begin(), cases.end(),
                                  [&](const Case& other) { return other.name() == wanted.name(); });
  if (known == cases.end()) {
    cases.push_back(wanted);
  } else {
    add_missing(known->modes, wanted.modes);
    add_missing(known->budgets, wanted.budgets);
  }
}

}  // namespace

std::string Case::name() const {
  std::string out = change.plain ? "plain " : "";
  out += model;
  if (!change.depths.empty()) out += ", depth " + depths_text(change.depths);
  add_if(out, "width", change.width);
  add_if(out, "image size", change.image_size);
  add_if(out, "channels", change.channels);
  add_if(out, "classes", change.classes);
  add_if(out, "length", change.length);
  add_if(out, "vocabulary", change.vocabulary);
  add_if(out, "dropout", change.dropout);
  add_if(out, "drop path", change.drop_path);
  out += ", batch " + std::to_string(batch) + ", " + std::string(pareprop::name(precision));
  if (arithmetic == Arithmetic::exact) out += ", exact";
  out += ", " + (device.is_cpu() ? std::to_string(threads) + (threads == 1 ? " thread" : " threads")
                                 : device.str());
  if (seed != 0) out += ", seed " + std::to_string(seed);
  return out;
}

std::vector<Case> cases_of(const Sweep& sweep, int all_threads) {
  expect_at_least("rounds", 1, sweep.rounds);
  expect_at_least("steps", 1, sweep.steps);
  expect_some("rows", !sweep.rows.empty());
  std::vector<Case> cases;
  for (const Grid& grid : sweep.rows) {
    check(grid);
    Case one{.model = {},
             .change = grid.change,
             .arithmetic = grid.arithmetic,
             .device = sweep.device,
             .seed = grid.seed,
             .modes = {},
             .budgets = {}};
    add_missing(one.modes, modes_of(grid));
    add_missing(one.budgets, grid.budgets);
    for (const std::string& model : grid.models) {
      one.model = model;
      for (const auto& depths : choices(grid.depths)) {
        one.change.depths = depths.value_or(std::vector<int>{});
        for (const auto& image_size : choices(grid.image_sizes)) {
          one.change.image_size = image_size;
          for (const auto& length : choices(grid.seq_lens)) {
            one.change.length = length;
            for (const Precision precision : grid.precisions) {
              one.precision = precision;
              for (const int threads : grid.threads) {
                one.threads = threads == 0 ? all_threads : threads;
                for (const std::int64_t batch : grid.batches) {
                  one.batch = batch;
                  add_case(cases, one);
                }
              }
            }
          }
        }
      }
    }
  }
  return cases;
}

std::string family_of(const std::string& model) { return model.substr(0, model.find('_')); }

}  // namespace pareprop::sweep
