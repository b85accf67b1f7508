#pragma once

namespace pareprop {

// Says that ops which this thread records should keep what their matrix products read and made, and
// compute again in their backward what is cheap to compute from it: GELU, probabilities, weights in
// the type of products. The bits are the same. Compositions of torch's operators keep what those
// do.
class LeanTapeScope {
 public:
  explicit LeanTapeScope(bool lean);
  ~LeanTapeScope();
  LeanTapeScope(const LeanTapeScope&) = delete;
  LeanTapeScope& operator=(const LeanTapeScope&) = delete;

 private:
  bool previous_;
};

bool tape_is_lean();

}  // namespace pareprop
