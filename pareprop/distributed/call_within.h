#pragma once

#include <chrono>
#include <csignal>
#include <future>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

namespace pareprop::distributed {

// A thread on which a write to a connection that is gone is an error and not a SIGPIPE, which would
// end the program; so are those on threads that it starts. Throws std::runtime_error where the
// system has no more of them.
template <class Call>
std::thread start_thread(Call call) {
  try {
    return std::thread([call = std::move(call)]() mutable {
      sigset_t pipe;
      sigemptyset(&pipe);
      sigaddset(&pipe, SIGPIPE);
      pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
      call();
    });
  } catch (const std::system_error& error) {
    throw std::runtime_error(std::string("a thread could not be started: ") + error.what());
  }
}

// What call_within() throws when the time is over.
class NotInTime : public std::runtime_error {
 public:
  NotInTime() : std::runtime_error("no answer in time") {}
};

// What `call` returns or throws, if it does so within `limit`; otherwise throws NotInTime and
// leaves the call behind, on a thread that goes on: it must own all that it uses. For calls of
// libraries that may wait forever for another process.
template <class Call>
std::invoke_result_t<Call> call_within(std::chrono::milliseconds limit, Call call) {
  std::packaged_task<std::invoke_result_t<Call>()> task(std::move(call));
  auto result = task.get_future();
  std::thread thread = start_thread(std::move(task));
  if (result.wait_for(limit) != std::future_status::ready) {
    thread.detach();
    throw NotInTime();
  }
  thread.join();
  return result.get();
}

}  // namespace pareprop::distributed
