#include "pareprop/train/checkpoint_store.h"

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/io/limited_child.h"
#include "tests/io/temporary_folder.h"
#include "tests/train/small_run.h"

namespace pareprop::train {
namespace {

namespace fs = std::filesystem;
using io::testing::AtLimit;
using io::testing::content;
using io::testing::message_of;
using io::testing::put;
using io::testing::run_limited;
using io::testing::TemporaryFolder;
using testing::SmallRun;

TrainState at_step(std::int64_t step) {
  return {.step = step, .data_position = 2 * step, .config = "c", .losses = {{step, 0.5}}};
}

void save(CheckpointStore& store, SmallRun& run, std::int64_t step) {
  run.fill(static_cast<double>(step));
  store.save(run.trained, at_step(step));
}

std::vector<std::string> names(const fs::path& folder) {
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(folder)) {
    all.push_back(entry.path().filename().string());
  }
  std::sort(all.begin(), all.end());
  return all;
}

TEST(CheckpointStore, GivesBackWhatWasSaved) {
  const TemporaryFolder folder;
  CheckpointStore store(folder / "run/checkpoints");
  SmallRun run(1), other(2);
  save(store, run, 1200);
  EXPECT_EQ(names(folder / "run/checkpoints/step-00001200"),
            (std::vector<std::string>{"ema.safetensors", "optimizer.safetensors", "state.json",
                                      "weights.safetensors"}));
  const auto found = newest_whole(folder / "run/checkpoints");
  ASSERT_TRUE(found.newest);
  EXPECT_TRUE(found.skipped.empty());
  EXPECT_EQ(found.newest->state.step, 1200);
  EXPECT_EQ(found.newest->state.data_position, 2400);
  EXPECT_EQ(found.newest->state.losses.at(0).loss, 0.5);
  EXPECT_EQ(found.newest->state.versions.count("libtorch"), 1U);
  load(*found.newest, other.trained);
  EXPECT_TRUE(other.holds(1200));
}

TEST(CheckpointStore, AnAverageThatWasNotSavedStartsFromTheWeights) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  SmallRun run(1), other(2);
  run.fill(3);
  store.save({*run.model, run.shares, run.optimizer}, at_step(3));
  load(*newest_whole(folder.path()).newest, other.trained);
  EXPECT_TRUE(other.average.state()[0].second.eq(3.0).all().item<bool>());
  EXPECT_EQ(other.average.state().back().second.item<std::int64_t>(), 0);
}

TEST(CheckpointStore, KeepsTheNewest) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  SmallRun run(1);
  for (const int step : {1, 2, 3, 10}) save(store, run, step);
  EXPECT_EQ(names(folder.path()), (std::vector<std::string>{"step-00000003", "step-00000010"}));
  save(store, run, 4);  // a run that went on from an older one
  EXPECT_EQ(names(folder.path()),
            (std::vector<std::string>{"step-00000003", "step-00000004", "step-00000010"}));
  EXPECT_THROW(CheckpointStore(folder.path(), 0), std::invalid_argument);
}

TEST(CheckpointStore, ReplacesOneOfTheSameStep) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 1);
  SmallRun run(1);
  save(store, run, 5);
  run.fill(7);
  store.save(run.trained, at_step(5));
  EXPECT_EQ(names(folder.path()), (std::vector<std::string>{"step-00000005"}));
  load(*newest_whole(folder.path()).newest, run.trained);
  EXPECT_TRUE(run.holds(7));
}

TEST(CheckpointStore, RemovesWhatKilledProcessesLeftAndNothingElse) {
  const TemporaryFolder folder;
  for (const char* name :
       {"step-00000001.partial", "step-00000002.removed", "step-3", "mine", "step-mine.partial"}) {
    fs::create_directories(folder / name / "inside");
  }
  EXPECT_FALSE(newest_whole(folder.path()).newest);
  EXPECT_TRUE(newest_whole(folder.path()).skipped.empty());
  CheckpointStore store(folder.path());
  SmallRun run(1);
  save(store, run, 9);
  EXPECT_EQ(names(folder.path()),
            (std::vector<std::string>{"mine", "step-00000009", "step-3", "step-mine.partial"}));
}

TEST(CheckpointStore, NoFolderHoldsNoCheckpoint) {
  const TemporaryFolder folder;
  EXPECT_FALSE(newest_whole(folder / "none").newest);
}

// Every file: emptied, cut, one bit flipped, removed.
TEST(CheckpointStore, DamageIsFoundAndTheOneBeforeIsTaken) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  SmallRun run(1);
  save(store, run, 1);
  save(store, run, 2);
  const fs::path newest = folder / "step-00000002";
  for (const std::string& name : names(newest)) {
    const std::string whole = content(newest / name);
    std::string flipped = whole;
    flipped[whole.size() / 2] = static_cast<char>(flipped[whole.size() / 2] ^ 4);
    for (const std::string& damaged :
         {std::string(), whole.substr(0, whole.size() - 3), flipped, whole + "x"}) {
      put(newest / name, damaged);
      const auto found = newest_whole(folder.path());
      ASSERT_TRUE(found.newest) << name;
      EXPECT_EQ(found.newest->state.step, 1) << name << " " << damaged.size();
      ASSERT_EQ(found.skipped.size(), 1U);
      EXPECT_NE(found.skipped[0].find("step-00000002' is incomplete or damaged: " + name),
                std::string::npos)
          << found.skipped[0];
    }
    fs::remove(newest / name);
    EXPECT_EQ(newest_whole(folder.path()).newest->state.step, 1) << name;
    put(newest / name, whole);
    EXPECT_EQ(newest_whole(folder.path()).newest->state.step, 2) << name;
  }
  EXPECT_NE(message_of<std::runtime_error>([&] {
              open_checkpoint(folder / "none");
            }).find("state.json: the file is missing"),
            std::string::npos);
}

// What is no checkpoint of this store counts as damaged: a copy under another step's name, pipes,
// links to elsewhere, JSON that is nested without an end, other formats, names that lead outside.
TEST(CheckpointStore, WhatIsNoCheckpointIsPassedOver) {
  const TemporaryFolder folder;
  CheckpointStore store(folder / "run");
  SmallRun run(1);
  save(store, run, 1);
  const fs::path newest = folder / "run/step-00000009";
  const auto expect_passed_over = [&](const std::string& why) {
    const auto found = newest_whole(folder / "run");
    ASSERT_TRUE(found.newest) << why;
    EXPECT_EQ(found.newest->state.step, 1) << why;
    ASSERT_EQ(found.skipped.size(), 1U) << why;
    EXPECT_NE(found.skipped[0].find(why), std::string::npos) << found.skipped[0];
    fs::remove_all(newest);
  };
  const auto save_newest = [&] { save(store, run, 9); };
  const auto put_state = [&](const std::string& text) {
    save_newest();
    put(newest / "state.json", text);
  };

  fs::copy(folder / "run/step-00000001", newest);
  expect_passed_over("is from step 1");
  for (const char* name : {"state.json", "weights.safetensors"}) {
    save_newest();
    fs::remove(newest / name);
    ASSERT_EQ(mkfifo((newest / name).c_str(), 0600), 0);
    expect_passed_over(name);
    save_newest();
    fs::rename(newest / name, folder / name);
    fs::create_symlink(folder / name, newest / name);
    expect_passed_over(name);
  }
  put_state(std::string(1000000, '['));
  expect_passed_over("state.json");
  put_state(std::string(100 << 20, ' '));
  expect_passed_over("state.json");
  for (const char* format : {"0", "2", "-1", "1e300", "99999999999999999999"}) {
    put_state("{\"format\": " + std::string(format) + "}");
    expect_passed_over("state.json");
  }
  Manifest outside{.state = at_step(9), .files = {}};
  for (const char* name : {"weights.safetensors", "optimizer.safetensors"}) {
    outside.files[name] = {.size = 1, .checksum = "0"};
  }
  outside.files["../outside"] = {.size = 1, .checksum = "0"};
  put_state(format_manifest(outside));
  expect_passed_over("../outside");
}

TEST(CheckpointStore, AFullDiskLeavesTheCheckpointsFromBefore) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 1);
  SmallRun run(1);
  save(store, run, 1);
  const auto size = fs::file_size(folder / "step-00000001/optimizer.safetensors");
  for (const rlim_t limit : {std::uintmax_t{0}, std::uintmax_t{300}, size / 3, size - 1}) {
    const auto full =
        run_limited(limit, AtLimit::error, [&] { store.save(run.trained, at_step(2)); });
    EXPECT_NE(full.error.find("File too large"), std::string::npos) << full.error;
    EXPECT_NE(full.error.find(folder.path().string()), std::string::npos) << full.error;
    EXPECT_EQ(names(folder.path()), (std::vector<std::string>{"step-00000001"}));
    const auto killed =
        run_limited(limit, AtLimit::killed, [&] { store.save(run.trained, at_step(2)); });
    EXPECT_TRUE(killed.killed);
    EXPECT_EQ(newest_whole(folder.path()).newest->state.step, 1);
  }
  EXPECT_EQ(run_limited(size, AtLimit::error, [&] { store.save(run.trained, at_step(2)); }).error,
            "");
  EXPECT_EQ(names(folder.path()), (std::vector<std::string>{"step-00000002"}));
}

TEST(CheckpointStore, AFolderThatCannotBeWrittenIsAnErrorThatNamesIt) {
  const TemporaryFolder folder;
  put(folder / "file", "");
  SmallRun run(1);
  CheckpointStore in_file(folder / "file/checkpoints");
  EXPECT_THROW(in_file.save(run.trained, at_step(1)), std::system_error);

  CheckpointStore store(folder / "c");
  save(store, run, 1);
  chmod(folder.path().c_str(), 0755);
  chmod((folder / "c").c_str(), 0555);
  const auto refused = run_limited(RLIM_INFINITY, AtLimit::error, [&] {
    if (getuid() == 0 && setuid(65534) != 0) throw std::runtime_error("still root");
    store.save(run.trained, at_step(2));
  });
  EXPECT_NE(refused.error.find("Permission denied"), std::string::npos) << refused.error;
  EXPECT_NE(refused.error.find((folder / "c").string()), std::string::npos) << refused.error;
  chmod((folder / "c").c_str(), 0755);
  EXPECT_EQ(newest_whole(folder / "c").newest->state.step, 1);
}

TEST(CheckpointStore, OfAnotherNetworkIsRefused) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  SmallRun run(1), deeper(2, {3});
  save(store, run, 1);
  const auto message = message_of<std::invalid_argument>(
      [&] { load(*newest_whole(folder.path()).newest, deeper.trained); });
  EXPECT_NE(message.find("is missing"), std::string::npos) << message;
}

}  // namespace
}  // namespace pareprop::train
