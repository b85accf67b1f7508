#include "pareprop/memory/out_of_memory.h"

#include <c10/util/Exception.h>

#include <cstdint>
#include <string>

#include "pareprop/memory/free_memory.h"
#include "pareprop/memory/meter.h"
#include "pareprop/memory/size_classes.h"

namespace pareprop::memory {
namespace {

std::string mib(std::int64_t bytes) {
  constexpr std::int64_t kMib = 1 << 20;
  return std::to_string(bytes / kMib) + "." + std::to_string(bytes % kMib * 10 / kMib) + " MiB";
}

std::string live_by_tag(const Usage& now) {
  std::string words;
  for (std::size_t i = 0; i < kTags; ++i) {
    words += (i > 0 ? ", " : "") + std::string(name(static_cast<Tag>(i))) + " " + mib(now.live[i]);
  }
  return mib(now.total_live) + " (" + words + ")";
}

}  // namespace

void throw_out_of_memory(std::size_t bytes) {
  std::string message = "out of memory: a tensor of " + std::to_string(bytes) + " bytes";
  if (bytes > kLargest) {
    message += " is larger than any memory; check its shape";
  } else {
    message += " (" + mib(static_cast<std::int64_t>(bytes)) +
               ") could not be allocated. Live tensors hold " + live_by_tag(usage()) +
               "; unused cached memory was already returned to the system";
    const MemoryLimit limit = tightest(memory_limits());
    if (!limit.name.empty()) {
      message += ". The tightest limit is " + limit.name + ", which leaves " + mib(limit.free);
    }
    message += ". A smaller batch, or a plan that recomputes more, needs less";
  }
  C10_THROW_ERROR(OutOfMemoryError, message);
}

}  // namespace pareprop::memory
