#pragma once

#include "pareprop/data/images/image_source.h"

namespace pareprop::data {

// The built-in digits as images of 8 x 8 grey pixels; every sixth is for testing.
ImageHalves digit_images();

}  // namespace pareprop::data
