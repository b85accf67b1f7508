#include "pareprop/memory/meta_meter.h"

#include <c10/core/Allocator.h>

#include <limits>
#include <memory>
#include <utility>

#include "pareprop/memory/meter.h"
#include "pareprop/memory/out_of_memory.h"
#include "pareprop/memory/size_classes.h"

namespace pareprop::memory {
namespace {

thread_local std::shared_ptr<DevicePools> pools_now;
thread_local int stream_now = 0;

// Data pointers of meta tensors are null; what is counted hangs on the context.
class MetaMeter final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes > kLargest) throw_out_of_memory(bytes);
    auto block = std::make_unique<MetaBlock>(bytes, current_tag());
    detail::count(Counted::meta, block->tag, block->bytes);
    return {nullptr, block.release(), &release_meta, c10::Device(c10::kMeta)};
  }
  void copy_data(void*, const void*, std::size_t) const override {}
};

}  // namespace

MetaPoolsScope::MetaPoolsScope(std::shared_ptr<DevicePools> pools)
    : previous_(std::exchange(pools_now, std::move(pools))) {}
MetaPoolsScope::~MetaPoolsScope() { pools_now = std::move(previous_); }

MetaStreamScope::MetaStreamScope(int stream) : previous_(std::exchange(stream_now, stream)) {}
MetaStreamScope::~MetaStreamScope() { stream_now = previous_; }

MetaBlock::MetaBlock(std::size_t requested, Tag what)
    : pools(requested > 0 ? pools_now : nullptr),
      piece(pools ? pools->take(stream_now, requested) : nullptr),
      bytes(piece != nullptr ? DevicePools::bytes(*piece) : static_cast<std::int64_t>(requested)),
      tag(what) {}
MetaBlock::~MetaBlock() {
  if (pools) pools->give_back(piece);
}

void release_meta(void* context) {
  const std::unique_ptr<MetaBlock> block(static_cast<MetaBlock*>(context));
  if (block) detail::count(Counted::meta, block->tag, -block->bytes);
}

void install_meta_meter() {
  static auto* const meter = [] {
    auto* instance = new MetaMeter;  // leaked, as tensors may outlive static destruction
    c10::SetAllocator(c10::kMeta, instance, std::numeric_limits<std::uint8_t>::max());
    return instance;
  }();
  static_cast<void>(meter);
}

}  // namespace pareprop::memory
