// Everything that a program needs.
#pragma once
#include "actors/actor.h"
#include "actors/methods.h"
#include "autograd/autograd.h"
#include "autograd/dist/context.h"
#include "autograd/dist/module.h"
#include "autograd/dist/optimizer.h"
#include "core/random.h"
#include "core/tensor.h"
#include "data/loader.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "rref/any_ref.h"
#include "rref/here.h"
#include "troupe/cluster.h"
#include "troupe/launch.h"
#include "troupe/on_wire.h"

namespace troupe {
using namespace ops;  // relu(x), cross_entropy(logits, labels), ...
}
