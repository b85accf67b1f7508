#include "pareprop/train/config_agreement.h"

#include <gtest/gtest.h>

#include "tests/distributed/worker_process.h"

namespace pareprop::train {
namespace {

using distributed::testing::Worker;
using std::chrono::seconds;

// What processes say of which all but the first have other values: {key, value, ...}.
std::string said_with(int processes, std::vector<std::string> values, int expected) {
  std::vector<std::string> arguments = {"--nproc", std::to_string(processes), "configs", "20000"};
  arguments.insert(arguments.end(), values.begin(), values.end());
  Worker launcher(arguments);
  EXPECT_EQ(launcher.wait(seconds(30)), expected) << launcher.errors();
  return launcher.errors();
}

TEST(ConfigAgreement, ADifferenceThatMattersEndsAllWithFieldValuesAndRanks) {
  const std::string said = said_with(3, {"batch", "32"}, 4);
  const std::string message = "rank 1 has --batch 32, rank 0 has 64";
  std::size_t times = 0;
  for (auto at = said.find(message); at != std::string::npos; at = said.find(message, at + 1)) {
    ++times;
  }
  EXPECT_EQ(times, 3U) << said;
}

TEST(ConfigAgreement, FieldsThatAreNotGivenAreNamedToo) {
  const std::string said = said_with(2, {"seq_len", "64"}, 4);
  EXPECT_NE(said.find("rank 1 has --seq-len 64, rank 0 has none"), std::string::npos) << said;
}

TEST(ConfigAgreement, LongValuesAreCut) {
  const std::string said = said_with(2, {"weights", std::string(100000, 'x')}, 4);
  EXPECT_NE(said.find("rank 1 has --weights xxx"), std::string::npos);
  EXPECT_LT(said.size(), 3000U);
}

TEST(ConfigAgreement, WhatConcernsOneProcessMayDiffer) {
  said_with(2, {"workers", "7", "timeout", "7", "log_every", "7", "budget", "8GiB", "trace", "3"},
            0);
}

}  // namespace
}  // namespace pareprop::train
