#pragma once

#include <filesystem>

#include "pareprop/data/images/cifar.h"
#include "pareprop/data/images/image_source.h"

namespace pareprop::data {

// The binary version as it is unpacked: data_batch_*.bin and test_batch.bin of CIFAR-10, train.bin
// and test.bin of CIFAR-100, in the folder or in the archive's own (cifar-10-batches-bin,
// cifar-100-binary) inside it. Class names come from the text file beside them where it is there.
// Throws std::invalid_argument when files are missing, std::runtime_error, which names the file,
// when one is damaged.
ImageHalves open_cifar(Cifar kind, const std::filesystem::path& folder);

}  // namespace pareprop::data
