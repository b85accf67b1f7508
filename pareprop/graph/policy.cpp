#include "pareprop/graph/policy.h"

#include <array>
#include <stdexcept>
#include <utility>

namespace pareprop {
namespace {

constexpr std::array kPolicyNames = {
    std::pair{Policy::store, "store"},           std::pair{Policy::products, "products"},
    std::pair{Policy::checkpoint, "checkpoint"}, std::pair{Policy::anchor, "anchor"},
    std::pair{Policy::reverse, "reverse"},
};

static_assert(kPolicyNames.size() == kPolicies.size());

constexpr std::array kModeNames = {
    std::pair{Mode::stored, "stored"},  std::pair{Mode::checkpoint, "checkpoint"},
    std::pair{Mode::reprop, "reprop"},  std::pair{Mode::pareprop, "pareprop"},
    std::pair{Mode::automatic, "auto"},
};

template <typename Table>
auto parse(const Table& table, std::string_view what, std::string_view text) {
  std::string known;
  for (const auto& [value, word] : table) {
    if (text == word) return value;
    known += (known.empty() ? "" : ", ") + std::string(word);
  }
  throw std::invalid_argument("unknown " + std::string(what) + " '" + std::string(text) +
                              "': expected one of " + known);
}

template <typename Table, typename Value>
std::string_view find_name(const Table& table, Value wanted) {
  for (const auto& [value, word] : table) {
    if (value == wanted) return word;
  }
  return "?";
}

}  // namespace

std::string_view name(Policy policy) { return find_name(kPolicyNames, policy); }
std::string_view name(Mode mode) { return find_name(kModeNames, mode); }

Policy parse_policy(std::string_view text) { return parse(kPolicyNames, "policy", text); }
Mode parse_mode(std::string_view text) { return parse(kModeNames, "mode", text); }

const std::vector<Mode>& all_modes() {
  static const std::vector<Mode> modes = [] {
    std::vector<Mode> result;
    for (const auto& entry : kModeNames) result.push_back(entry.first);
    return result;
  }();
  return modes;
}

const std::vector<Mode>& preset_modes() {
  static const std::vector<Mode> modes = [] {
    std::vector<Mode> result = all_modes();
    std::erase(result, Mode::automatic);
    return result;
  }();
  return modes;
}

const std::vector<Mode>& plain_modes() {
  static const std::vector<Mode> modes{Mode::stored, Mode::checkpoint, Mode::automatic};
  return modes;
}

}  // namespace pareprop
