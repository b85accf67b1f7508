#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace pareprop {

// Some of the samples of a batch, which is computed in parts one after another; or all of them.
// Note [Randomness of parts]
// Masks have the samples outermost. So the mask of a part is that of the whole batch, from the
// part's first sample on: what a sample is multiplied with does not depend on how its batch is cut.
struct BatchPart {
  std::int64_t first = 0;    // sample
  std::int64_t samples = 1;  // REQUIRES: as many as there are, unless `first` is 0

  // Where the part's elements begin in the mask of the batch, when it has so many.
  std::int64_t begin(std::int64_t elements) const {
    return first == 0 ? 0 : first * (elements / samples);
  }
};

// What a RandomStream is keyed by, and for which part of a batch it draws.
struct RandomKey {
  RandomKey(std::uint64_t of_stream = 0, BatchPart of_batch = {})
      : key(of_stream), part(of_batch) {}

  std::uint64_t key;
  BatchPart part;
};

// One draw of a RandomStream: a mask of any length. Any part of it can be computed on its own.
struct MaskDraw {
  std::uint64_t key = 0, draw = 0;
  double drop = 0.0;
  BatchPart part = {};

  double scale() const { return 1.0 / (1.0 - drop); }
  // Numbers of 32 bits below it are dropped.
  std::uint32_t threshold() const { return static_cast<std::uint32_t>(drop * 4294967296.0); }
  // The elements of this part, as many as `sizes` has, drawn on the device of `options`: the same
  // on every device.
  at::Tensor mask(at::IntArrayRef sizes, const at::TensorOptions& options) const;
  // Elements [first, first + count): 0 with probability `drop`, else scale(). float, double,
  // BFloat16 and Half.
  template <typename Scalar>
  void fill(std::int64_t first, std::int64_t count, Scalar* out) const;
};

// Random numbers that can be drawn again: a pure function of the key and the number of the draw.
// Note [Replayed randomness]
// Each branch of each call gets a stream of its own, keyed by (seed, step, stack, branch). The
// forward pass and every recomputation begin a new RandomStream with the same key, so they draw the
// same masks, whatever lane or thread count they run on. No global generator is read or written, so
// the user's own stays as it was. Numbers come from the Philox counter-based generator: element i
// of draw j depends on (key, j, i) only.
class RandomStream {
 public:
  explicit RandomStream(RandomKey key) : key_(key) {}

  // 0 with probability `drop`, else 1 / (1 - drop).
  at::Tensor keep_mask(at::IntArrayRef sizes, double drop, const at::TensorOptions& options);
  // The same numbers, drawn part by part where they are used.
  MaskDraw draw_mask(double drop) { return {key_.key, draws_++, drop, key_.part}; }

 private:
  RandomKey key_;
  std::uint64_t draws_ = 0;
};

// Hashes several numbers to one 64-bit key. The second goes on where the first ended:
// random_key({a, b}) is random_key(random_key({a}), {b}).
std::uint64_t random_key(std::initializer_list<std::uint64_t> numbers);
std::uint64_t random_key(std::uint64_t begun, std::initializer_list<std::uint64_t> numbers);

// While it lives, dropout() and drop_path() on this thread draw from `stream`.
class RandomScope {
 public:
  explicit RandomScope(RandomStream& stream);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  RandomStream* previous_;
};

// While it lives, nothing can be drawn on this thread: dropout() throws. Gradients of a branch are
// computed in one, since whatever a branch computes again there would draw other masks.
class NoDrawScope {
 public:
  NoDrawScope();
  ~NoDrawScope();
  NoDrawScope(const NoDrawScope&) = delete;
  NoDrawScope& operator=(const NoDrawScope&) = delete;

 private:
  RandomStream* previous_stream_;
  bool previous_;
};

// Whether this thread is inside of a branch: dropout() draws from its stream, or throws in a
// NoDrawScope.
bool in_branch();

// The mask that dropout() would draw next. Throws as dropout() does.
MaskDraw draw_dropout(double drop);

// dropout() drops single elements, drop_path() whole samples along dimension 0. The rest is scaled
// by 1 / (1 - drop). If `drop` is 0, they return x itself. Both throw std::invalid_argument if
// `drop` is not in [0, 1), and std::logic_error outside of a RandomScope.
at::Tensor dropout(const at::Tensor& x, double drop);
at::Tensor drop_path(const at::Tensor& x, double drop);

}  // namespace pareprop
