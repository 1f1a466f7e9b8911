// Local automatic differentiation, all of it.
#pragma once
#include "autograd/checkpoint.h"
#include "autograd/engine.h"
#include "autograd/function.h"
#include "autograd/gradcheck.h"
#include "autograd/graph_dot.h"
#include "autograd/hooks.h"
#include "autograd/opcheck.h"
#include "autograd/ready_hooks.h"
#include "core/graph/autocast.h"
#include "core/graph/enable_grad_guard.h"
