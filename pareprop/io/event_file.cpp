#include "pareprop/io/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>

#include "pareprop/io/event_record.h"
#include "pareprop/io/input_file.h"
#include "pareprop/text/escape.h"
#include "pareprop/text/utf8.h"

namespace pareprop::io {
namespace {

// Fields of TensorBoard's Event, and of the messages inside it.
constexpr int kWallTime = 1;
constexpr int kStep = 2;
constexpr int kFileVersion = 3;
constexpr int kSummary = 5;
constexpr int kSessionLog = 7;
constexpr int kSummaryValue = 1;
constexpr int kValueTag = 1;
constexpr int kValueSimple = 2;
constexpr int kSessionStatus = 1;
constexpr std::uint64_t kSessionStart = 1;

constexpr std::string_view kVersion = "brain.Event:2";

[[noreturn]] void fail(const std::filesystem::path& path) {
  throw std::system_error(errno, std::generic_category(), "cannot write '" + path.string() + "'");
}

ProtoMessage event_now() {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  ProtoMessage event;
  event.add_double(kWallTime, now.count());
  return event;
}

ProtoMessage event_at(std::int64_t step) {
  if (step < 0) {
    throw std::invalid_argument("event file: the step is " + std::to_string(step) +
                                "; expected 0 or more");
  }
  ProtoMessage event = event_now();
  event.add_integer(kStep, static_cast<std::uint64_t>(step));
  return event;
}

std::string version_event() {
  ProtoMessage event = event_now();
  event.add_bytes(kFileVersion, kVersion);
  return event.bytes();
}

// Starts with the record of its version, or with what was written of it.
bool is_ours(std::string_view file, std::size_t whole) {
  const std::string version = make_record(version_event());
  if (whole > 0) return file.substr(0, version.size()).find(kVersion) != std::string_view::npos;
  // Only the length and its checksum are the same at all times.
  constexpr std::size_t kSame = 12;
  return file.size() < version.size() &&
         file.substr(0, kSame) == std::string_view(version).substr(0, std::min(kSame, file.size()));
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder)
    : path_(folder / "events.out.tfevents.pareprop") {
  std::filesystem::create_directories(folder);
  open();
}

void EventFile::open() {
  const std::filesystem::path folder = path_.parent_path();
  // Before it is opened for writing: a pipe, or a link out of the folder, is not ours.
  if (std::filesystem::symlink_status(path_).type() != std::filesystem::file_type::not_found) {
    const InputFile is_regular(path_, folder);
  }
  file_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file_) fail(path_);
  std::size_t size = 0;
  std::size_t whole = 0;
  {
    const auto old = read_binary_file(path_, {.most_bytes = kAnySize, .within = folder});
    size = old.size();
    whole = whole_records(old);
    if (!is_ours({reinterpret_cast<const char*>(old.data()), size}, whole)) {
      throw std::runtime_error("cannot append to '" + path_.string() +
                               "': it is not a TensorBoard event file; move it away");
    }
  }
  if (whole < size && ftruncate(file_.get(), static_cast<off_t>(whole)) != 0) fail(path_);
  if (whole == 0) append(version_event());
}

void EventFile::add(std::int64_t step, std::span<const Scalar> scalars) {
  ProtoMessage summary;
  for (const Scalar& scalar : scalars) {
    if (scalar.name.empty() || text::first_ill_formed(scalar.name) < scalar.name.size()) {
      throw std::invalid_argument("event file: a scalar is called " + text::in_quotes(scalar.name) +
                                  "; expected a name in UTF-8");
    }
    ProtoMessage value;
    value.add_bytes(kValueTag, scalar.name);
    value.add_float(kValueSimple, scalar.value);
    summary.add_bytes(kSummaryValue, value.bytes());
  }
  ProtoMessage event = event_at(step);
  event.add_bytes(kSummary, summary.bytes());
  append(event.bytes());
}

void EventFile::restart_at(std::int64_t step) {
  ProtoMessage log;
  log.add_integer(kSessionStatus, kSessionStart);
  ProtoMessage event = event_at(step);
  event.add_bytes(kSessionLog, log.bytes());
  append(event.bytes());
}

// In one write: a reader, or the next run, finds the record whole or cut short.
void EventFile::append(const std::string& event) {
  const std::string record = make_record(event);
  const off_t whole = lseek(file_.get(), 0, SEEK_END);
  std::string_view rest = record;
  while (!rest.empty()) {
    const ssize_t written = ::write(file_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      // Half a record would hide from readers what comes after it.
      [[maybe_unused]] const int cut = whole < 0 ? -1 : ftruncate(file_.get(), whole);
      errno = error;
      fail(path_);
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace pareprop::io
