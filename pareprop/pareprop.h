#pragma once

// Everything that a program needs to train its own network: docs/library.md shows how.

#include "pareprop/memory/caching_allocator.h"  // counts bytes by what they are for
#include "pareprop/memory/meter.h"
#include "pareprop/ops/layer_norm.h"
#include "pareprop/ops/linear.h"
#include "pareprop/ops/meta_device.h"    // networks without memory, for plans
#include "pareprop/ops/random_stream.h"  // dropout that is drawn again
#include "pareprop/plan/planner.h"
#include "pareprop/reversible/checkpoint.h"
#include "pareprop/reversible/network.h"
#include "pareprop/reversible/stack.h"
#include "pareprop/sweep/verify.h"
#include "pareprop/trace/chrome.h"
#include "pareprop/trace/recorder.h"
#include "pareprop/trace/step_svg.h"
