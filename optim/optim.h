// Optimizers, all of them.
#pragma once
#include "optim/adam.h"
#include "optim/optimizer.h"
#include "optim/sgd.h"
