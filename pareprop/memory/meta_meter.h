#pragma once

namespace c10 {
class DataPtr;
}

namespace pareprop::memory {

// Makes the meter count tensors of the meta device as if they had the memory they stand for, by the
// same tags. A training step on that device then tells the peak of a model of any size, without its
// memory. One that no memory could hold throws c10::OutOfMemoryError. Idempotent, thread-safe, for
// the rest of the process; for meta tensors made from then on.
void install_meta_meter();

}  // namespace pareprop::memory
