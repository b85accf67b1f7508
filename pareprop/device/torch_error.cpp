#include "pareprop/device/torch_error.h"

#include <c10/util/Exception.h>

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
         quoted(said.find("arguments from")) + "); use --device cpu";
}

}  // namespace

std::string explained(const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  if (of_torch == nullptr) return error.what();
  const std::string said = of_torch->what_without_backtrace(), line = first_line(said);
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    if (said.starts_with("out of memory: ")) return said;  // of our allocator, with advice
    return "out of memory: " + line +
           "; stop other programs that use this memory, or use a smaller --batch or --budget";
  }
  if (dynamic_cast<const c10::AcceleratorError*>(&error) != nullptr) {
    return "the device failed: " + line +
           "; start the program again, and if that fails too, reset the device";
  }
  if (dynamic_cast<const c10::NotImplementedError*>(&error) == nullptr) return said;
  if (said.starts_with("Could not run ")) return missing_kernel(said);
  if (has(line, "BFloat16")) {
    return "this device cannot compute in bf16: " + line + "; use --precision fp32";
  }
  return said;
}

}  // namespace pareprop
