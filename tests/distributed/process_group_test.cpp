#include "pareprop/distributed/process_group.h"

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "pareprop/io/file_descriptor.h"
#include "tests/distributed/worker_process.h"

namespace pareprop::distributed {
namespace {

using std::chrono::seconds;
using testing::start_workers;
using testing::Worker;

// A port of this machine, in use as long as this lives.
class TakenPort {
 public:
  TakenPort() : file_(socket(AF_INET, SOCK_STREAM, 0)) {
    address_.sin_family = AF_INET;
    socklen_t size = sizeof address_;
    auto* const any = reinterpret_cast<sockaddr*>(&address_);
    EXPECT_EQ(bind(file_.get(), any, size), 0);
    EXPECT_EQ(listen(file_.get(), 1), 0);
    EXPECT_EQ(getsockname(file_.get(), any, &size), 0);
  }
  std::uint16_t number() const { return ntohs(address_.sin_port); }

 private:
  io::FileDescriptor file_;
  sockaddr_in address_{};
};

std::uint16_t free_port() { return TakenPort().number(); }

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ProcessGroup, OfOneProcessReturnsAtOnce) {
  const auto group = make_process_group({});
  const at::Tensor tensor = at::full({3}, 2.0F);
  group->all_reduce(tensor)->wait();
  group->broadcast(tensor)->wait();
  group->barrier();
  EXPECT_TRUE(tensor.eq(2.0).all().item<bool>());
  EXPECT_EQ(group->world(), 1);
  EXPECT_EQ(group->rank(), 0);
}

TEST(ProcessGroup, SumsAndBroadcasts) {
  for (const int world : {2, 3}) {
    auto workers = start_workers(world, free_port(), {"collectives", "30000"});
    for (auto& worker : workers) EXPECT_EQ(worker->wait(), 0) << worker->errors();
  }
}

TEST(ProcessGroup, NamesTheRankThatDied) {
  for (const int victim : {0, 1}) {
    auto workers =
        start_workers(3, free_port(), {"lose", "10000", "killed", std::to_string(victim)});
    for (int rank = 0; rank < 3; ++rank) {
      auto& worker = *workers[static_cast<std::size_t>(rank)];
      const int code = worker.wait(seconds(20));
      if (rank == victim) {
        EXPECT_EQ(code, 128 + SIGKILL);
        continue;
      }
      EXPECT_EQ(code, 3);
      // With rank 0 goes the store through which the others would find out.
      EXPECT_TRUE(has(worker.errors(),
                      victim == 0 ? "rank 0 or torchrun, which served it" : "rank 1 has stopped"))
          << worker.errors();
    }
  }
}

TEST(ProcessGroup, NamesTheRankThatThrew) {
  auto workers = start_workers(3, free_port(), {"lose", "10000", "throws", "2"});
  EXPECT_EQ(workers[2]->wait(seconds(20)), 4);
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_EQ(workers[rank]->wait(seconds(20)), 3);
    EXPECT_TRUE(has(workers[rank]->errors(), "rank 2 has stopped")) << workers[rank]->errors();
  }
}

TEST(ProcessGroup, NamesTheRankThatHangsOrIsLate) {
  for (const char* how : {"stopped", "late"}) {
    auto workers = start_workers(2, free_port(), {"lose", "2000", how, "1"});
    EXPECT_EQ(workers[0]->wait(seconds(20)), 3);
    EXPECT_TRUE(has(workers[0]->errors(), std::string(how) == "late"
                                              ? "rank 1 is alive but did not respond within"
                                              : "rank 1 has stopped"))
        << workers[0]->errors();
  }
}

// libtorch's log and where in its sources something was thrown are nothing for people who train.
void expect_plain_message(const std::string& said) {
  for (const char* inner : {"[c10d]", "frame #", "Exception raised from", ".cpp", ".cc:", "GLHF"}) {
    EXPECT_FALSE(has(said, inner)) << said;
  }
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

// Rank 0 serves the store by which the others would find out.
TEST(ProcessGroup, AStoppedRankEndsTheOthersInTime) {
  // Long enough for three processes to start on a busy machine.
  constexpr int kTimeout = 6;
  for (const std::size_t victim : {0U, 1U}) {
    auto workers =
        start_workers(3, free_port(),
                      {"lose", std::to_string(1000 * kTimeout), "stopped", std::to_string(victim)});
    ASSERT_TRUE(testing::wait_until_stopped(workers[victim]->pid()));
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(workers[rank]->wait(seconds(40)), 3);
      EXPECT_TRUE(has(workers[rank]->errors(), "rank " + std::to_string(victim)))
          << workers[rank]->errors();
      EXPECT_TRUE(has(workers[rank]->errors(), "has stopped")) << workers[rank]->errors();
      expect_plain_message(workers[rank]->errors());
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(kTimeout + 10));
  }
}

TEST(ProcessGroup, AKilledRankLeavesNoLogOfTheLibrary) {
  auto workers = start_workers(2, free_port(), {"lose", "10000", "killed", "0"});
  EXPECT_EQ(workers[1]->wait(seconds(20)), 3);
  expect_plain_message(workers[1]->errors());
}

TEST(ProcessGroup, ARankThatWasStoppedItselfSaysSo) {
  auto workers = start_workers(2, free_port(), {"lose", "1000", "stopped", "0"});
  EXPECT_EQ(workers[1]->wait(seconds(20)), 3);
  workers[0]->kill(SIGCONT);
  EXPECT_EQ(workers[0]->wait(seconds(20)), 3);
  EXPECT_TRUE(has(workers[0]->errors(), "rank 0 was suspended for")) << workers[0]->errors();
}

TEST(ProcessGroup, AnAddressThatNeverAnswersIsSaidInTime) {
  const TakenPort port;
  for (const bool agent_store : {false, true}) {
    const auto begin = std::chrono::steady_clock::now();
    Worker worker({"collectives", "2000"}, as_environment({.rank = agent_store ? 0 : 1,
                                                           .world = 2,
                                                           .port = port.number(),
                                                           .agent_store = agent_store}));
    EXPECT_EQ(worker.wait(seconds(20)), 3);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(2 + 10));
    EXPECT_TRUE(has(worker.errors(),
                    "got no answer within 2000 ms from 127.0.0.1:" + std::to_string(port.number())))
        << worker.errors();
    expect_plain_message(worker.errors());
  }
}

// "0100007F:7347 ...": addresses at which a process listens, as the kernel writes them.
std::vector<std::string> listening(pid_t pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  std::set<std::string> sockets;
  for (const auto& entry : std::filesystem::directory_iterator(process + "/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:[")) sockets.insert(target.substr(8, target.size() - 9));
  }
  std::vector<std::string> found;
  for (const char* family : {"/net/tcp", "/net/tcp6"}) {
    std::ifstream table(process + family);
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
      std::istringstream columns(line);
      std::vector<std::string> words{std::istream_iterator<std::string>(columns), {}};
      constexpr const char* kListens = "0A";
      if (words.at(3) == kListens && sockets.count(words.at(9)) > 0) found.push_back(words[1]);
    }
  }
  return found;
}

TEST(ProcessGroup, OnOneMachineListensToItOnly) {
  for (const char* address :
       {"127.0.0.1", "localhost", "::1", "127.1", "LOCALHOST", "0:0:0:0:0:0:0:1"}) {
    const io::testing::TemporaryFolder folder;
    const std::uint16_t port = free_port();
    std::vector<std::unique_ptr<Worker>> workers;
    for (int rank = 0; rank < 2; ++rank) {
      workers.push_back(std::make_unique<Worker>(
          std::vector<std::string>{"work", "20000", folder.path().string()},
          as_environment({.rank = rank, .world = 2, .address = address, .port = port})));
    }
    for (const char* rank : {"0", "1"}) {
      for (int i = 0; i < 4000 && !std::filesystem::exists(folder / rank); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
    std::size_t all = 0;
    for (const auto& worker : workers) {
      for (const std::string& place : listening(worker->pid())) {
        ++all;
        EXPECT_TRUE(place.starts_with("0100007F:") ||
                    place.starts_with("00000000000000000000000001000000:"))
            << address << ": " << place;
      }
    }
    EXPECT_GE(all, 3U);  // the store, and Gloo in each
    std::ofstream(folder / "go") << "go";
    for (auto& worker : workers) EXPECT_EQ(worker->wait(), 0) << worker->errors();
  }
}

// Whoever comes later waits longer, and finds that rank 0 and its store have left.
TEST(ProcessGroup, NamesTheRankThatNeverCame) {
  const std::uint16_t port = free_port();
  std::vector<std::unique_ptr<Worker>> workers;
  for (const int rank : {0, 1, 3}) {
    workers.push_back(
        std::make_unique<Worker>(std::vector<std::string>{"collectives", "3000"},
                                 as_environment({.rank = rank, .world = 4, .port = port})));
    std::this_thread::sleep_for(std::chrono::milliseconds(rank == 1 ? 1000 : 0));
  }
  for (auto& worker : workers) {
    EXPECT_EQ(worker->wait(seconds(20)), 3);
    EXPECT_TRUE(has(worker->errors(), "rank 2 of 4 did not join within 3000 ms"))
        << worker->errors();
    expect_plain_message(worker->errors());
  }
}

TEST(ProcessGroup, APortInUseIsSaid) {
  const TakenPort port;
  Worker worker({"collectives", "2000"},
                as_environment({.rank = 0, .world = 2, .port = port.number()}));
  EXPECT_EQ(worker.wait(seconds(20)), 3);
  EXPECT_TRUE(
      has(worker.errors(), "rank 0 cannot listen at 127.0.0.1:" + std::to_string(port.number())))
      << worker.errors();
}

TEST(ProcessGroup, NobodyListeningIsSaid) {
  Worker worker({"collectives", "1000"},
                as_environment({.rank = 1, .world = 2, .port = free_port()}));
  EXPECT_EQ(worker.wait(seconds(20)), 3);
  EXPECT_TRUE(has(worker.errors(), "rank 1 cannot reach 127.0.0.1")) << worker.errors();
}

TEST(ProcessGroup, WrongVariablesAreSaid) {
  Worker worker({"collectives", "1000"}, {"RANK=2", "WORLD_SIZE=2"});
  EXPECT_EQ(worker.wait(seconds(20)), 4);
  EXPECT_TRUE(has(worker.errors(), "RANK is '2'")) << worker.errors();
}

TEST(ProcessGroup, DevicesWithoutAWayToCommunicateAreRefused) {
  EXPECT_THROW(make_process_group({.world = 2}, {.device = at::kMeta}), std::invalid_argument);
}

TEST(ProcessGroup, CudaWithoutNcclOrWithoutADeviceIsRefusedAtOnce) {
  if (at::hasCUDA()) GTEST_SKIP() << "this machine has a CUDA device";
#ifdef PAREPROP_HAS_NCCL
  const std::string missing = "need a CUDA device, and this machine shows none";
#else
  const std::string missing = "need NCCL, which this program was compiled without";
#endif
  try {
    make_process_group({.world = 2}, {.device = at::kCUDA});
    FAIL() << "not refused";
  } catch (const std::invalid_argument& error) {
    EXPECT_TRUE(has(error.what(), missing)) << error.what();
  }
}

}  // namespace
}  // namespace pareprop::distributed
