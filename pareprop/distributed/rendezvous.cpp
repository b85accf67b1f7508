#include "pareprop/distributed/rendezvous.h"

#include <arpa/inet.h>
#include <c10/util/Logging.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "pareprop/distributed/call_within.h"
#include "pareprop/io/file_descriptor.h"

namespace pareprop::distributed {
namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;

// To accept, and to answer the first question.
constexpr std::chrono::milliseconds kAnswerMargin{5000};

constexpr std::size_t kLongestSaid = 300;

// c10d logs every connection that fails, with a backtrace, before it throws. What is worth knowing
// is in the exceptions. Whoever wants the log sets the variable of libtorch for it.
void silence_log() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {  // NOLINT(concurrency-mt-unsafe)
      FLAGS_caffe2_log_level = c10::GLOG_FATAL;
    }
  });
}

// libtorch itself would listen to the whole network.
io::FileDescriptor listen_at(const std::string& address, std::uint16_t port) {
  const bool six = address.find(':') != std::string::npos;
  sockaddr_in four_place{};
  four_place.sin_family = AF_INET;
  four_place.sin_port = htons(port);
  sockaddr_in6 six_place{};
  six_place.sin6_family = AF_INET6;
  six_place.sin6_port = htons(port);
  inet_pton(six ? AF_INET6 : AF_INET, address.c_str(),
            six ? static_cast<void*>(&six_place.sin6_addr) : &four_place.sin_addr);
  const auto* const place =
      six ? reinterpret_cast<sockaddr*>(&six_place) : reinterpret_cast<sockaddr*>(&four_place);
  const socklen_t size = six ? sizeof six_place : sizeof four_place;
  io::FileDescriptor file(socket(place->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // A run that is started again may find connections of the one before.
  const int yes = 1;
  if (!file || setsockopt(file.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      bind(file.get(), place, size) != 0 || listen(file.get(), SOMAXCONN) != 0) {
    throw std::system_error(errno, std::generic_category(), "it cannot be bound");
  }
  return file;
}

StorePointer open_store(const LaunchVariables& variables, std::chrono::milliseconds timeout,
                        bool serves) {
  c10d::TCPStoreOptions options;
  options.port = variables.port;
  options.isServer = serves;
  options.waitWorkers = false;
  options.timeout = timeout;
  std::string host = variables.address;
  io::FileDescriptor listener;
  const auto loopback =
      call_within(timeout + kAnswerMargin, [variables] { return loopback_address(variables); });
  if (loopback && !variables.agent_store) {
    host = *loopback;
    if (serves) {
      listener = listen_at(host, variables.port);
      options.masterListenFd = fcntl(listener.get(), F_DUPFD_CLOEXEC, 0);  // the store closes it
    }
  }
  return call_within(timeout + kAnswerMargin, [host, options]() -> StorePointer {
    return c10::make_intrusive<c10d::TCPStore>(host, options);
  });
}

}  // namespace

std::string what_torch_said(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  text = text.substr(0, text.find('\n'));
  if (text.starts_with('[')) {  // "[/path/of/gloo.cc:78] Timed out ..."
    const auto end = text.find("] ");
    if (end != std::string::npos) text = text.substr(end + 2);
  }
  text = text.substr(0, text.find(". "));  // advice to those who debug libtorch follows
  return text.substr(0, kLongestSaid);
}

StorePointer meet_at_store(const LaunchVariables& variables, std::chrono::milliseconds timeout) {
  silence_log();
  const bool serves = variables.rank == 0 && !variables.agent_store;
  const std::string rank = "rank " + std::to_string(variables.rank);
  const std::string place = variables.address + ":" + std::to_string(variables.port);
  const std::string who = " (MASTER_ADDR and MASTER_PORT). ";
  try {
    return c10::make_intrusive<c10d::PrefixStore>(
        "pareprop/attempt_" + std::to_string(variables.attempt),
        open_store(variables, timeout, serves));
  } catch (const NotInTime&) {
    throw std::runtime_error(
        rank + " got no answer within " + std::to_string(timeout.count()) + " ms from " + place +
        who +
        "Either rank 0 or torchrun, which should listen there, has stopped, or "
        "another program listens there; then choose another MASTER_PORT");
  } catch (const std::exception& error) {
    const std::string said = " (" + what_torch_said(error) + ")";
    throw std::runtime_error(
        serves ? rank + " cannot listen at " + place + who +
                     "The port may be in use: choose another MASTER_PORT" + said
               : rank + " cannot reach " + place + who +
                     "Was rank 0 started there, and can this machine connect to it?" + said);
  }
}

}  // namespace pareprop::distributed
