#pragma once

// Everything that a program needs to train its own network: docs/library.md shows how.

#include "pareprop/graph/stack_plan.h"
#include "pareprop/memory/caching_allocator.h"  // counts the bytes of CPU tensors
#include "pareprop/memory/meter.h"
#include "pareprop/ops/layer_norm.h"
#include "pareprop/ops/linear.h"
#include "pareprop/ops/meta_device.h"    // networks without memory, for the planner
#include "pareprop/ops/random_stream.h"  // dropout whose masks the recomputation draws again
#include "pareprop/plan/joint_search.h"  // plans for parts of a batch
#include "pareprop/plan/planner.h"
#include "pareprop/reversible/checkpoint.h"
#include "pareprop/reversible/deferred_checks.h"  // errors of a step on an accelerator
#include "pareprop/reversible/network.h"
#include "pareprop/reversible/stack.h"
#include "pareprop/sweep/verify.h"
#include "pareprop/trace/chrome.h"
#include "pareprop/trace/recorder.h"
#include "pareprop/trace/step_svg.h"
