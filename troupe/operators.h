// Operators of a program's own: tables of kernels, shape rules and checks, helpers for gradient rules.
#pragma once
#include "ops/dispatch/check.h"
#include "ops/dispatch/kernel_table.h"
#include "ops/gradient_rules.h"
#include "troupe/troupe.h"
