#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace pareprop::train {

// A field of TrainConfig has a value that it cannot have. what() names its key, as it is in a
// configuration file; on the command line the same field is flag_name(key()).
class FieldError : public std::invalid_argument {
 public:
  FieldError(std::string key, std::string why)
      : std::invalid_argument(key + ": " + why), key_(std::move(key)), why_(std::move(why)) {}

  const std::string& key() const { return key_; }
  const std::string& why() const { return why_; }

 private:
  std::string key_, why_;
};

// "--learning-rate" of "learning_rate".
std::string flag_name(std::string_view key);

}  // namespace pareprop::train
