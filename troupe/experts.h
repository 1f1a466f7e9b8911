// Mixtures of experts, of which each rank has some.
#pragma once
#include "parallel/experts/experts.h"
#include "parallel/mesh/actor_mesh.h"
#include "parallel/mesh/weighted_mean.h"
#include "parallel/tensor/copied.h"
#include "troupe/groups.h"
