// How to cut a model over workers: what its layers take, and a search over layouts.
#pragma once
#include "parallel/measure/measure.h"
#include "parallel/plan/check.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/read_profile_of.h"
