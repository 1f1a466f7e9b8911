// Tensor parallelism: layers that are cut over ranks, conversions between them, and meshes of actors.
#pragma once
#include "parallel/mesh/actor_mesh.h"
#include "parallel/mesh/weighted_mean.h"
#include "parallel/sharded/sharded_encoder_layer.h"
#include "parallel/tensor/convert.h"
#include "parallel/tensor/copied.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/placement.h"
#include "parallel/tensor/transformer.h"
#include "parallel/tensor/vocabulary.h"
#include "parallel/tensor/whole_model.h"
#include "troupe/groups.h"
