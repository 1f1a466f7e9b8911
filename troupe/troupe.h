// What every program needs: tensors, operators, modules, optimizers, gradients, actors and calls, launch().
// One header more for each subject: pipeline.h, server.h, replicas.h, data.h, gradients.h, calls.h,
// operators.h, profile.h.
#pragma once
#include <cstdio>

#include "actors/actor.h"
#include "actors/cell/methods.h"
#include "autograd/autograd.h"
#include "autograd/distributed/context.h"
#include "autograd/distributed/later_gradients.h"
#include "autograd/distributed/optim/distributed_optimizer.h"
#include "autograd/distributed/optim/module_actor.h"
#include "core/base/generator.h"
#include "core/codec/keep.h"
#include "core/tensor/tensor.h"
#include "data/datasets/loader.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "rref/any_ref.h"
#include "rref/here.h"
#include "troupe/cluster/cluster.h"
#include "troupe/cluster/launch.h"
#include "troupe/job/job.h"
#include "troupe/on_wire.h"
#include "troupe/ways/ways.h"

namespace troupe {
using namespace ops;  // relu(x), cross_entropy(logits, labels), ...
}
