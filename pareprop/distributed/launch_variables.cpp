#include "pareprop/distributed/launch_variables.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>

namespace pareprop::distributed {
namespace {

using Lookup = std::function<std::optional<std::string>(const std::string&)>;

constexpr const char* kAdvice =
    "start with torchrun or --nproc, which set it, or unset RANK and "
    "WORLD_SIZE to train in one process";

std::string needed(const Lookup& variable, const std::string& name) {
  const auto text = variable(name);
  if (text && !text->empty()) return *text;
  throw std::invalid_argument("the environment variable " + name +
                              " is not set, but RANK or WORLD_SIZE is: " + kAdvice);
}

int number(const std::string& name, const std::string& text, int least, int most) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || last != end || value < least || value > most) {
    throw std::invalid_argument("the environment variable " + name + " is '" + text +
                                "', expected a number from " + std::to_string(least) + " to " +
                                std::to_string(most) + ": " + kAdvice);
  }
  return value;
}

bool same_name(const std::string& a, const std::string& b) {
  return strcasecmp(a.c_str(), b.c_str()) == 0;
}

// With or without its domain. "localhost" is no name of one machine.
bool is_own_name(const std::string& name) {
  std::array<char, 256> buffer{};
  if (gethostname(buffer.data(), buffer.size() - 1) != 0) return false;
  const std::string own = buffer.data();
  const auto first = [](const std::string& whole) { return whole.substr(0, whole.find('.')); };
  return !same_name(first(own), "localhost") && same_name(first(own), first(name));
}

// "127.0.0.1" or "::1"; none where the address can be reached from elsewhere.
std::optional<std::string> loopback_text(const sockaddr& address) {
  in_addr four{};
  std::array<char, INET6_ADDRSTRLEN> buffer{};
  if (address.sa_family == AF_INET) {
    four = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  } else if (address.sa_family == AF_INET6) {
    const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_LOOPBACK(&six)) return "::1";
    if (!IN6_IS_ADDR_V4MAPPED(&six)) return std::nullopt;
    std::memcpy(&four, &six.s6_addr[12], sizeof four);
  }
  constexpr std::uint32_t kLoopbackNet = 127;
  if (ntohl(four.s_addr) >> 24 != kLoopbackNet) return std::nullopt;
  return inet_ntop(AF_INET, &four, buffer.data(), buffer.size());
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& name, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) found = nullptr;
  return {found, freeaddrinfo};
}

}  // namespace

LaunchVariables launch_variables(const Lookup& variable) {
  LaunchVariables found;
  if (!variable("RANK") && !variable("WORLD_SIZE")) return found;
  constexpr int kMost = std::numeric_limits<int>::max();
  constexpr int kMostProcesses = 1 << 16;  // each is listed; the largest machines have fewer
  found.world = number("WORLD_SIZE", needed(variable, "WORLD_SIZE"), 1, kMostProcesses);
  found.rank = number("RANK", needed(variable, "RANK"), 0, found.world - 1);
  const auto local = variable("LOCAL_RANK");
  found.local_rank = local ? number("LOCAL_RANK", *local, 0, found.world - 1) : found.rank;
  const auto here = variable("LOCAL_WORLD_SIZE");
  found.local_world = here ? number("LOCAL_WORLD_SIZE", *here, 1, found.world) : found.world;
  if (found.world == 1) return found;
  found.address = needed(variable, "MASTER_ADDR");
  found.port =
      static_cast<std::uint16_t>(number("MASTER_PORT", needed(variable, "MASTER_PORT"), 1, 65535));
  found.agent_store = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (const auto attempt = variable("TORCHELASTIC_RESTART_COUNT")) {
    found.attempt = number("TORCHELASTIC_RESTART_COUNT", *attempt, 0, kMost);
  }
  return found;
}

LaunchVariables launch_variables() {
  return launch_variables([](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
    if (value == nullptr) return std::nullopt;
    return value;
  });
}

std::optional<std::string> loopback_address(const LaunchVariables& variables) {
  const std::string& address = variables.address;
  if (same_name(address, "localhost")) return "127.0.0.1";
  Addresses found = resolve(address, AI_NUMERICHOST);
  if (found == nullptr && !is_own_name(address)) found = resolve(address, 0);
  std::optional<std::string> best;
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    const auto text = loopback_text(*each->ai_addr);
    if (!text) return std::nullopt;
    if (!best || best->find(':') != std::string::npos) best = text;  // IPv4 where there are both
  }
  return best;
}

std::vector<std::string> as_environment(const LaunchVariables& variables) {
  return {"RANK=" + std::to_string(variables.rank),
          "LOCAL_RANK=" + std::to_string(variables.local_rank),
          "WORLD_SIZE=" + std::to_string(variables.world),
          "LOCAL_WORLD_SIZE=" +
              std::to_string(variables.local_world > 0 ? variables.local_world : variables.world),
          "MASTER_ADDR=" + variables.address,
          "MASTER_PORT=" + std::to_string(variables.port),
          std::string("TORCHELASTIC_USE_AGENT_STORE=") + (variables.agent_store ? "True" : "False"),
          "TORCHELASTIC_RESTART_COUNT=" + std::to_string(variables.attempt)};
}

}  // namespace pareprop::distributed
