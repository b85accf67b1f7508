#include "pareprop/memory/free_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string_view>

namespace pareprop::memory {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kGib = std::int64_t{1} << 30, kBitMore = std::int64_t{1} << 20;
const std::string kV2Mount = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
const std::string kV1Mount =
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

// A machine as its files show it; all of it has 8 GiB free.
class FakeMachine : public ::testing::Test {
 protected:
  FakeMachine() {
    std::string name = (fs::temp_directory_path() / "pareprop_machine_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder " + name);
    root_ = name;
    put("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable:    8388608 kB\n");
    put("proc/self/status", "VmSize:\t  1048576 kB\nVmRSS:\t 1000 kB\nVmData:\t  524288 kB\n");
    put("proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max data size             unlimited            unlimited            bytes     \n"
        "Max address space         unlimited            unlimited            bytes     \n");
  }
  ~FakeMachine() override { fs::remove_all(root_); }

  void put(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  void put(const std::string& file, std::int64_t number) {
    put(file, std::to_string(number) + "\n");
  }
  void put_v2_group(const std::string& folder, const std::string& limit, std::int64_t used,
                    std::int64_t files = 0) {
    put(folder + "/memory.max", limit + "\n");
    put(folder + "/memory.high", "max\n");
    put(folder + "/memory.current", used);
    put(folder + "/memory.stat", "anon 5\ninactive_file " + std::to_string(files) + "\n");
  }
  void put_v1_group(const std::string& folder, std::int64_t limit, std::int64_t used,
                    std::int64_t files = 0) {
    put(folder + "/memory.limit_in_bytes", limit);
    put(folder + "/memory.usage_in_bytes", used);
    put(folder + "/memory.stat",
        "cache 7\ninactive_file 1\nhierarchical_memory_limit 9223372036854771712\n"
        "total_inactive_file " +
            std::to_string(files) + "\n");
  }
  MemoryLimit least(int processes = 1) const { return tightest(memory_limits(root_), processes); }

  fs::path root_;
};

TEST_F(FakeMachine, WithoutLimitsHasWhatTheMachineHas) {
  EXPECT_EQ(least().free, 8 * kGib);
  EXPECT_EQ(least().name, "the memory of this machine");
  EXPECT_EQ(least(4).free, 2 * kGib);
}

TEST_F(FakeMachine, WithoutFilesHasNoLimit) {
  fs::remove_all(root_ / "proc");
  EXPECT_TRUE(memory_limits(root_).empty());
  EXPECT_EQ(least(3).free, std::numeric_limits<std::int64_t>::max());
}

TEST_F(FakeMachine, TheTightestOfNestedGroupsOfVersion2Counts) {
  put("proc/self/mountinfo", "23 1 8:1 / / rw - ext4 /dev/sda rw\n" + kV2Mount);
  put("proc/self/cgroup", "0::/user.slice/job.scope/step\n");
  const std::string top = "sys/fs/cgroup/user.slice";
  put_v2_group(top, "max", 3 * kGib);
  put_v2_group(top + "/job.scope", std::to_string(4 * kGib), 3 * kGib);
  put_v2_group(top + "/job.scope/step", std::to_string(6 * kGib), kGib);
  EXPECT_EQ(least().free, kGib);
  EXPECT_EQ(least().name, "the control group /user.slice/job.scope");
  EXPECT_EQ(least(2).free, kGib / 2);

  put_v2_group(top + "/job.scope", std::to_string(4 * kGib), 3 * kGib, 2 * kGib);
  EXPECT_EQ(least().free, 3 * kGib) << "files can be dropped from memory";
  put(top + "/memory.high", 3 * kGib + 5);
  EXPECT_EQ(least().free, 5);
  put(top + "/memory.high", kGib);
  EXPECT_EQ(least().free, 0);
}

TEST_F(FakeMachine, AContainerSeesItsOwnGroupAsTheFirst) {
  put("proc/self/mountinfo",
      "29 23 0:26 /docker/c1 /sys/fs/cgroup\\040of\\040c1 rw - cgroup2 cgroup2 rw\n");
  put("proc/self/cgroup", "0::/docker/c1/job\n");
  put_v2_group("sys/fs/cgroup of c1", std::to_string(2 * kGib), kGib);
  put_v2_group("sys/fs/cgroup of c1/job", "max", kGib);
  EXPECT_EQ(least().free, kGib);
  EXPECT_EQ(least().name, "the control group /");
  put("proc/self/cgroup", "0::/../other\n");  // one that it cannot see
  EXPECT_EQ(least().free, kGib);
}

TEST_F(FakeMachine, GroupsOfVersion1Count) {
  put("proc/self/mountinfo", kV1Mount + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 x rw\n");
  put("proc/self/cgroup", "4:cpu,memory:/batch/job\n1:cpu:/\n0::/\n");
  const std::string top = "sys/fs/cgroup/memory";
  put_v1_group(top, std::numeric_limits<std::int64_t>::max() - 4095, 9 * kGib);
  put_v1_group(top + "/batch", 5 * kGib, 3 * kGib, kGib);
  put_v1_group(top + "/batch/job", 4 * kGib, 3 * kGib, kGib);
  EXPECT_EQ(least().free, 2 * kGib);
  put_v1_group(top + "/batch", 3 * kGib, 2 * kGib);
  EXPECT_EQ(least().free, kGib);
  EXPECT_EQ(least().name, "the control group /batch");
  put(top + "/batch/memory.use_hierarchy", 0);  // it does not count those below
  EXPECT_EQ(least().free, 2 * kGib);
}

TEST_F(FakeMachine, LimitsOfVersion1ThatCannotBeSeenCountToo) {
  put("proc/self/mountinfo", "35 31 0:32 /docker/c1 /sys/fs/cgroup/memory rw - cgroup c rw,memory");
  put("proc/self/cgroup", "4:memory:/docker/c1\n");
  put_v1_group("sys/fs/cgroup/memory", 6 * kGib, kGib);
  EXPECT_EQ(least().free, 5 * kGib);
  put("sys/fs/cgroup/memory/memory.stat", "hierarchical_memory_limit 3221225472\n");
  EXPECT_EQ(least().free, 2 * kGib);
}

TEST_F(FakeMachine, LimitsOfTheProcessAreNotDivided) {
  put("proc/self/limits",
      "Max data size             unlimited            unlimited            bytes     \n"
      "Max address space         4294967296           unlimited            bytes     \n");
  EXPECT_EQ(least().name, "ulimit -v");
  EXPECT_EQ(least().free, 3 * kGib);
  EXPECT_EQ(least(2).free, 3 * kGib);
  EXPECT_EQ(least(4).free, 2 * kGib);
  EXPECT_EQ(least(4).name, "the memory of this machine");
  put("proc/self/limits", "Max data size             536870912  unlimited  bytes     \n");
  EXPECT_EQ(least().name, "ulimit -d");
  EXPECT_EQ(least().free, 0);
}

#ifndef __SANITIZE_ADDRESS__  // which maps what it likes
// In a child, which may then map as much as was said to be free, and not much more.
TEST(FreeMemory, OfARealAddressSpaceIsWhatCanBeMapped) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{static_cast<rlim_t>(kGib) * 64, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    const auto free = tightest({memory_limits().back()});
    const auto mapped = [](std::int64_t bytes) {
      return mmap(nullptr, static_cast<std::size_t>(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
                  -1, 0) != MAP_FAILED;
    };
    if (free.name != "ulimit -v") _exit(1);
    if (mapped(free.free + kBitMore)) _exit(2);
    _exit(mapped(free.free - kBitMore) ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_GT(free_memory(), kBitMore);
}
#endif

}  // namespace
}  // namespace pareprop::memory
