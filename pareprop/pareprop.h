#pragma once

// Everything a program that trains its own network needs.

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/ops/linear.h"
#include "pareprop/ops/random_stream.h"
#include "pareprop/reversible/checkpoint.h"
#include "pareprop/reversible/stack.h"
