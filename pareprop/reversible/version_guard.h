#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace pareprop {

// Tensors that a recomputation must find as the forward pass left them.
class VersionGuard {
 public:
  // `name` begins the message: "block 3, branch F: parameter 'qkv.weight'". Undefined tensors are
  // fine.
  void add(const at::Tensor& tensor, std::string name);

  // Throws std::runtime_error naming the first one that was changed in place since.
  void check() const;

  void clear() { entries_.clear(); }

 private:
  struct Entry {
    at::Tensor tensor;
    std::int64_t version;
    std::string name;
  };
  std::vector<Entry> entries_;
};

}  // namespace pareprop
