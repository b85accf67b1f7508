#pragma once

#include <exception>
#include <stdexcept>
#include <string>

namespace pareprop {

// Faults that whoever started the program can do something about.
enum class Fault { other, out_of_memory, lost_device, no_kernel, no_bf16 };

// Of an error of torch or of the standard library; of a Failure the one that it was made with.
Fault fault_of(const std::exception& error);

// What an error says to people. What torch throws for the faults of a device becomes one line: that
// it is out of memory, was lost, or lacks an operator or a type, in torch's words as far as they
// matter. Other errors of torch are without their backtrace.
std::string explained(const std::exception& error);

// An error that came while something was under way, in words that say so, with its fault.
class Failure : public std::runtime_error {
 public:
  Failure(Fault fault, const std::string& what) : std::runtime_error(what), fault_(fault) {}
  Fault fault() const { return fault_; }

 private:
  Fault fault_;
};

}  // namespace pareprop
