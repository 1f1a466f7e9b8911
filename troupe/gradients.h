// Gradients beyond troupe.h: finding a NaN, writing through pointers.
#pragma once
#include "core/graph/anomaly.h"
#include "core/graph/exposed.h"
#include "core/graph/inplace_write.h"
#include "troupe/troupe.h"
