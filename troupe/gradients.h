// Gradients beyond troupe.h: finding a NaN, writing through pointers, keeping old versions, rules that wait,
// passes in two parts.
#pragma once
#include "autograd/split_pass.h"
#include "autograd/waiting_step.h"
#include "core/graph/anomaly.h"
#include "core/graph/copy_on_write.h"
#include "core/graph/exposed.h"
#include "core/graph/inplace_write.h"
#include "troupe/troupe.h"
