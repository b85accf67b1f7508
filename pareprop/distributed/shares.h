#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pareprop/distributed/process_group.h"
#include "pareprop/distributed/shard.h"
#include "pareprop/io/safetensors.h"
#include "pareprop/trace/recorder.h"

namespace pareprop::distributed {

// Note [Shares]
// Every parameter has an owner among the processes. The owner alone keeps the optimizer's state of
// the parameter, updates it, and gives the others its new weights. A share is made of whole
// parameters: what an optimizer computes of one parameter (means over rows and columns, scales of
// blocks, random bits) is what it computes without shares, bit for bit. So a share is as near to
// 1/processes of the bytes as whole parameters allow.
//
// Sums of floating-point numbers depend on their order, and the order of a collective operation on
// where an element lies in its tensor. So gradients travel in tensors that have one owner each,
// also where nothing is divided: then all ways to divide give the same bits.

// The owner of each parameter. The largest comes first, and each goes to the process that has the
// fewest bytes. All processes find the same.
std::vector<int> owners_of(c10::ArrayRef<at::Tensor> parameters, int processes);

// Those of `parameters` that `rank` owns, in their order.
std::vector<at::Tensor> share_of(c10::ArrayRef<at::Tensor> parameters, int rank, int processes);

// The parameters that processes train together, and which of them are this one's.
class Shares {
 public:
  static constexpr std::int64_t kParcelBytes = std::int64_t{8} << 20;

  // `parameters` are those of the whole network, the same in all processes. The group outlives it.
  // In a group of one process there is nothing to divide, whatever `shard` is.
  Shares(io::NamedTensors parameters, ProcessGroup& group, Shard shard = Shard::none);

  ProcessGroup& group() const { return group_; }
  const io::NamedTensors& all() const { return all_; }
  int owner(std::size_t place) const { return owners_[place]; }  // of all()[place]

  // Those that this process updates: all of them where nothing is divided.
  const io::NamedTensors& own() const { return own_; }
  static constexpr std::size_t kNotOwn = static_cast<std::size_t>(-1);
  std::size_t place_in_own(std::size_t place) const { return places_in_own_[place]; }  // or kNotOwn

  // The processes that have the optimizer's state together: all, or, where nothing is divided, each
  // alone. Whoever asks them never asks whether something is divided.
  ProcessGroup& holders() const { return alone_ ? *alone_ : group_; }
  // This process has the state of all parameters.
  bool holds_all() const { return alone_ != nullptr; }
  // A process keeps the gradients of its own parameters only.
  bool divides_gradients() const { return shard_ == Shard::gradients; }

  // One number of each of own(): those of all().
  std::vector<double> joined(c10::ArrayRef<double> of_own) const;

  // After own() were updated: every process has the weights of all. Throws what ProcessGroup
  // throws; weights are some of before and some of after the update then.
  void gather_weights(TraceRecorder* recorder = nullptr);

 private:
  // Parameters of one owner that travel together.
  struct Parcel {
    int owner = 0;
    std::vector<at::Tensor> parameters = {};
    std::int64_t elements = 0;
  };
  struct Travelling;

  void pack();
  Travelling send(const Parcel& parcel) const;
  void receive(Travelling travelling) const;

  io::NamedTensors all_, own_;
  ProcessGroup& group_;
  Shard shard_;
  std::unique_ptr<ProcessGroup> alone_;  // null: state is divided
  std::vector<int> owners_;
  std::vector<std::size_t> places_in_own_;
  std::vector<Parcel> parcels_;  // none where nothing is divided
};

}  // namespace pareprop::distributed
