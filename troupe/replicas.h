// Data parallel training: replicas of a model, whose gradients are summed while the backward pass runs.
#pragma once
#include "parallel/data/data_parallel.h"
#include "parallel/sharded/sharded.h"
#include "troupe/groups.h"
