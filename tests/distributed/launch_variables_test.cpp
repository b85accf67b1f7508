#include "pareprop/distributed/launch_variables.h"

#include <gtest/gtest.h>
#include <netdb.h>
#include <unistd.h>

#include <array>
#include <map>
#include <stdexcept>

#include "tests/io/temporary_folder.h"

namespace pareprop::distributed {
namespace {

using Variables = std::map<std::string, std::string>;

const Variables kGood = {{"RANK", "3"},
                         {"LOCAL_RANK", "1"},
                         {"WORLD_SIZE", "4"},
                         {"MASTER_ADDR", "10.0.0.1"},
                         {"MASTER_PORT", "1234"}};

LaunchVariables read(const Variables& variables) {
  return launch_variables([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

std::string refusal(const std::string& name, const std::optional<std::string>& value) {
  Variables variables = kGood;
  variables.erase(name);
  if (value) variables[name] = *value;
  return io::testing::message_of<std::invalid_argument>([&] { read(variables); });
}

TEST(LaunchVariables, AreReadFromTheEnvironment) {
  const LaunchVariables found = read(kGood);
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.world, 4);
  EXPECT_EQ(found.local_world, 4);
  EXPECT_EQ(found.address, "10.0.0.1");
  EXPECT_EQ(found.port, 1234);
  EXPECT_FALSE(found.agent_store);
}

TEST(LaunchVariables, WithoutAnyThereIsOneProcess) {
  EXPECT_EQ(read({}).world, 1);
  EXPECT_EQ(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).world, 1);
  EXPECT_EQ(read({{"MASTER_PORT", "nonsense"}}).world, 1);
}

TEST(LaunchVariables, ComeBackFromTheEnvironmentTheyMake) {
  Variables variables;
  for (const std::string& each : as_environment({.rank = 2,
                                 .local_rank = 1,
                                 .world = 5,
                                 .local_world = 3,
                                 .address = "there",
                                 .port = 77,
                                 .agent_store = true,
                                 .attempt = 4})) {
    variables[each.substr(0, each.find('='))] = each.substr(each.find('=') + 1);
  }
  const LaunchVariables back = read(variables);
  EXPECT_EQ(back.rank, 2);
  EXPECT_EQ(back.local_rank, 1);
  EXPECT_EQ(back.world, 5);
  EXPECT_EQ(back.local_world, 3);
  EXPECT_EQ(back.address, "there");
  EXPECT_EQ(back.port, 77);
  EXPECT_TRUE(back.agent_store);
  EXPECT_EQ(back.attempt, 4);
}

TEST(LaunchVariables, TellWhetherAllAreOnThisMachine) {
  const auto loopback = [](const char* address) { return loopback_address({.address = address}); };
  for (const char* one : {"localhost", "LOCALHOST", "127.1", "0x7f.1", "::ffff:127.0.0.1"}) {
    EXPECT_EQ(loopback(one), "127.0.0.1") << one;
  }
  EXPECT_EQ(loopback("0:0:0:0:0:0:0:1"), "::1");
  for (const char* own : {"127.0.0.1", "127.0.1.1", "::1"}) EXPECT_EQ(loopback(own), own);
  for (const char* other : {"10.0.0.1", "host", "127.host.org", "0.0.0.0", "::", "fe80::1", ""}) {
    EXPECT_EQ(loopback(other), std::nullopt) << other;
  }
}

// Names of /etc/hosts, whatever they are here.
TEST(LaunchVariables, NamesOfLoopbackAddressesAreOnThisMachineButItsOwn) {
  std::array<char, 256> own{};
  ASSERT_EQ(gethostname(own.data(), own.size() - 1), 0);
  EXPECT_EQ(loopback_address({.address = own.data()}), std::nullopt);
  EXPECT_EQ(loopback_address({.address = std::string(own.data()) + ".example"}), std::nullopt);
  for (const char* name : {"ip6-localhost", "ip6-loopback", "localhost.localdomain"}) {
    addrinfo* found = nullptr;
    if (getaddrinfo(name, nullptr, nullptr, &found) != 0) continue;
    freeaddrinfo(found);
    EXPECT_NE(loopback_address({.address = name}), std::nullopt) << name;
  }
}

TEST(LaunchVariables, ThoseThatAreMissingOrWrongAreNamed) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_NE(refusal(name, std::nullopt).find(std::string(name) + " is not set"),
              std::string::npos);
  }
  EXPECT_NE(refusal("RANK", "4").find("RANK is '4', expected a number from 0 to 3"),
            std::string::npos);
  for (const char* wrong : {"x", "", "-1", "1.5", " 1", "2147483647", "99999999999"}) {
    EXPECT_NE(refusal("RANK", wrong).find("RANK"), std::string::npos) << wrong;
    EXPECT_NE(refusal("WORLD_SIZE", wrong).find("WORLD_SIZE"), std::string::npos) << wrong;
  }
  for (const char* wrong : {"0", "65536", "port"}) {
    EXPECT_NE(refusal("MASTER_PORT", wrong).find("expected a number from 1 to 65535"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace pareprop::distributed
