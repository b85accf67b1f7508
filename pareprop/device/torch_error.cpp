#include "pareprop/device/torch_error.h"

#include <c10/util/Exception.h>

#include <new>

namespace pareprop {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// Of "Could not run 'aten::gelu' with arguments from the 'CUDA' backend. ...": both names.
std::string missing_kernel(const std::string& said) {
  const auto quoted = [&](std::size_t from) {
    const std::size_t begin = said.find('\'', from), end = said.find('\'', begin + 1);
    return begin == std::string::npos || end == std::string::npos
               ? std::string("?")
               : said.substr(begin + 1, end - begin - 1);
  };
  return "torch has no kernel of " + quoted(0) + " for this device (" +
         quoted(said.find("arguments from")) + ")";
}

template <typename Error>
bool is_a(const std::exception& error) {
  return dynamic_cast<const Error*>(&error) != nullptr;
}

// Without torch's backtrace.
std::string said_by(const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch == nullptr ? error.what() : of_torch->what_without_backtrace();
}

}  // namespace

Fault fault_of(const std::exception& error) {
  if (const auto* const failure = dynamic_cast<const Failure*>(&error)) return failure->fault();
  if (is_a<std::bad_alloc>(error) || is_a<c10::OutOfMemoryError>(error)) {
    return Fault::out_of_memory;
  }
  if (is_a<c10::AcceleratorError>(error)) return Fault::lost_device;
  if (!is_a<c10::NotImplementedError>(error)) return Fault::other;
  const std::string said = said_by(error);
  if (said.starts_with("Could not run ")) return Fault::no_kernel;
  return has(first_line(said), "BFloat16") ? Fault::no_bf16 : Fault::other;
}

std::string explained(const std::exception& error) {
  const std::string said = said_by(error), line = first_line(said);
  if (is_a<Failure>(error)) return said;
  if (is_a<std::bad_alloc>(error)) return "out of memory";
  switch (fault_of(error)) {
    case Fault::out_of_memory:
      if (said.starts_with("out of memory: ")) return said;  // of our allocator
      return "out of memory: " + line + "; stop other programs that use this memory";
    case Fault::lost_device:
      return "the device failed: " + line +
             "; start the program again, and if that fails too, reset the device";
    case Fault::no_kernel:
      return missing_kernel(said);
    case Fault::no_bf16:
      return "this device cannot compute in bf16: " + line;
    case Fault::other:
      break;
  }
  return said;
}

}  // namespace pareprop
