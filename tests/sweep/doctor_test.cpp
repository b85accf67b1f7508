#include "pareprop/sweep/doctor.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace pareprop::sweep {
namespace {

models::Overrides tiny() {
  models::Overrides change;
  change.depths = {3};
  change.width = 16;
  return change;
}

TEST(Doctor, ExaminesTheCpu) {
  std::vector<std::string> told;
  DoctorOptions options{.verified = {{"vit_cifar", tiny()}},
                        .raced = {{"vit_cifar", tiny()}},
                        .batches = {2},
                        .precisions = {Precision::fp32},
                        .rounds = 1};
  options.on_progress = [&](const std::string& doing) { told.push_back(doing); };
  const Examination found = examine(options);
  EXPECT_TRUE(found.healthy());
  EXPECT_EQ(found.device, "cpu");
  EXPECT_GT(found.free_bytes, 0);
  ASSERT_EQ(found.verified.size(), 2U);  // float and exact streams
  for (const VerifiedNetwork& one : found.verified) {
    ASSERT_EQ(one.rows.size(), preset_modes().size());
    EXPECT_TRUE(one.holds());
  }
  ASSERT_EQ(found.raced.size(), preset_modes().size() + 1);
  for (const RacedMode& one : found.raced) {
    EXPECT_GT(one.row.samples_per_s, 0.0);
    EXPECT_GT(one.predicted_peak_bytes, 0);
    EXPECT_GE(one.row.recover_ms, one.row.overlap_ms);
    const bool recovers = one.row.mode == "reprop" || one.row.mode == "pareprop";
    EXPECT_TRUE(!recovers || one.row.recover_ms > 0.0) << one.row.mode;
  }
  // Within bytes that storing all does not fit into.
  const RacedMode& planned = found.raced.back();
  EXPECT_EQ(planned.row.mode, "auto");
  EXPECT_GT(planned.row.budget_bytes, planned.predicted_peak_bytes);
  EXPECT_GT(found.raced.front().predicted_peak_bytes, planned.row.budget_bytes);
  EXPECT_EQ(told.size(), 3U);

  const auto json = nlohmann::json::parse(to_json(found));
  EXPECT_TRUE(json.at("healthy").get<bool>());
  EXPECT_EQ(json.at("verified").size(), 2U);
  EXPECT_EQ(json.at("raced").size(), preset_modes().size() + 1);
}

TEST(Doctor, NotesWhatFailsAndGoesOn) {
  const Examination found = examine({.verified = {{"no_such_network"}, {"vit_cifar", tiny()}},
                                     .raced = {{"no_such_network"}},
                                     .batches = {2},
                                     .precisions = {Precision::fp32},
                                     .rounds = 1});
  EXPECT_FALSE(found.healthy());
  EXPECT_FALSE(found.verified.front().holds());
  EXPECT_NE(found.verified.front().error.find("no_such_network"), std::string::npos);
  EXPECT_TRUE(found.verified.back().holds());
  ASSERT_EQ(found.errors.size(), 1U);
  EXPECT_FALSE(nlohmann::json::parse(to_json(found)).at("healthy").get<bool>());
}

}  // namespace
}  // namespace pareprop::sweep
