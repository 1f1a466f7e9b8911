// Context parallelism: attention over a sequence that is cut over ranks.
#pragma once
#include "parallel/context/attention.h"
#include "parallel/context/sequence.h"
#include "parallel/context/transformer.h"
#include "parallel/mesh/actor_mesh.h"
#include "parallel/mesh/weighted_mean.h"
#include "parallel/tensor/copied.h"
#include "troupe/groups.h"
