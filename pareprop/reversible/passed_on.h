#pragma once

namespace pareprop {

// An error of an observer that derives from this too passes through as it is: an exception of
// another language, say. Other errors get a sentence that says which callback they came from.
class PassedOn {
 public:
  virtual ~PassedOn() = default;
};

}  // namespace pareprop
