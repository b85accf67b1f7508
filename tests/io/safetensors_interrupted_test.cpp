// Writing that ends early: a full disk, a killed process.

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <csignal>
#include <random>
#include <string>

#include "pareprop/io/safetensors.h"
#include "tests/io/limited_child.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::io {
namespace {

using testing::AtLimit;
using testing::content;
using testing::run_limited;
using testing::TemporaryFolder;

NamedTensors tensors_of(double value, std::int64_t size = 20000) {
  return {{"a", at::full({size}, value)},
          {"b", at::full({size}, value, at::kDouble).slice(0, 0, -1, 2)}};
}

TEST(SafetensorsInterrupted, AFullDiskOrAKillAnywhereLeavesTheOldFile) {
  const TemporaryFolder folder;
  write_safetensors(folder / "new", tensors_of(2));
  const auto size = std::filesystem::file_size(folder / "new");
  write_safetensors(folder / "a", tensors_of(1));
  const std::string old = content(folder / "a");
  for (const rlim_t limit :
       {std::uintmax_t{0}, std::uintmax_t{5}, std::uintmax_t{20}, size / 2, size - 1}) {
    SCOPED_TRACE(limit);
    const auto full =
        run_limited(limit, AtLimit::error, [&] { write_safetensors(folder / "a", tensors_of(2)); });
    EXPECT_EQ(full.error,
              "cannot write '" + (folder / "a").string() + "': writing failed: File too large");
    const auto killed = run_limited(limit, AtLimit::killed,
                                    [&] { write_safetensors(folder / "a", tensors_of(2)); });
    EXPECT_TRUE(killed.killed);
    EXPECT_TRUE(content(folder / "a") == old);
    // The two, and what this one left: the next one removes it.
    EXPECT_EQ(folder.files(), 3);
  }
  const auto enough =
      run_limited(size, AtLimit::error, [&] { write_safetensors(folder / "a", tensors_of(2)); });
  EXPECT_EQ(enough.error, "");
  EXPECT_TRUE(content(folder / "a") == content(folder / "new"));
  EXPECT_EQ(folder.files(), 2);
}

// At any moment, not only inside write(): the file is always one of the two.
TEST(SafetensorsInterrupted, AKillAtAnyMomentLeavesAWholeFile) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const TemporaryFolder folder;
  write_safetensors(folder / "a", tensors_of(1));
  const std::string one = content(folder / "a");
  write_safetensors(folder / "a", tensors_of(2));
  const std::string two = content(folder / "a");
  for (int i = 0; i < 30; ++i) {
    int started[2];
    ASSERT_EQ(pipe(started), 0);
    const pid_t child = fork();
    if (child == 0) {
      for (int value = 1;; value = 3 - value) {
        write_safetensors(folder / "a", tensors_of(value));
        if (write(started[1], "x", 1) != 1) _exit(1);
      }
    }
    char byte = 0;
    ASSERT_EQ(read(started[0], &byte, 1), 1);
    usleep(std::uniform_int_distribution<useconds_t>(0, 3000)(random));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(started[0]);
    close(started[1]);
    const std::string now = content(folder / "a");
    ASSERT_TRUE(now == one || now == two);
    ASSERT_EQ(SafetensorsFile(folder / "a").names().size(), 2U);
  }
}

}  // namespace
}  // namespace pareprop::io
