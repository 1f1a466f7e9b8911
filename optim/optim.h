// Optimizers, all of them.
#pragma once
#include "optim/adam.h"
#include "optim/lamb.h"
#include "optim/optimizer.h"
#include "optim/rmsprop.h"
#include "optim/sgd.h"
