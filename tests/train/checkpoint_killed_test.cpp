#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <random>

#include "pareprop/train/checkpoint_store.h"
#include "tests/io/temporary_folder.h"
#include "tests/train/small_run.h"

namespace pareprop::train {
namespace {

using testing::SmallRun;

[[noreturn]] void save_without_end(CheckpointStore& store, SmallRun& run, std::int64_t step,
                                   int saved) {
  for (;; ++step) {
    run.fill(static_cast<double>(step));
    store.save(run.trained, {.step = step, .data_position = step});
    if (write(saved, &step, sizeof step) != sizeof step) _exit(1);
  }
}

// Whenever the writer is killed: every folder that is named as a checkpoint is whole, and what
// save() returned for is there.
TEST(CheckpointKilled, AtAnyMomentLeavesAWholeNewestCheckpoint) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const io::testing::TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  SmallRun run(1), back(2);
  std::int64_t last = 0;
  for (int i = 0; i < 50; ++i) {
    int saved[2];
    ASSERT_EQ(pipe(saved), 0);
    const pid_t child = fork();
    if (child == 0) save_without_end(store, run, last + 1, saved[1]);
    close(saved[1]);
    ASSERT_EQ(read(saved[0], &last, sizeof last), static_cast<ssize_t>(sizeof last));
    usleep(std::uniform_int_distribution<useconds_t>(0, 20000)(random));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    std::int64_t step = 0;
    while (read(saved[0], &step, sizeof step) == static_cast<ssize_t>(sizeof step)) last = step;
    close(saved[0]);

    const CheckpointSearch found = newest_whole(folder.path());
    ASSERT_TRUE(found.newest);
    ASSERT_TRUE(found.skipped.empty()) << found.skipped[0];
    ASSERT_GE(found.newest->state.step, last);
    ASSERT_LE(found.newest->state.step, last + 1);
    last = found.newest->state.step;
    load(*found.newest, back.trained);
    ASSERT_TRUE(back.holds(static_cast<double>(last)));
  }
}

}  // namespace
}  // namespace pareprop::train
