// Data parallel training: replicas of a model, whose gradients are summed while the backward pass runs.
#pragma once
#include "parallel/data/aggregation.h"
#include "parallel/data/data_parallel.h"
#include "parallel/data/parameter_average.h"
#include "parallel/server/compression/own_compression.h"
#include "parallel/sharded/sharded.h"
#include "troupe/groups.h"
