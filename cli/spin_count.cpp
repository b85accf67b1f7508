#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

// Note [Spin count]
// OpenMP threads that wait for each other spin, by default for milliseconds. Where others want the
// cores too, steps of small models were seen to take ten times as long. libgomp reads from the
// environment how long they may, in its constructor and so before main(), and no call changes it
// later. So the program starts itself once more with the variable set. Functions of .preinit_array
// run before the constructors of all libraries, which take most of the time of a start: the second
// start costs 20 ms of 300. libc's constructor has not run either: a setenv() would be lost here,
// and what a sanitizer needs is not there yet.
namespace {

#define PAREPROP_BEFORE_CONSTRUCTORS __attribute__((no_sanitize("address", "undefined")))

PAREPROP_BEFORE_CONSTRUCTORS bool sets(const char* entry, const char* variable) {
  while (*variable != '\0' && *entry == *variable) ++entry, ++variable;
  return *variable == '\0' && *entry == '=';
}

PAREPROP_BEFORE_CONSTRUCTORS void set_spin_count(int, char** argv, char** environment) {
  // Started as an argument of the dynamic loader, for which then no loader was loaded: what
  // /proc/self/exe leads to is the loader, and it would take the first flag for a program.
  if (getauxval(AT_BASE) == 0) return;
  constexpr std::size_t kMostVariables = 4096, kLongestPath = 4096;
  const char* changed[kMostVariables + 2];
  std::size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    const char* const entry = environment[count];
    if (count == kMostVariables) return;
    if (sets(entry, "GOMP_SPINCOUNT") || sets(entry, "OMP_WAIT_POLICY")) return;
    changed[count] = entry;
  }
  changed[count] = "GOMP_SPINCOUNT=2000";
  changed[count + 1] = nullptr;
  // By its path and not as /proc/self/exe: that would be its name for ps.
  char path[kLongestPath];
  const long length = syscall(SYS_readlink, "/proc/self/exe", path, kLongestPath);
  if (length <= 0 || static_cast<std::size_t>(length) == kLongestPath) return;
  path[length] = '\0';
  syscall(SYS_execve, path, argv, changed);
}

__attribute__((section(".preinit_array"),
               used)) void (*const before_constructors)(int, char**, char**) = set_spin_count;

}  // namespace
