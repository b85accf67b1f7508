#include "pareprop/train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace pareprop::train {

RunLock::RunLock(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const std::filesystem::path path = folder / ".lock";
  file_ = io::FileDescriptor(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file_) throw std::system_error(errno, std::generic_category(), path.string());
  if (flock(file_.get(), LOCK_EX | LOCK_NB) == 0) return;
  if (errno != EWOULDBLOCK) throw std::system_error(errno, std::generic_category(), path.string());
  throw std::invalid_argument("another process trains in " + folder.string() +
                              ": wait until it has ended, or choose another folder (--out)");
}

}  // namespace pareprop::train
